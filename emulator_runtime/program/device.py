"""Devices of a program, with streams and events as CUDA has them: work is launched without waiting for it, and a wait takes
exactly as long as the emulated device would.

A device does the program's work in the order in which it was launched, one piece after the other. Work on a device of the
process's own is timed at once. Work on a shared device is collected for up to CHUNK_NS of device time, or until something waits
for it; then it is demanded from the sharing manager, and the next chunk is demanded when this one is answered.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from emulator_runtime.domain.errors import EmuGpuError, InputError
from emulator_runtime.domain.lease import Lease
from emulator_runtime.domain.mig import rate_milli
from emulator_runtime.domain.units import to_ns, to_s
from emulator_runtime.ipc.client import AttachedDevice, ManagerClient
from emulator_runtime.timing.own_time import OwnTime

CHUNK_NS = 10_000_000
"""Work for a shared device is demanded in chunks of about this length (device time)."""


@dataclass(slots=True)
class _Work:
    """`work_ns` of the device, not before `ready_ns`. `end_ns`: None until the manager has answered."""

    ready_ns: int
    work_ns: int
    end_ns: int | None = None


class Memory:
    """Memory of a device, until `free` is called or the process ends."""

    def __init__(self, device: Device, nbytes: int) -> None:
        self._device, self.nbytes = device, nbytes

    def free(self) -> None:
        """Give it back. A second call has no effect."""
        self._device._reserve(-self.nbytes)
        self.nbytes = 0


class Event:
    """A moment in a stream: the end of what had been launched there before."""

    def __init__(self, device: Device, work: _Work | None) -> None:
        self._device, self._work = device, work

    def synchronize(self) -> None:
        """Wait until the work before the event has ended."""
        self._device._time.wait_until_ns(self._end_ns())

    def query(self) -> bool:
        """Whether the work before the event has ended. Doesn't wait for it."""
        with self._device._time.call() as now_ns:
            return self._work is None or self._device._ended(self._work, now_ns)

    def elapsed_s(self, end: Event) -> float:
        """Seconds from this event to another one. Waits for what decides that."""
        return to_s(end._end_ns() - self._end_ns())

    def _end_ns(self) -> int:
        return 0 if self._work is None else self._device._end_ns(self._work)


