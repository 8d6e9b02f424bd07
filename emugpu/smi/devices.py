"""Reads the GPUs from the node's sharing manager, else from the device files in the container.

A container counts its GPUs from 0, as with the NVIDIA runtime, whatever their indexes on the node; UUIDs are the same.
`emugpu smi --admin` shows the node's indexes.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from emulator_runtime.domain.errors import EmuGpuError, InputError, ManagerUnavailableError, ProtocolError
from emulator_runtime.ipc.channel import Channel
from emulator_runtime.ipc.frames import Message
from emulator_runtime.ipc.replies import raise_for
from emulator_runtime.node.layout import (
    CONTAINER_EDEV_DIR,
    CONTAINER_MANAGER_SOCKET,
    MANAGER_SOCKET_VARIABLE,
    TOKEN_VARIABLE,
)

EDEV_VARIABLE = "EMUGPU_EDEV_DIR"
"""Variable with the directory of device files, if it isn't /edev."""
_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class Process:
    """A process that computes on a GPU; `pid` is the node's, None if unknown."""

    pid: int | None
    name: str
    used_bytes: int


@dataclass(frozen=True, slots=True)
class Whole:
    """The GPU on which a MIG instance is: its index and UUID."""

    index: int
    uuid: str


@dataclass(frozen=True, slots=True)
class Gpu:
    """One emulated GPU. None: not known; `utilisation` is from 0 to 1. `mig_gpu`: the GPU of a MIG instance."""

    index: int
    name: str
    uuid: str
    memory_bytes: int
    used_bytes: int | None = None
    utilisation: float | None = None
    healthy: bool | None = None
    processes: tuple[Process, ...] = ()
    mig_gpu: Whole | None = None


@dataclass(frozen=True, slots=True)
class Picture:
    """All GPUs in the order of their indexes; `note`: for stderr, what is missing and why."""

    gpus: tuple[Gpu, ...]
    note: str = ""


def container_picture(environ: Mapping[str, str]) -> Picture | None:
    """The GPUs of this container, counted from 0; None if it has none."""
    token, why = environ.get(TOKEN_VARIABLE, ""), ""
    if token:
        socket = Path(environ.get(MANAGER_SOCKET_VARIABLE) or CONTAINER_MANAGER_SOCKET)
        try:
            return Picture(counted(_gpus(_ask(socket, {"op": "query", "token": token}))))
        except ManagerUnavailableError:
            why = "the sharing manager does not answer"
        except EmuGpuError as error:
            why = f"the sharing manager refused: {clean(str(error))}"
    gpus = _of_files(Path(environ.get(EDEV_VARIABLE) or CONTAINER_EDEV_DIR))
    if not gpus:
        return None
    return Picture(counted(gpus), f"{why or f'{TOKEN_VARIABLE} is not set'}; memory use and load are not known")


def node_picture(admin_socket: Path) -> Picture:
    """All GPUs of the node. Raises InputError if its manager doesn't answer."""
    try:
        return Picture(_gpus(_ask(admin_socket, {"op": "status"})))
    except ManagerUnavailableError as error:
        raise InputError("--admin", f"{error}; give the node directory's admin/admin.sock, as root") from error


def counted(gpus: tuple[Gpu, ...]) -> tuple[Gpu, ...]:
    """With the indexes that they have in the container, and so the GPUs on which MIG instances are."""
    numbers = {
        uuid: n for n, uuid in enumerate(dict.fromkeys(gpu.mig_gpu.uuid if gpu.mig_gpu else gpu.uuid for gpu in gpus))
    }
    return tuple(
        replace(gpu, index=index, mig_gpu=Whole(numbers[gpu.mig_gpu.uuid], gpu.mig_gpu.uuid) if gpu.mig_gpu else None)
        for index, gpu in enumerate(gpus)
    )


def _ask(socket: Path, message: Message) -> Message:
    channel = Channel.connect(socket, _TIMEOUT_S)
    try:
        return raise_for(channel.request(message))
    finally:
        channel.close()


def _of_files(directory: Path) -> tuple[Gpu, ...]:
    """The GPUs of the device files; a file that can't be read is left out."""
    gpus = []
    for path in directory.glob("*"):
        try:
            gpus.append(_gpu(json.loads(path.read_text(encoding="utf-8"))))
        except (OSError, ValueError, ProtocolError):
            continue
    return tuple(sorted(gpus, key=lambda gpu: gpu.index))


def _gpus(reply: Message) -> tuple[Gpu, ...]:
    entries = reply.get("devices")
    if not isinstance(entries, list):
        raise ProtocolError("its answer has no devices")
    return tuple(sorted((_gpu(entry) for entry in entries), key=lambda gpu: gpu.index))


def _gpu(entry: object) -> Gpu:
    """Raises ProtocolError for an entry without the four facts that every source has."""
    facts = entry if isinstance(entry, dict) else {}
    match facts:
        case {"index": int(index), "uuid": str(uuid), "gpu_type": str(gpu_type), "memory_bytes": int(memory_bytes)}:
            used, utilisation, healthy = facts.get("used_bytes"), facts.get("utilisation"), facts.get("healthy")
            return Gpu(
                index,
                clean(gpu_type),
                clean(uuid),
                memory_bytes,
                used if isinstance(used, int) else None,
                float(utilisation) if isinstance(utilisation, int | float) else None,
                healthy if isinstance(healthy, bool) else None,
                tuple(_process(process) for process in facts.get("processes") or ()),
                _whole(facts.get("mig")),
            )
    raise ProtocolError("its answer has a device without index, uuid, gpu_type or memory_bytes")


def _whole(entry: object) -> Whole | None:
    match entry:
        case {"gpu": int(index), "gpu_uuid": str(uuid)}:
            return Whole(index, clean(uuid))
    return None


def _process(entry: object) -> Process:
    match entry:
        case {"pid": int(pid), "name": str(name), "used_bytes": int(used_bytes)}:
            return Process(pid, clean(name), used_bytes)
    raise ProtocolError("its answer has a process without pid, name or used_bytes")


def clean(text: str) -> str:
    """The text with ? for characters that would move a terminal's cursor or break a line."""
    return "".join(char if " " <= char <= "~" or char >= "\xa1" else "?" for char in text)
