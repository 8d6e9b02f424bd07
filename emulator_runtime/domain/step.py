"""Training steps: what one costs (StepProfile) and when each of a run's steps ends (StepTimes)."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from emulator_runtime.domain.units import to_ns


@dataclass(frozen=True, slots=True)
class StepProfile:
    """One training step of a model at a batch size on a GPU type (GPEmu, PVLDB 18(6) 2025, section 2.1).

    Times are seconds, memory is bytes. `backward_s` includes loss, zero_grad and the optimizer's step, as it was measured.
    `extrapolated` is true where any figure lies beyond the last measured point.
    """

    transfer_s: float
    forward_s: float
    backward_s: float
    persistent_bytes: int
    peak_bytes: int
    extrapolated: bool = False

    @property
    def device_s(self) -> float:
        """Time that the device is busy for one step."""
        return self.transfer_s + self.forward_s + self.backward_s


@dataclass(frozen=True, slots=True)
class StepTimes:
    """When the steps of a run end, on devices that nobody else uses; integer nanoseconds, so that sums are exact.

    The total is cut so that the steps add up to it to the nanosecond. The input pipeline prepares step k+1 while the
    device works on step k (double buffering); each input takes `input_ns`, the first one starts with the run.
    """

    steps: int
    total_device_ns: int
    input_ns: int = 0

    @classmethod
    def of_profile(cls, profile: StepProfile, steps: int, input_s: float = 0.0) -> StepTimes:
        return cls(steps, to_ns(profile.device_s) * steps, to_ns(input_s))

    def device_ns(self, first: int, count: int = 1) -> int:
        """Device time of `count` steps from step `first` (0-based)."""
        return self.total_device_ns * (first + count) // self.steps - self.total_device_ns * first // self.steps

    def end_ns(self, first: int, count: int) -> int:
        """Time from the start of a run at step `first` until `count` more steps are done."""
        if count == 0:
            return 0
        device_bound = self.input_ns + self.device_ns(first, count)
        input_bound = count * self.input_ns + self.device_ns(first + count - 1)
        return max(device_bound, input_bound)

    def issue_ns(self, first: int, index: int) -> int:
        """When the step at `index` of a run (0: its first) is issued: the one before has ended and its input is ready.

        This is the moment between two steps at which a run can be stopped.
        """
        return self.end_ns(first, index + 1) - self.device_ns(first + index)

    def steps_issued(self, first: int, elapsed_ns: int) -> int:
        """How many steps of a run that began at step `first` have been issued at `elapsed_ns` or before."""
        return bisect_right(range(self.steps - first), elapsed_ns, key=lambda index: self.issue_ns(first, index))

    def steps_done(self, first: int, elapsed_ns: int) -> int:
        """How many steps of a run that began at step `first` have ended `elapsed_ns` after its start."""
        return bisect_right(range(self.steps - first), elapsed_ns, key=lambda index: self.end_ns(first, index + 1))