class Stream:
    """Work of a device, in order. For an event of another stream, see `wait`."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._last: _Work | None = None
        self._after: list[Event] = []

    def launch(self, seconds: float) -> None:
        """Let the device work for so long, a MIG instance longer by its part of the GPU; returns at once. Raises InputError for a
        time that is negative or too long, and the errors of the device (DeviceLostError, for example), as CUDA does, also those
        of earlier work."""
        work_ns = to_ns(seconds) if seconds >= 0 else -1
        if work_ns < 0:
            raise InputError("seconds", f"device work can't take {seconds} s; give 0 or more")
        with self._device._time.call() as now_ns:
            ready_ns = max([now_ns, *(event._end_ns() for event in self._after)])
            self._after.clear()
            self._last = self._device._launch(_Work(ready_ns, work_ns * 1000 // rate_milli(self._device.name)))

    def record(self) -> Event:
        """An event behind all that has been launched in this stream."""
        return Event(self._device, self._last)

    def wait(self, event: Event) -> None:
        """What is launched from now on begins after the event, which may be of another stream or device. Returns at once."""
        self._after.append(event)

    def synchronize(self) -> None:
        """Wait until all that was launched in this stream has ended."""
        self.record().synchronize()


@dataclass(slots=True)
class _Chunk:
    """Work for which one demand is made."""

    number: int
    works: list[_Work] = field(default_factory=list)

    @property
    def work_ns(self) -> int:
        return sum(work.work_ns for work in self.works)

    @property
    def ready_ns(self) -> int:
        return self.works[0].ready_ns

    def takes(self, work: _Work) -> bool:
        """Whether this work can follow without a gap and within the length of a chunk."""
        return not self.works or (self.work_ns < CHUNK_NS and work.ready_ns <= self.ready_ns + self.work_ns)

    def answer(self, lease: Lease) -> None:
        """Divide the piece of time among the works, in proportion."""
        done_ns, total_ns = 0, max(1, self.work_ns)
        for work in self.works:
            done_ns += work.work_ns
            work.end_ns = (
                lease.start_ns + (lease.end_ns - lease.start_ns) * done_ns // total_ns if done_ns else lease.start_ns
            )


class Device:
    """An emulated GPU that this process uses. For any number of threads; not for a process that was forked.

    `index`: its place among the container's devices. `uuid`, `name` (the GPU type) and `memory_bytes` describe it.
    """

    def __init__(self, client: ManagerClient, attached: AttachedDevice, time: OwnTime, index: int) -> None:
        self._client, self._time = client, time
        self.index, self.uuid, self.name = index, attached.uuid, attached.gpu_type
        self.memory_bytes = attached.memory_bytes
        self._lock = threading.RLock()
        self._reserved_bytes = 0
        self._demanded: _Chunk | None = None
        self._collected = _Chunk(0)
        self._last: _Work | None = None

    def stream(self) -> Stream:
        """A new stream."""
        return Stream(self)

    def allocate(self, nbytes: int) -> Memory:
        """Reserve memory. Raises OutOfMemoryError, which says what is free and who holds the rest."""
        if nbytes < 0:
            raise InputError("nbytes", f"can't allocate {nbytes} bytes; give 0 or more")
        self._reserve(nbytes)
        return Memory(self, nbytes)

    @property
    def allocated_bytes(self) -> int:
        """Memory of this process on the device."""
        return self._reserved_bytes

    def synchronize(self) -> None:
        """Wait until the device has done all that was launched."""
        with self._lock:
            last = self._last
        Event(self, last).synchronize()

    @property
    def stopping(self) -> bool:
        """Whether the job has been asked to end its run."""
        with self._lock:
            return self._client.stopping

    def close(self) -> None:
        """Give up the device. Its memory is free, and what it hasn't done isn't done."""
        with self._lock:
            self._client.close()

    def _reserve(self, nbytes: int) -> None:
        with self._lock:
            wanted = self._reserved_bytes + nbytes
            self._client.reserve(wanted, wanted)
            self._reserved_bytes = wanted

    def _launch(self, work: _Work) -> _Work:
        with self._lock:
            if not self._collected.takes(work):
                self._demand()
            self._collected.works.append(work)
            self._last = work
            if not self._client.demands or self._collected.work_ns >= CHUNK_NS:
                self._demand()
            return work

    def _demand(self) -> None:
        """Demand time for what has been collected. There is one demand at a time: this waits for the answer to the one before,
        as a real device's launch queue does when it is full."""
        self._await_answer()
        chunk = self._collected
        self._collected = _Chunk(chunk.number + 1)
        self._demanded = chunk
        if self._client.demands:
            self._client.demand(chunk.number, chunk.work_ns, chunk.ready_ns)
        else:
            self._await_answer()

    def _await_answer(self) -> None:
        chunk = self._demanded
        if chunk is not None:
            chunk.answer(self._client.lease(chunk.number, chunk.work_ns, chunk.ready_ns))
            self._demanded = None

    def _end_ns(self, work: _Work) -> int:
        """When the work ends: waits for the manager's answer, not for the time."""
        with self._lock:
            if work.end_ns is None and any(work is each for each in self._collected.works):
                self._demand()
            if work.end_ns is None:
                self._await_answer()
            if work.end_ns is None:
                raise EmuGpuError("the work was lost with an error of the device before")
            return work.end_ns

    def _ended(self, work: _Work, now_ns: int) -> bool:
        """Whether the work has ended, as far as the manager has answered."""
        with self._lock:
            if self._demanded is not None and self._client.answered(self._demanded.number):
                self._await_answer()
            if self._demanded is None and any(work is each for each in self._collected.works):
                self._demand()
            return work.end_ns is not None and work.end_ns <= now_ns
