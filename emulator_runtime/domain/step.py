"""Training steps: the cost of one step (StepProfile) and the time at which each step of a run ends (StepTimes)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, replace

from emulator_runtime.domain.stages import NO_STAGES, StageTimes
from emulator_runtime.domain.units import to_ns

_TRIES = 4


@dataclass(frozen=True, slots=True)
class StepProfile:
    """One training step of a model at a batch size on a GPU type (GPEmu, PVLDB 18(6) 2025, section 2.1).

    Times are in seconds, memory is in bytes. `backward_s` was measured with loss, zero_grad and the optimizer's step.
    `extrapolated`: at least one of the values lies outside the measured range. `start_s`: what each run of a program takes beside
    its steps (imports, the first use of the device, the end).
    """

    transfer_s: float
    forward_s: float
    backward_s: float
    persistent_bytes: int
    peak_bytes: int
    extrapolated: bool = False
    start_s: float = 0.0

    @property
    def device_s(self) -> float:
        """Time for which one step keeps the device busy."""
        return self.transfer_s + self.forward_s + self.backward_s


@dataclass(frozen=True, slots=True)
class StepTimes:
    """When the steps of a run end, on devices and other resources that no other job uses. Integer nanoseconds, so that sums are
    exact.

    The steps add up to `total_device_ns` exactly. Example: 10 ns in 3 steps are steps of 3, 3 and 4 ns. The input
    pipeline prepares step k+1 while the device works on step k (double buffering). The CPUs need `input_ns` for each input; the
    pipeline starts with the first input when the run starts. Before each step the host works for `host_ns`, while the device
    does nothing for this job. `stages`: what a step needs of other resources (stages.py). `start_ns`: of each run, before its
    first step.
    """

    steps: int
    total_device_ns: int
    input_ns: int = 0
    host_ns: int = 0
    stages: StageTimes = NO_STAGES
    start_ns: int = 0

    def with_steps(self, steps: int) -> StepTimes:
        """Another number of such steps, which all take equally long."""
        return replace(self, steps=steps, total_device_ns=self.total_device_ns // self.steps * steps)

    def going_on(self, steps_done: int) -> StepTimes:
        """Of a run that is under way and had done so many steps: what lies before the first one is over then."""
        return replace(self, start_ns=0) if steps_done and self.start_ns else self

    @classmethod
    def of_profile(cls, profile: StepProfile, steps: int, input_s: float = 0.0) -> StepTimes:
        return cls(steps, to_ns(profile.device_s) * steps, to_ns(input_s))

    @property
    def prepared_ns(self) -> int:
        """How long an input takes: its fetch, the work of the CPUs and its transfer."""
        return self.stages.fetch_ns + self.input_ns + self.stages.transfer_ns

    def device_ns(self, first: int, count: int = 1) -> int:
        """Device time of `count` steps from step `first` (0-based)."""
        return self.total_device_ns * (first + count) // self.steps - self.total_device_ns * first // self.steps

    def step_ns(self, first: int, count: int = 1) -> int:
        """The same with the exchanges that follow."""
        return self.device_ns(first, count) + count * self.stages.exchange_ns

    def remaining_ns(self, first: int) -> int:
        """Device time of the steps from `first` on."""
        return self.device_ns(first, self.steps - first)

    def end_ns(self, first: int, count: int) -> int:
        """Time from the start of a run at step `first` until `count` steps are done."""
        if count == 0:
            return 0
        prepared_ns, bound_ns = self.prepared_ns, self.step_ns(first, count)
        if prepared_ns:
            bound_ns = max(prepared_ns + bound_ns, count * prepared_ns + self.step_ns(first + count - 1))
        return self.start_ns + bound_ns + count * self.host_ns

    def next_issue_ns(self, ended_ns: int, prepared_ns: int) -> int:
        """When a step is issued, if the one before it ends at `ended_ns` and its own input is ready at `prepared_ns`."""
        return max(ended_ns, prepared_ns) + self.host_ns

    def issue_ns(self, first: int, index: int) -> int:
        """When the step at `index` of a run (0: its first) is issued: the previous step has ended and its input is ready.

        A run can be stopped at this time, which lies between two steps.
        """
        return self.end_ns(first, index + 1) - self.step_ns(first + index)

    def steps_issued(self, first: int, elapsed_ns: int) -> int:
        """How many steps of a run that began at step `first` have been issued by the time `elapsed_ns`."""
        return self._count(first, elapsed_ns, lambda index: self.issue_ns(first, index))

    def steps_done(self, first: int, elapsed_ns: int) -> int:
        """How many steps of a run that began at step `first` have ended `elapsed_ns` after its start."""
        return self._count(first, elapsed_ns, lambda index: self.end_ns(first, index + 1))

    def _count(self, first: int, elapsed_ns: int, time_ns: Callable[[int], int]) -> int:
        """How many of the steps from `first` on have reached a point by the time `elapsed_ns`; each reaches it at `time_ns`.

        Steps are almost equally long, so a guess is nearly right. A search among all of them asks for more times.
        """
        steps = self.steps - first
        each_ns = max(self.total_device_ns // self.steps + self.stages.exchange_ns, self.prepared_ns) + self.host_ns
        if each_ns > 0:
            count = min(max(elapsed_ns // each_ns, 0), steps)
            for _ in range(_TRIES):
                if count > 0 and time_ns(count - 1) > elapsed_ns:
                    count -= 1
                elif count < steps and time_ns(count) <= elapsed_ns:
                    count += 1
                else:
                    return count
        return bisect_right(range(steps), elapsed_ns, key=time_ns)
