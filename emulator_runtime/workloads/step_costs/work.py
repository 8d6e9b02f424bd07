"""Computes the step times of a job's work. The simulator and the job process use the same function, so they agree."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from emulator_runtime.domain.job import ModelWork, TimedWork, Work
from emulator_runtime.domain.mig import rate_milli
from emulator_runtime.domain.sensitivity import HostShare
from emulator_runtime.domain.step import StepTimes
from emulator_runtime.domain.units import to_ns
from emulator_runtime.profiles.curves import ModelProfile
from emulator_runtime.profiles.table import ProfileTable
from emulator_runtime.workloads.step_costs.request import Layout, TrainRequest, plan_step


class Spread(NamedTuple):
    """The shape of a job: GPUs of each task, and number of nodes. `linked`: NVLink joins the GPUs of each task, if their type has
    it; `nodes_linked`: it joins those of all tasks. A tuple, since it is looked up at each start."""

    gpus: int = 1
    nodes: int = 1
    linked: bool = True
    nodes_linked: bool = False


ONE_GPU = Spread()


def step_times(
    work: Work,
    steps: int,
    gpu_type: str | None,
    host: HostShare,
    profiles: ProfileTable | None = None,
    *,
    spread: Spread = ONE_GPU,
) -> StepTimes:
    """When the steps of a run end, on GPUs of `gpu_type` (None: on CPUs), with the CPUs and memory in `host`.

    Each task of a gang has `gpu_type` and `host`. Stated durations hold for any `spread` and every whole GPU; on a MIG instance
    the device's part of them takes longer. Raises UnknownNameError or BeyondProfileError if the model has no profile for the
    GPU type or batch size.
    """
    if isinstance(work, TimedWork):
        speed = work.sensitivity.speed(host) if work.sensitivity else 1.0
        host_ns = to_ns(work.host_s)
        device_ns = to_ns(work.duration_s / speed) - steps * host_ns
        return StepTimes(steps, device_ns * 1000 // rate_milli(gpu_type or ""), host_ns=host_ns, stages=work.stages)
    return _model_step_times(work, steps, gpu_type, host, profiles or ProfileTable.bundled(), spread)


def _model_step_times(
    work: ModelWork, steps: int, gpu_type: str | None, host: HostShare, profiles: ProfileTable, spread: Spread
) -> StepTimes:
    if gpu_type is None:
        raise ValueError("model work runs on GPUs only")
    if isinstance(work.own, ModelProfile):
        profiles = profiles.with_model(work.model, work.own)
    if work.exchanges or spread.nodes > 1:
        times = _exchanging(work, steps, gpu_type, host, profiles, spread)
    else:
        profile = profiles.step_profile(work.model, gpu_type, work.batch_size)
        input_s = work.input_cpu_s * 1000 / host.cpu_milli if work.input_cpu_s else 0.0
        times = StepTimes.of_profile(profile, steps, input_s)
    start_s = profiles.step_profile(work.model, gpu_type, work.batch_size).start_s if work.starts else 0.0
    return replace(times, host_ns=to_ns(work.host_s), stages=work.stages, start_ns=to_ns(start_s))


def _exchanging(
    work: ModelWork, steps: int, gpu_type: str, host: HostShare, profiles: ProfileTable, spread: Spread
) -> StepTimes:
    """The step times as a pod computes them: each task computes, prepares its part of the input and exchanges gradients."""
    gpus = spread.gpus * spread.nodes
    request = TrainRequest(
        steps, model=work.model, batch_size=work.batch_size * gpus, input_cpu_s=work.input_cpu_s / spread.nodes
    )
    types, share = (gpu_type,) * spread.gpus, request.share(host)
    layout = Layout(types, gpus, spread.nodes, linked=spread.linked, nodes_linked=spread.nodes_linked, host=share)
    return plan_step(request, layout, profiles).times(steps)
