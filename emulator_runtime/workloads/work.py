"""From a job's work to the times of its steps: one function for the simulator and for the job process, so they agree."""

from __future__ import annotations

from emulator_runtime.domain.job import ModelWork, TimedWork, Work
from emulator_runtime.domain.sensitivity import HostShare
from emulator_runtime.domain.step import StepTimes
from emulator_runtime.domain.units import to_ns
from emulator_runtime.profiles.table import ProfileTable


def step_times(
    work: Work, steps: int, gpu_type: str | None, host: HostShare, profiles: ProfileTable | None = None
) -> StepTimes:
    """When the steps of a run end, on a GPU of `gpu_type` (None: on CPUs) with `host` for everything but the device.

    Raises UnknownNameError or BeyondProfileError for model work that has no profile there.
    """
    if isinstance(work, TimedWork):
        speed = work.sensitivity.speed(host) if work.sensitivity else 1.0
        return StepTimes(steps, to_ns(work.duration_s / speed))
    return _model_step_times(work, steps, gpu_type, host, profiles or ProfileTable.bundled())


def _model_step_times(
    work: ModelWork, steps: int, gpu_type: str | None, host: HostShare, profiles: ProfileTable
) -> StepTimes:
    if gpu_type is None:
        raise ValueError("model work runs on GPUs only")
    profile = profiles.step_profile(work.model, gpu_type, work.batch_size)
    input_s = work.input_cpu_s * 1000 / host.cpu_milli if work.input_cpu_s else 0.0
    return StepTimes.of_profile(profile, steps, input_s)
