"""Keeps emulated time for a local cluster: owns the shared clock and waits by it. One class for each way in which time passes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path

from emulator_runtime.domain.units import NS_PER_S
from emulator_runtime.ipc.poller import Poller
from emulator_runtime.timing.host import monotonic_ns
from emulator_runtime.timing.shared_clock import Mode, SharedClockFile
from emulator_runtime.timing.waiter import Waiter
from emulator_runtime.timing.warp import WarpCoordinator

_PRECISE_NS = 2_000_000
"""The poller's timeouts are whole milliseconds; the rest of a wait is slept precisely."""

_LONGEST_POLL_S = 3600.0
"""The poller's longest timeout is 24 days; a longer wait is repeated."""


class TimeKeeper(ABC):
    """The cluster's clock, which stands at 0 until `run`. `participants` knows which job processes are busy."""

    mode: Mode

    def __init__(self, path: Path, poller: Poller) -> None:
        self.path = path
        self.participants = WarpCoordinator()
        self._poller = poller
        self._waiter = Waiter()
        self._clock = SharedClockFile.create(path, 0.0, self.mode)

    @abstractmethod
    def run(self) -> None:
        """Let emulated time run."""

    def now_ns(self) -> int:
        return self._clock.now_ns()

    def wait(self, until_ns: int | None, happened: Callable[[], bool]) -> None:
        """Serve the poller until `happened()` or until the time `until_ns`."""
        self._serve()
        while not happened():
            now_ns = self.now_ns()
            if until_ns is not None and now_ns >= until_ns:
                return
            self._advance(until_ns, now_ns)
            self._serve()

    def close(self) -> None:
        self._clock.close()

    @abstractmethod
    def _advance(self, until_ns: int | None, now_ns: int) -> None:
        """Advance emulated time, at most to `until_ns`, or wait for a message."""

    def _serve(self) -> None:
        while self._poller.poll(0):
            pass

    def _pass(self, deadline_ns: int | None) -> None:
        """Wait for a message, or by the host's clock until an emulated deadline."""
        wall_ns = None if deadline_ns is None else self._clock.read().wall_at(deadline_ns)
        left_ns = None if wall_ns is None else wall_ns - monotonic_ns()
        if wall_ns is None or left_ns is None:
            self._poller.poll(None)
        elif left_ns > _PRECISE_NS:
            self._poller.poll(min(_LONGEST_POLL_S, (left_ns - _PRECISE_NS) / NS_PER_S))
        elif left_ns > 0 and not self._poller.poll(0):
            self._waiter.wait_until_ns(min(wall_ns, monotonic_ns() + _PRECISE_NS // 4))


class RunningTime(TimeKeeper):
    """Time runs at `speed` emulated seconds per host second; job processes wait for it on their own."""

    mode: Mode = "host"

    def __init__(self, path: Path, poller: Poller, speed: float) -> None:
        super().__init__(path, poller)
        self._speed = speed

    def run(self) -> None:
        self._clock.set_rate(self._speed)

    def _advance(self, until_ns: int | None, now_ns: int) -> None:
        self._pass(until_ns)


class WarpTime(TimeKeeper):
    """Time jumps when every participant waits and a poll without waiting finds nothing.

    What a process sent on a Unix socket before it said that it waits is readable by then, so nothing is in flight. Between
    jumps time runs at `speed` emulated seconds per host second: at 1 real work takes its time; at 0.1 it takes a tenth, so
    that a host that is busy with other work distorts a tenth as much, without a longer run. `wake` tells a participant that
    its deadline has come.
    """

    mode: Mode = "warp"

    def __init__(self, path: Path, poller: Poller, speed: float, wake: Callable[[str], None]) -> None:
        super().__init__(path, poller)
        self._speed = speed
        self._wake = wake

    def run(self) -> None:
        self._clock.set_rate(self._speed)

    def _advance(self, until_ns: int | None, now_ns: int) -> None:
        if self._wake_due(now_ns):
            return
        deadlines = [d for d in (until_ns, self.participants.earliest_ns()) if d is not None]
        deadline_ns = min(deadlines, default=None)
        if deadline_ns is not None and self.participants.all_wait:
            self._clock.jump_to_ns(deadline_ns)
        else:
            self._pass(deadline_ns)

    def _wake_due(self, now_ns: int) -> bool:
        due = self.participants.due(now_ns)
        for name in due:
            self._wake(name)
        return bool(due)
