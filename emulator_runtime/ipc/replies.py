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


def error_reply(error: EmuGpuError, about: object = None) -> Message:
    """`about`: the op of the message that is wrong, if it had one. By it, a client that awaits the answer to a request knows
    whether this is the answer, or an error about an earlier message that has none."""
    named = {"about": about[:16]} if isinstance(about, str) else {}
    return {"ok": False, "code": error.code, "error": str(error)[:2000], **named}


def raise_for(reply: Message) -> Message:
    """Return the reply if it is a success; otherwise raise the error that it contains."""
    if reply.get("ok") is True:
        return reply
    cls = _CLASSES.get(str(reply.get("code")), RefusedError)
    raise cls(str(reply.get("error", "the reply has no error text")))
