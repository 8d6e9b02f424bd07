"""Device streams: the caller issues work and goes on, the device executes it back to back, `synchronize` waits for its end.

So 60 ms of CPU work beside 100 ms of device work make a step of 100 ms, as on a real GPU (CUDA streams work like this).

The emulator must not slow the job down. The stream keeps the job's own time, which is the clock minus the lag: a wait that
ended late, and what a call of the stream itself takes (a request to the sharing manager), are taken to have taken no time.
The lag stays until a wait is long enough to make up for it. CPU time between two calls is the job's own and always counts.
"""

from __future__ import annotations

from typing import Protocol

from emulator_runtime.domain.clock import Clock
from emulator_runtime.domain.errors import InputError
from emulator_runtime.domain.lease import Lease
from emulator_runtime.timing.lag import LagHistogram


class LeaseSource(Protocol):
    """Who grants device time: OwnDevice in the process, or the sharing manager behind its client."""

    def lease(self, duration_ns: int, issue_ns: int) -> Lease:
        """Device time for work of `duration_ns` that was issued at `issue_ns`; leases of one stream come in order."""
        ...


class OwnDevice:
    """A device that nobody else uses: work starts when it is issued or when the work before it ends."""

    def __init__(self) -> None:
        self._free_ns: int | None = None

    def lease(self, duration_ns: int, issue_ns: int) -> Lease:
        start = issue_ns if self._free_ns is None else max(issue_ns, self._free_ns)
        self._free_ns = start + duration_ns
        return Lease(start, self._free_ns)


class DeviceStream:
    """One in-order queue of device work, for one thread. All times are emulated nanoseconds.

    The lag at every synchronisation goes into `lags`, which several streams may share.
    """

    def __init__(self, clock: Clock, device: LeaseSource, lags: LagHistogram | None = None) -> None:
        self._clock = clock
        self._device = device
        self.lags = LagHistogram() if lags is None else lags
        self._end_ns: int | None = None
        self._lag_ns = 0

    @property
    def lag_ns(self) -> int:
        """How far the clock is ahead of the job's own time: what no wait has made up for yet."""
        return self._lag_ns

    def issue(self, duration_ns: int, issue_ns: int | None = None) -> Lease:
        """Give work of `duration_ns` to the device and go on; the lease says when it starts and ends.

        `issue_ns` None: issued now, in the job's own time. Raises InputError for a negative duration, and what the device
        raises.
        """
        if duration_ns < 0:
            raise InputError("duration_ns", f"device work can't take {duration_ns} ns; give 0 or more")
        entered = self._clock.now_ns()
        lease = self._device.lease(duration_ns, entered - self._lag_ns if issue_ns is None else issue_ns)
        self._end_ns = lease.end_ns
        self._lag_ns += self._clock.now_ns() - entered
        return lease

    def synchronize(self) -> int:
        """Wait until all issued work has ended; the answer is the lag that remains. Raises LateError on a strict clock."""
        end, now = self._end_ns, self._clock.now_ns()
        if end is None:
            return self._lag_ns
        resumed = max(end, now - self._lag_ns)  # in the job's own time; the device may have been done before it asked
        if end > now:
            now = end + self._clock.wait_until_ns(end)
        self.lags.add(now - resumed)
        self._lag_ns = self._clock.now_ns() - resumed
        return self._lag_ns

    def step(self, duration_ns: int) -> Lease:
        """Issue and synchronise: device work that the caller waits for."""
        lease = self.issue(duration_ns)
        self.synchronize()
        return lease
