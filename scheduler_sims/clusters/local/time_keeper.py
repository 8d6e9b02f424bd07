"""Keeps emulated time for a local cluster: owns the shared clock, waits by it, and in warp moves it.

In warp the clock jumps when every participant waits and a poll without waiting finds nothing: what a process sent on a
Unix socket before it said that it waits is readable by then, so nothing is in flight. Otherwise the participants wait by
themselves and nobody is asked.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from emulator_runtime.domain.units import NS_PER_S
from emulator_runtime.ipc.poller import Poller
from emulator_runtime.timing.host import monotonic_ns
from emulator_runtime.timing.shared_clock import SharedClockFile
from emulator_runtime.timing.waiter import Waiter
from emulator_runtime.timing.warp import WarpCoordinator

_PRECISE_NS = 2_000_000
"""The poller's timeouts are whole milliseconds; the rest of a wait is slept precisely."""


class TimeKeeper:
    """The cluster's clock, which stands at 0 until `run`. `wake` tells a participant that its deadline has come."""

    def __init__(self, path: Path, poller: Poller, wake: Callable[[str], None], *, warp: bool) -> None:
        self.path = path
        self.participants = WarpCoordinator()
        self._poller = poller
        self._wake = wake
        self._warp = warp
        self._waiter = Waiter()
        self._clock = SharedClockFile.create(path, 0.0, "warp" if warp else "host")

    def run(self, speed: float) -> None:
        """Let time pass: `speed` emulated seconds per host second; in warp 1, between jumps."""
        self._clock.set_rate(1.0 if self._warp else speed)

    def now_ns(self) -> int:
        return self._clock.now_ns()

    def wait(self, until_ns: int | None, happened: Callable[[], bool]) -> None:
        """Serve the poller until something has `happened` or it is `until_ns`."""
        self._serve()
        while not happened():
            now_ns = self.now_ns()
            if until_ns is not None and now_ns >= until_ns:
                return
            if not (self._warp and self._move(until_ns, now_ns)):
                self._pass(self._next_deadline(until_ns))
            self._serve()

    def close(self) -> None:
        self._clock.close()

    def _serve(self) -> None:
        while self._poller.poll(0):
            pass

    def _next_deadline(self, until_ns: int | None) -> int | None:
        deadlines = [d for d in (until_ns, self.participants.earliest_ns()) if d is not None]
        return min(deadlines) if deadlines else None

    def _move(self, until_ns: int | None, now_ns: int) -> bool:
        """Wake who is due; if nobody is and all wait, jump to the next deadline. False: there is nothing to do but wait."""
        due = self.participants.due(now_ns)
        for name in due:
            self._wake(name)
        if due:
            return True
        deadline_ns = self._next_deadline(until_ns)
        if not self.participants.all_wait or deadline_ns is None:
            return False
        self._clock.jump_to_ns(deadline_ns)
        return True

    def _pass(self, deadline_ns: int | None) -> None:
        """Wait for a message, or until an emulated deadline by the host's clock."""
        wall_ns = None if deadline_ns is None else self._clock.read().wall_at(deadline_ns)
        left_ns = None if wall_ns is None else wall_ns - monotonic_ns()
        if wall_ns is None or left_ns is None:
            self._poller.poll(None)
        elif left_ns > _PRECISE_NS:
            self._poller.poll((left_ns - _PRECISE_NS) / NS_PER_S)
        elif left_ns > 0 and not self._poller.poll(0):
            self._waiter.wait_until_ns(min(wall_ns, monotonic_ns() + _PRECISE_NS // 4))
