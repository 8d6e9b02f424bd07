"""Device streams: the caller issues work and continues; the device runs it in order; `synchronize` waits until it ends.

CPU work and device work overlap as with CUDA streams: 60 ms of CPU work during 100 ms of device work make a step of 100 ms.

The overhead of the emulator must not slow the job down. Therefore the stream keeps the job's own time: clock - lag. The lag
is how late a wait ended, plus the time that a call of the stream took (a request to the sharing manager). The next wait
that is long enough removes it. CPU time between two calls belongs to the job and always counts.
"""

from __future__ import annotations

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


class DeviceStream:
    """A queue of device work that runs in order; for one thread. All times are emulated nanoseconds.

    Each `synchronize` adds its lag to `lags`, a histogram that several streams may share.
    """

    def __init__(self, clock: Clock, device: LeaseSource, lags: LagHistogram | None = None) -> None:
        self._clock = clock
        self._device = device
        self.lags = LagHistogram() if lags is None else lags
        self._end_ns: int | None = None
        self._lag_ns = 0

    @property
    def lag_ns(self) -> int:
        """How far the clock is ahead of the job's own time: the lag that no wait has removed yet."""
        return self._lag_ns

    def issue(self, duration_ns: int, issue_ns: int | None = None) -> Lease:
        """Issue work of `duration_ns` to the device without waiting for it; the lease says when it starts and ends.

        `issue_ns`: None means now, in the job's own time. Raises InputError for a negative duration, and the errors of
        the device.
        """
        if duration_ns < 0:
            raise InputError("duration_ns", f"device work can't take {duration_ns} ns; give 0 or more")
        entered = self._clock.now_ns()
        lease = self._device.lease(duration_ns, entered - self._lag_ns if issue_ns is None else issue_ns)
        self._end_ns = lease.end_ns
        self._lag_ns += self._clock.now_ns() - entered
        return lease

    def synchronize(self) -> int:
        """Wait until all issued work has ended. Returns the remaining lag. Raises LateError on a strict clock."""
        end, now = self._end_ns, self._clock.now_ns()
        if end is None:
            return self._lag_ns
        resumed = max(end, now - self._lag_ns)  # in the job's own time; the work may have ended before this call
        if end > now:
            now = end + self._clock.wait_until_ns(end)
        self.lags.add(now - resumed)
        self._lag_ns = self._clock.now_ns() - resumed
        return self._lag_ns

    def step(self, duration_ns: int) -> Lease:
        """Issue work and wait for its end."""
        lease = self.issue(duration_ns)
        self.synchronize()
        return lease
