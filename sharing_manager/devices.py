"""The devices of a node: time, memory and use of each, whoever holds it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from emulator_runtime.domain.errors import InputError, RefusedError
from emulator_runtime.domain.gpu import Device
from emulator_runtime.domain.lease import Lease
from emulator_runtime.memory.admission import MemoryBook, Reservation
from sharing_manager.arbitration.base import Arbiter


@dataclass(slots=True)
class ManagedDevice:
    """One device with its arbiter, its memory book and the device time that was leased."""

    device: Device
    arbiter: Arbiter
    memory: MemoryBook
    holders: set[str] = field(default_factory=set)
    leased_ns: int = 0


class DevicePool:
    """All devices of a node. Whatever takes several devices takes all of them or none."""

    def __init__(self, devices: Iterable[Device], arbiter: Callable[[], Arbiter]) -> None:
        self._devices = {
            device.uuid: ManagedDevice(device, arbiter(), MemoryBook(device.uuid, device.usable_memory_bytes))
            for device in devices
        }

    def all(self) -> list[ManagedDevice]:
        return list(self._devices.values())

    def specs(self, uuids: Iterable[str]) -> list[Device]:
        return [self._get(uuid).device for uuid in uuids]

    def admit(self, job_id: str, uuids: Iterable[str]) -> None:
        """Raises RefusedError for a device that isn't here, is named twice, or has no room for another holder."""
        wanted = list(uuids)
        if len(set(wanted)) < len(wanted):
            raise RefusedError(f"job {job_id!r} asks for the same device twice")
        admitted: list[ManagedDevice] = []
        try:
            for device in [self._get(uuid) for uuid in wanted]:
                device.arbiter.admit(job_id)
                device.holders.add(job_id)
                admitted.append(device)
        except RefusedError:
            for device in admitted:
                device.arbiter.leave(job_id, 0)
                device.holders.discard(job_id)
            raise

    def reserve(self, job_id: str, uuids: Iterable[str], wanted: Reservation) -> None:
        """Memory on each of these devices. Raises OutOfMemoryError; then nothing changes."""
        devices = [self._get(uuid) for uuid in uuids]
        before = [device.memory.held.get(job_id) for device in devices]
        try:
            for device in devices:
                device.memory.reserve(job_id, wanted)
        except BaseException:
            for device, held in zip(devices, before, strict=True):
                device.memory.release(job_id)
                if held is not None:
                    device.memory.reserve(job_id, held)
            raise

    def free_memory(self, job_id: str, uuids: Iterable[str]) -> None:
        for uuid in uuids:
            self._get(uuid).memory.release(job_id)

    def lease(self, job_id: str, uuids: Iterable[str], earliest_ns: int, duration_ns: int) -> Lease:
        """The next interval in which all these devices work for the job; on none (CPUs only) it starts at once."""
        devices = [self._get(uuid) for uuid in uuids]
        start_ns = max([earliest_ns, *(device.arbiter.free_at_ns() for device in devices)])
        end_ns = start_ns + duration_ns
        for device in devices:
            device.arbiter.occupy(job_id, start_ns, end_ns)
            device.leased_ns += duration_ns
        return Lease(start_ns, end_ns)

    def leave(self, job_id: str, uuids: Iterable[str], now_ns: int) -> None:
        """The job holds nothing any more: neither time nor memory."""
        for uuid in uuids:
            device = self._devices.get(uuid)
            if device is not None:
                before_ns = device.arbiter.free_at_ns()
                device.arbiter.leave(job_id, now_ns)
                device.leased_ns -= max(0, before_ns - device.arbiter.free_at_ns())
                device.memory.release(job_id)
                device.holders.discard(job_id)

    def _get(self, uuid: str) -> ManagedDevice:
        try:
            return self._devices[uuid]
        except KeyError:
            raise RefusedError(f"there is no device {uuid} on this node") from None


def load_inventory(path: Path, node: str) -> list[Device]:
    """The devices in an inventory file. Raises InputError that names the file and the entry."""
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(str(path), f"can't read the inventory: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise InputError(str(path), f"not valid JSON: {error}") from error
    if not isinstance(entries, list):
        raise InputError(str(path), "must hold a list of devices")
    devices = [_device(entry, node, f"{path}: [{number}]") for number, entry in enumerate(entries)]
    for number, device in enumerate(devices):
        if any(device.index == earlier.index for earlier in devices[:number]):
            raise InputError(f"{path}: [{number}]", f"index {device.index} is taken by an entry before it")
    return devices


def _device(entry: object, node: str, place: str) -> Device:
    match entry:
        case {"index": bool()} | {"memory_bytes": bool()}:
            pass
        case {"index": int(index), "gpu_type": str(gpu_type), "memory_bytes": int(memory)} if index >= 0 and memory > 0:
            return Device(node, index, gpu_type, memory)
    raise InputError(place, "must have index (>= 0), gpu_type (a text) and memory_bytes (> 0)")
