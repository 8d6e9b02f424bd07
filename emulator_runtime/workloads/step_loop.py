"""The steps of a training run on emulated devices, on a local cluster and in a pod alike.

Ranks of a job whose steps have stages agree on when a step is issued: none computes before the input of all is ready.

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
    """The methods of the sharing manager's client (ipc.client.ManagerClient) by which steps get the time of devices and other
    resources."""

    def lease(self, step: int, duration_ns: int, issue_ns: int, remaining_ns: int = 0) -> Lease: ...
    def queue(self, step: int, duration_ns: int, issue_ns: int, remaining_ns: int = 0) -> None: ...
    def prefetch(self, step: int, times: StepTimes, ready_ns: int) -> None: ...
    def prefetched_ns(self) -> int: ...
    def exchange(self, step: int, times: StepTimes, ready_ns: int) -> None: ...
    def exchanged_ns(self) -> int: ...


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
        crossing, ready_ns = start, None
        while done < times.steps:
            if crossing.stop:
                return Ended(done, crossing.end_ns, crossing.stop)
            if ready_ns is None:
                ready_ns = self._first_input_ns(times, done, start.end_ns)
            issue_ns = times.next_issue_ns(crossing.end_ns, ready_ns)
            if issue_ns > crossing.end_ns:
                self.wait(issue_ns)
            times = self.times_now(done, times)
            if times.stages and self.group.nodes > 1:
                issue_ns = self.group.barrier(done, issue_ns, stop=False).end_ns
            with self.blocking():
                lease = self._lease(times, done, issue_ns)
            if lease.stop:
                return Ended(done, lease.start_ns, MANAGER)
            end_ns, ready_ns = lease.end_ns, issue_ns + times.prepared_ns
            if times.stages:
                end_ns, ready_ns = self._exchanged(times, done, lease)
            if self.group.nodes == 1:  # otherwise the end of the slowest rank isn't known before the barrier
                self._queue(times, done + 1, times.next_issue_ns(end_ns, ready_ns))
            if not times.stages or ready_ns <= end_ns:  # otherwise the end has passed while the input was awaited
                self.lags.add(self.wait(end_ns))
            done += 1
            crossing = self.group.barrier(done, end_ns, stop=self.asked_to_stop())
            self.stepped(lease, times)
        return Ended(done, crossing.end_ns)

    def _first_input_ns(self, times: StepTimes, step: int, ready_ns: int) -> int:
        """When the input of the run's first step is ready, which begins at `ready_ns`."""
        if not times.stages:
            return ready_ns + times.prepared_ns
        with self.blocking():
            self.devices.prefetch(step, times, ready_ns)
            return self.devices.prefetched_ns()

    def _lease(self, times: StepTimes, step: int, issue_ns: int) -> Lease:
        """The device time of a step that is issued at `issue_ns`. The next input begins then, before that time is awaited."""
        if times.stages and step + 1 < times.steps:
            self.devices.prefetch(step + 1, times, issue_ns)
        return self.devices.lease(step, times.device_ns(step), issue_ns, times.remaining_ns(step))

    def _exchanged(self, times: StepTimes, step: int, lease: Lease) -> tuple[int, int]:
        """When the exchange of a step ends that has had its device time, and when the next input is ready."""
        with self.blocking():
            self.devices.exchange(step, times, lease.end_ns)
            end_ns = self.devices.exchanged_ns()
            return end_ns, self.devices.prefetched_ns() if step + 1 < times.steps else end_ns

    def _queue(self, times: StepTimes, step: int, issue_ns: int) -> None:
        """Demand the next step while the present one runs, so that others on a shared device don't always come first."""
        if step < times.steps:
            with self.blocking():
                self.devices.queue(step, times.device_ns(step), issue_ns, times.remaining_ns(step))
