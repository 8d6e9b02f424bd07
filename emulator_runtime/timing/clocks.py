"""Clocks: HostClock moves with the host's time, ManualClock only when a test says so. (WarpClock is in ipc/warp.py.)"""

from __future__ import annotations

from collections.abc import Callable

from emulator_runtime.domain.errors import LateError
from emulator_runtime.timing.anchors import Anchors, FixedAnchors, TimeSource, checked_rate
from emulator_runtime.timing.host import monotonic_ns
from emulator_runtime.timing.waiter import Waiter

NOTICE_NS = 20_000_000
"""How soon a waiter notices that the rate has changed or time has jumped, in wall time. A look costs 30 us of CPU time."""


class HostClock:
    """Emulated time that follows the host's: wall time at rate 1, scaled at any other. One object per thread.

    `strict_ns`: the lag in emulated nanoseconds above which a wait raises LateError; None never raises.
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
        """The host's monotonic clock as it is, the same for all processes of the host."""
        return cls(FixedAnchors(Anchors(0, 0, 1.0), monotonic_ns))

    @classmethod
    def starting_now(
        cls, rate: float = 1.0, waiter: Waiter | None = None, *, strict_ns: int | None = None
    ) -> HostClock:
        """A clock of this process alone that stands at 0 now and runs at `rate` for good."""
        waiter = waiter or Waiter()
        return cls(FixedAnchors(Anchors(waiter.now(), 0, checked_rate(rate)), waiter.now), waiter, strict_ns=strict_ns)

    def now_ns(self) -> int:
        """The emulated time now."""
        anchors, wall = self._source.sample()
        return anchors.emulated_at(wall)

    def wait_until_ns(self, deadline_ns: int) -> int:
        """Return at `deadline_ns` or later; the answer is the lag in emulated nanoseconds, also for one already past.

        A paused clock waits until somebody lets it go on. Raises LateError above `strict_ns`.
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
            ):  # leave half a notice for the precise wait, however late the doze ends
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
    """Time for tests: it stands still until it is advanced, and a wait advances it at once. Not for several threads.

    `waits` lists the deadlines asked for; `oversleep` gives the lag of the next wait that has to wait at all.
    """

    def __init__(self, now_ns: int = 0, oversleep: Callable[[], int] = lambda: 0) -> None:
        self._now_ns = now_ns
        self._oversleep = oversleep
        self.waits: list[int] = []

    def now_ns(self) -> int:
        """The time that was set last."""
        return self._now_ns

    def wait_until_ns(self, deadline_ns: int) -> int:
        """Jump to `deadline_ns` plus the oversleep if that is ahead; the answer is the lag."""
        self.waits.append(deadline_ns)
        if deadline_ns > self._now_ns:
            self._now_ns = deadline_ns + self._oversleep()
        return self._now_ns - deadline_ns

    def advance_ns(self, duration_ns: int) -> None:
        """Let `duration_ns` pass. Raises ValueError for a negative one."""
        if duration_ns < 0:
            raise ValueError(f"a clock doesn't go back: advance_ns({duration_ns})")
        self._now_ns += duration_ns

    def advance_to_ns(self, moment_ns: int) -> None:
        """Let time pass until `moment_ns`. Raises ValueError where that is in the past."""
        self.advance_ns(moment_ns - self._now_ns)
