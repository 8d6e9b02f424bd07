"""Device streams: the caller issues work and continues; the device runs it in order; `synchronize` waits until it ends.

CPU work and device work overlap as with CUDA streams: 60 ms of CPU work during 100 ms of device work make a step of 100 ms.

The overhead of the emulator must not slow the job down. Therefore the stream keeps the job's own time: clock - lag. The lag
is how late a wait ended, plus the time that a call of the stream took (a request to the sharing manager). The next wait
that is long enough removes it. CPU time between two calls belongs to the job and always counts.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Protocol

from emulator_runtime.domain.clock import Clock
from emulator_runtime.domain.errors import InputError
from emulator_runtime.domain.lease import Lease
from emulator_runtime.timing.lag import LagHistogram


class LeaseSource(Protocol):
    """Grants device time: OwnDevice within the process, or the client of the sharing manager."""

    def lease(self, duration_ns: int, issue_ns: int) -> Lease:
        """A lease for work of `duration_ns` that was issued at `issue_ns`. The leases of one stream are in order."""
        ...


class OwnDevice:
    """A device that no other job uses: work starts when it is issued or when the previous work ends."""

    def __init__(self) -> None:
        self._free_ns: int | None = None

    def lease(self, duration_ns: int, issue_ns: int) -> Lease:
        start = issue_ns if self._free_ns is None else max(issue_ns, self._free_ns)
        self._free_ns = start + duration_ns
        return Lease(start, self._free_ns)


class OwnTime(threading.local):
    """The time of a program whose device is emulated: the clock without the lag of its waits and of the emulator's own calls. CPU
    time between two calls belongs to the program and always counts. Each thread has its own.

    Each wait adds its lag to `lags`.
    """

    def __init__(self, clock: Clock, lags: LagHistogram | None = None) -> None:
        self._clock = clock
        self.lags = LagHistogram() if lags is None else lags
        self.lag_ns = 0

    @contextlib.contextmanager
    def call(self) -> Iterator[int]:
        """A call of the emulator, which takes none of the program's time. Gives the program's time."""
        entered = self._clock.now_ns()
        yield entered - self.lag_ns
        self.lag_ns += self._clock.now_ns() - entered

    def wait_until_ns(self, end_ns: int) -> None:
        """Wait until work ends that may have ended already. Raises LateError on a strict clock."""
        now = self._clock.now_ns()
        resumed = max(end_ns, now - self.lag_ns)
        if end_ns > now:
            now = end_ns + self._clock.wait_until_ns(end_ns)
        self.lags.add(now - resumed)
        self.lag_ns = self._clock.now_ns() - resumed


class DeviceStream:
    """A queue of device work that runs in order; for one thread. All times are emulated nanoseconds.

    Each `synchronize` adds its lag to `lags`, a histogram that several streams may share.
    """

    def __init__(self, clock: Clock, device: LeaseSource, lags: LagHistogram | None = None) -> None:
        self._time = OwnTime(clock, lags)
        self._device = device
        self._end_ns: int | None = None

    @property
    def lags(self) -> LagHistogram:
        """The lag of each wait."""
        return self._time.lags

    @property
    def lag_ns(self) -> int:
        """How far the clock is ahead of the job's own time: the lag that no wait has removed yet."""
        return self._time.lag_ns

    def issue(self, duration_ns: int, issue_ns: int | None = None) -> Lease:
        """Issue work of `duration_ns` to the device without waiting for it; the lease says when it starts and ends.

        `issue_ns`: None means now, in the job's own time. Raises InputError for a negative duration, and the errors of
        the device.
        """
        if duration_ns < 0:
            raise InputError("duration_ns", f"device work can't take {duration_ns} ns; give 0 or more")
        with self._time.call() as now_ns:
            lease = self._device.lease(duration_ns, now_ns if issue_ns is None else issue_ns)
            self._end_ns = lease.end_ns
            return lease

    def synchronize(self) -> int:
        """Wait until all issued work has ended. Returns the remaining lag. Raises LateError on a strict clock."""
        if self._end_ns is not None:
            self._time.wait_until_ns(self._end_ns)
        return self.lag_ns

    def step(self, duration_ns: int) -> Lease:
        """Issue work and wait for its end."""
        lease = self.issue(duration_ns)
        self.synchronize()
        return lease
