"""A training run: attach, reserve memory, run the steps on the emulated device, report; a stop takes effect between two steps.

A late start (the process wasn't ready at `begin_ns`) is real and isn't compensated.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from emulator_runtime.domain.clock import Clock
from emulator_runtime.domain.errors import EmuGpuError, InputError
from emulator_runtime.domain.lease import Lease
from emulator_runtime.domain.sensitivity import HostShare
from emulator_runtime.domain.step import StepTimes
from emulator_runtime.profiles.table import ProfileTable
from emulator_runtime.timing.lag import LagHistogram
from emulator_runtime.workloads.checkpoint import Checkpoint
from emulator_runtime.workloads.order import RunOrder
from emulator_runtime.workloads.ranks.group import Crossing
from emulator_runtime.workloads.step_loop import DeviceTime, Ended, StepLoop


class Manager(DeviceTime, Protocol):
    """The methods of the sharing manager's client (ipc.client.ManagerClient) that a run uses."""

    def attach(self, steps_done: int) -> None: ...
    def reserve(self, persistent_bytes: int, peak_bytes: int) -> None: ...
    def release(self, steps_done: int) -> None: ...
    def finish(self, steps_done: int) -> None: ...
    def fail(self, reason: str) -> None: ...


@dataclass(slots=True)
class Outcome:
    """How a run ended: finished, stopped or failed (with a reason). `steps_run`: steps of this run only."""

    kind: str
    steps_done: int
    steps_run: int
    reason: str = ""


class TrainingRun:
    """One run of a job. `lags`: how late the waits for the ends of steps were; `start_lag_ns`: how late the run began."""

    def __init__(
        self,
        order: RunOrder,
        clock: Clock,
        manager: Manager,
        *,
        new_share: Callable[[], HostShare | None] = lambda: None,
    ) -> None:
        self._order = order
        self._clock = clock
        self._manager = manager
        self._new_share = new_share
        self._profiles: ProfileTable | None = None
        self._checkpoint = Checkpoint(order.checkpoint)
        self.lags = LagHistogram()
        self.start_lag_ns = 0
        self._first = self._done = 0

    def run(self) -> Outcome:
        """Run until the last step, a stop, or an error for which a retry doesn't help. Reports the outcome to the manager."""
        try:
            return self._run()
        except EmuGpuError as error:
            if error.retry_helps:
                raise
            with contextlib.suppress(EmuGpuError):  # report the first error, even if the manager can't be reached
                self._manager.fail(str(error))
            return Outcome("failed", 0, self._done - self._first, str(error))

    def _run(self) -> Outcome:
        first = self._first_step()
        profiles = self._profiles = self._order.profile_table()
        times = self._order.step_times(profiles)
        self._manager.attach(first)
        persistent_bytes, peak_bytes = self._order.memory_bytes(profiles)
        if peak_bytes:
            self._manager.reserve(persistent_bytes, peak_bytes)
        self._first = self._done = first
        ended = self._steps(times, first, self._begin())
        done = ended.steps_done
        if not ended.stopped_by:
            self._manager.finish(done)
            return Outcome("finished", done, done - first)
        self._clock.wait_until_ns(ended.end_ns + self._order.release_ns)
        self._checkpoint.save(self._order.samples_done(done))
        self._manager.release(done)
        return Outcome("stopped", done, done - first)

    def _first_step(self) -> int:
        """The first step of this run, from the checkpoint. Raises InputError for the checkpoint of another job, which is longer,
        or of whose samples this run would skip or repeat some."""
        order, samples_done = self._order, self._checkpoint.load()
        ahead, part = divmod(samples_done - order.first_sample, order.step_samples)
        first = order.first_step + ahead
        if ahead < 0 or part:
            problem = (
                f"{samples_done} samples are done, but step {order.first_step} begins with sample {order.first_sample}"
            )
            problem += f" and each step has {order.step_samples}; remove it or correct the order"
            raise InputError(str(order.checkpoint), problem)
        if first > order.steps:
            problem = f"{first} steps are done, but the job has {order.steps}; remove it or correct the order"
            raise InputError(str(order.checkpoint), problem)
        return first

    def _begin(self) -> int:
        """When the first step begins: as ordered, or now if that time has passed."""
        now_ns = self._clock.now_ns()
        self.start_lag_ns = max(0, now_ns - self._order.begin_ns)
        if now_ns < self._order.begin_ns:
            self._clock.wait_until_ns(self._order.begin_ns)
        return max(now_ns, self._order.begin_ns)

    def _steps(self, times: StepTimes, first: int, begin_ns: int) -> Ended:
        loop = StepLoop(
            self._manager,
            self._clock.wait_until_ns,
            times_now=self._times_now,
            stepped=self._stepped,
            lags=self.lags,
        )
        return loop.run(self._times_now(first, times), first, Crossing(begin_ns))

    def _stepped(self, _lease: Lease, _times: StepTimes) -> None:
        self._done += 1

    def _times_now(self, _step: int, times: StepTimes) -> StepTimes:
        share = self._new_share()
        return times if share is None else self._order.step_times(self._profiles, share)
