"""HostClock follows the host's time; ManualClock is for tests and moves only when it is advanced. WarpClock: ipc/warp.py."""

from __future__ import annotations

from collections.abc import Callable

from emulator_runtime.domain.errors import LateError
from emulator_runtime.timing.anchors import Anchors, FixedAnchors, TimeSource
from emulator_runtime.timing.host import monotonic_ns
from emulator_runtime.timing.waiter import Waiter

NOTICE_NS = 20_000_000
"""The longest wall time until a waiting clock notices a changed rate or a jump. One check costs 30 us of CPU time."""


class HostClock:
    """Emulated time that follows the host's time, at any rate. Use one object per thread.

    `strict_ns`: a wait with a larger lag (emulated nanoseconds) raises LateError; None: no wait raises it.
    """

    def __init__(
        self,
        source: TimeSource,
        waiter: Waiter | None = None,
        *,
        strict_ns: int | None = None,
        notice_ns: int = NOTICE_NS,
    ) -> None:
        self._source = source
        self._waiter = waiter or Waiter()
        self._strict_ns = strict_ns
        self._notice_ns = notice_ns

    @classmethod
    def of_host(cls) -> HostClock:
        """The host's monotonic clock at rate 1. All processes of the host see the same time."""
        return cls(FixedAnchors(Anchors(0, 0, 1.0), monotonic_ns))

    def now_ns(self) -> int:
        """The emulated time now."""
        anchors, wall = self._source.sample()
        return anchors.emulated_at(wall)

    @property
    def rate(self) -> float:
        """Emulated per host time; 0 while the clock is paused."""
        return self._source.sample()[0].rate

    def host_ns(self, deadline_ns: int) -> int | None:
        """When `deadline_ns` comes by the host's monotonic clock; None while the clock is paused."""
        return self._source.sample()[0].wall_at(deadline_ns)

    def wait_until_ns(self, deadline_ns: int) -> int:
        """Wait until `deadline_ns` and return the lag in emulated nanoseconds, also for a deadline that is already past.

        While the clock is paused, it waits until the clock runs again. Raises LateError if the lag is above `strict_ns`.
        """
        while True:
            anchors, wall = self._source.sample()
            lag = anchors.emulated_at(wall) - deadline_ns
            if lag >= 0:
                return self._checked(lag, deadline_ns)
            target = anchors.wall_at(deadline_ns)
            if target is None:
                self._waiter.doze(self._notice_ns)
            elif (
                target - wall > self._notice_ns
            ):  # end the sleep half a period early: the precise wait must start in time even if the sleep ends late
                self._waiter.doze(min(self._notice_ns, target - wall - self._notice_ns // 2))
            else:
                self._waiter.wait_until_ns(target)

    def _checked(self, lag_ns: int, deadline_ns: int) -> int:
        if self._strict_ns is not None and lag_ns > self._strict_ns:
            raise LateError(
                f"the wait until {deadline_ns} ns ended {lag_ns} ns late in emulated time (limit {self._strict_ns} ns); "
                "run fewer processes per core, lower the clock's rate or raise the limit"
            )
        return lag_ns


class ManualClock:
    """A clock for tests: time moves only when it is advanced, and a wait advances it at once. Not thread-safe.

    `waits` lists the deadlines of all waits. `oversleep` returns the lag of the next wait whose deadline isn't past yet.
    """

    def __init__(self, now_ns: int = 0, oversleep: Callable[[], int] = lambda: 0) -> None:
        self._now_ns = now_ns
        self._oversleep = oversleep
        self.waits: list[int] = []

    def now_ns(self) -> int:
        """The current time."""
        return self._now_ns

    def wait_until_ns(self, deadline_ns: int) -> int:
        """Advance to `deadline_ns` plus the oversleep, unless `deadline_ns` is past. Returns the lag."""
        self.waits.append(deadline_ns)
        if deadline_ns > self._now_ns:
            self._now_ns = deadline_ns + self._oversleep()
        return self._now_ns - deadline_ns

    def advance_ns(self, duration_ns: int) -> None:
        """Advance the time by `duration_ns`. Raises ValueError if it is negative."""
        if duration_ns < 0:
            raise ValueError(f"a clock doesn't go back: advance_ns({duration_ns})")
        self._now_ns += duration_ns

    def advance_to_ns(self, moment_ns: int) -> None:
        """Advance the time to `moment_ns`. Raises ValueError if that is in the past."""
        self.advance_ns(moment_ns - self._now_ns)
