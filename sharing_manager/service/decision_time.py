"""Says up to which time the manager decides who is served next on shared devices: one class for each way in which time passes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from emulator_runtime.ipc.frames import Message
from emulator_runtime.ipc.warp import wait_message
from emulator_runtime.timing.clocks import HostClock
from emulator_runtime.timing.host import monotonic_ns
from emulator_runtime.timing.warp import NEVER_NS
from sharing_manager.core.manager import Manager
from sharing_manager.grants.grant import GrantState
from sharing_manager.service.job_service import JobService

RETURN_NS = 250_000_000
"""How long jobs may take to connect again after a restart (host nanoseconds): more than the longest pause between two attempts,
in ipc/client.py and in cuda/src/core/manager.c."""


class DecisionTime(Protocol):
    """Part of the daemon's loop."""

    def due_ns(self) -> int | None:
        """When `turn` must be called next, by the host's monotonic clock."""
        ...

    def turn(self) -> None:
        """Called after each poll."""
        ...


class _Returning:
    """The jobs that share something and were attached before a restart: nothing is decided before they are back, or for
    RETURN_NS. Otherwise the first one to come back would get the device, even if the mode prefers another."""

    def __init__(self, manager: Manager, jobs: JobService) -> None:
        self._jobs = jobs
        attached = (grant for grant in manager.grants() if grant.state is GrantState.ATTACHED)
        self._away = {grant.digest for grant in attached if manager.arbitrates(grant)}
        self.until_ns = monotonic_ns() + RETURN_NS

    @property
    def awaited(self) -> bool:
        if self._away and (monotonic_ns() >= self.until_ns or self._away <= self._jobs.attached):
            self._away.clear()
        return bool(self._away)


class RunningDecisions:
    """Time runs: what is due by now is decided now."""

    def __init__(self, manager: Manager, jobs: JobService, clock: HostClock) -> None:
        self._manager, self._jobs, self._clock = manager, jobs, clock
        self._returning = _Returning(manager, jobs)

    def due_ns(self) -> int | None:
        if self._returning.awaited:
            return self._returning.until_ns
        next_ns = self._manager.next_decision_ns()
        return None if next_ns is None else self._clock.host_ns(next_ns)

    def turn(self) -> None:
        next_ns = self._manager.next_decision_ns()
        if next_ns is None or self._returning.awaited:
            return
        if next_ns <= (now_ns := self._clock.now_ns()):
            self._jobs.decide(now_ns)


class WarpDecisions:
    """Time jumps when all participants wait, and the manager is one of them: it decides what is due when the clock's owner wakes
    it, and reports until when it waits (timing/warp.py). `send` sends the owner a message."""

    def __init__(self, manager: Manager, jobs: JobService, send: Callable[[Message], None]) -> None:
        self._manager, self._jobs, self._send = manager, jobs, send
        self._returning = _Returning(manager, jobs)
        jobs.counts_messages = True
        self._reported: tuple[int, int] | None = None
        """Deadline, and `handled`."""
        self.handled = 0
        """Number of messages of the owner that were handled."""

    def due_ns(self) -> int | None:
        if self._returning.awaited:
            return self._returning.until_ns
        return monotonic_ns() if self._reported is None else None

    def wake(self) -> None:
        """The time of the last report has come, all other participants wait, and no message is under way. Later decisions must
        wait: jobs react to these."""
        if self._reported is not None:
            self._jobs.decide(min(self._reported[0], self._manager.now_ns()))

    def repeat(self) -> None:
        """The owner has connected again, and must get the next report even if it equals the last one."""
        self._reported = None
        self._jobs.repeat_counts()

    def turn(self) -> None:
        if self._returning.awaited:
            return  # not to be woken yet
        next_ns = self._manager.next_decision_ns()
        report, frames = (NEVER_NS if next_ns is None else next_ns, self.handled), self._jobs.changed_counts()
        if frames or report != self._reported:
            self._reported = report
            self._send(wait_message(*report, frames))
