"""The steps of a training run on emulated devices, on a local cluster and in a pod alike.

The training program itself is emulated, too, so it has a time of its own that moves from deadline to deadline: a step is
issued when the previous step has ended on all ranks and its input is ready, not when this process wakes up. So delays of the
emulator don't accumulate. New CPUs and memory apply from the next step that is issued.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Protocol

from emulator_runtime.domain.lease import Lease
from emulator_runtime.domain.step import StepTimes
from emulator_runtime.timing.lag import LagHistogram
from emulator_runtime.workloads.ranks.group import Alone, Crossing, Group

MANAGER = "the sharing manager"


class DeviceTime(Protocol):
    """The methods of the sharing manager's client (ipc.client.ManagerClient) by which steps get the time of devices."""

    def lease(self, step: int, duration_ns: int, issue_ns: int, remaining_ns: int = 0) -> Lease: ...
    def queue(self, step: int, duration_ns: int, issue_ns: int, remaining_ns: int = 0) -> None: ...


@dataclass(frozen=True, slots=True)
class Ended:
    """How the loop ended: the steps that are done, the time, and who stopped it; empty: all steps are done."""

    steps_done: int
    end_ns: int
    stopped_by: str = ""


@dataclass(slots=True)
class StepLoop:
    """`wait` waits for a moment of the clock and returns how late it was. `blocking` surrounds calls that may block. `times_now`:
    the step times from this step on, which change with the job's CPUs and memory. `stepped` is called with each step that all
    ranks have done: its device time, and the step times by which it was planned. `lags`: how late the waits for the ends of steps
    were."""

    devices: DeviceTime
    wait: Callable[[int], int]
    group: Group = field(default_factory=Alone)
    asked_to_stop: Callable[[], bool] = lambda: False
    blocking: Callable[[], AbstractContextManager[None]] = nullcontext
    times_now: Callable[[int, StepTimes], StepTimes] = lambda _step, times: times
    stepped: Callable[[Lease, StepTimes], None] = lambda _lease, _times: None
    lags: LagHistogram = field(default_factory=LagHistogram)

    def run(self, times: StepTimes, done: int, start: Crossing) -> Ended:
        """Run the steps from number `done` on, beginning at `start`, until all are done or somebody stops the run."""
        crossing, issue_ns = start, times.first_issue_ns(start.end_ns)
        while done < times.steps:
            if crossing.stop:
                return Ended(done, crossing.end_ns, crossing.stop)
            if issue_ns > crossing.end_ns:
                self.wait(issue_ns)
            times = self.times_now(done, times)
            with self.blocking():
                lease = self.devices.lease(done, times.device_ns(done), issue_ns, times.remaining_ns(done))
            if lease.stop:
                return Ended(done, lease.start_ns, MANAGER)
            if self.group.nodes == 1:  # otherwise the end of the slowest rank isn't known before the barrier
                self._queue(times, done + 1, times.next_issue_ns(lease.end_ns, issue_ns))
            self.lags.add(self.wait(lease.end_ns))
            done += 1
            crossing = self.group.barrier(done, lease.end_ns, stop=self.asked_to_stop())
            issue_ns = times.next_issue_ns(crossing.end_ns, issue_ns)
            self.stepped(lease, times)
        return Ended(done, crossing.end_ns)

    def _queue(self, times: StepTimes, step: int, issue_ns: int) -> None:
        """Demand the next step while the present one runs, so that others on a shared device don't always come first."""
        if step < times.steps:
            with self.blocking():
                self.devices.queue(step, times.device_ns(step), issue_ns, times.remaining_ns(step))
