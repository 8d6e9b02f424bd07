"""Converts an error to a reply, and the reply back to the same error on the other side."""

from __future__ import annotations

from emulator_runtime.domain.errors import (
    DeviceLostError,
    EmuGpuError,
    ManagerUnavailableError,
    OutOfMemoryError,
    ProtocolError,
    RefusedError,
)
from emulator_runtime.ipc.frames import Message

_CLASSES: dict[str, type[EmuGpuError]] = {
    cls.code: cls for cls in (OutOfMemoryError, DeviceLostError, ProtocolError, RefusedError, ManagerUnavailableError)
}


def error_reply(error: EmuGpuError) -> Message:
    return {"ok": False, "code": error.code, "error": str(error)[:2000]}


def raise_for(reply: Message) -> Message:
    """Return the reply if it is a success; otherwise raise the error that it contains."""
    if reply.get("ok") is True:
        return reply
    cls = _CLASSES.get(str(reply.get("code")), RefusedError)
    raise cls(str(reply.get("error", "the reply has no error text")))
