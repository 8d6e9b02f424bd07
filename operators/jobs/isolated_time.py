"""The run time of an EmuJob alone on the cluster, the unit of slowdown and fairness.

Computed as the training container does, from the same profiles, and without a scheduler, so that the controller's image needs
none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from emulator_runtime.domain.errors import EmuGpuError
from emulator_runtime.domain.sensitivity import HostShare
from emulator_runtime.domain.step import StepTimes
from emulator_runtime.domain.units import to_ns, to_s
from emulator_runtime.profiles.table import ProfileTable
from emulator_runtime.workloads.step_costs.request import Layout, TrainRequest, plan_step
from emulator_runtime.workloads.step_costs.work import step_times
from operators.fitting.offers import NodeOffer, profiles_of, usable_types
from operators.objects.emujob import Configuration, EmuJobSpec


def isolated_s(spec: EmuJobSpec, offers: Sequence[NodeOffer], profiles: ProfileTable) -> float | None:
    """Seconds of all its steps in its fastest configuration on the fastest GPU type that the pools offer, with the CPUs and
    memory that it requests; None if they offer nothing on which it runs."""
    times = (each for c in spec.configurations for each in _times(spec, c, offers, profiles))
    return min((to_s(each.end_ns(0, spec.steps)) for each in times), default=None)


def _times(
    spec: EmuJobSpec, configuration: Configuration, offers: Sequence[NodeOffer], profiles: ProfileTable
) -> Iterator[StepTimes]:
    types, problem = usable_types(spec, configuration, offers, profiles)
    if problem:
        return
    host = HostShare(configuration.cpu_milli, configuration.memory_bytes)
    if not configuration.model:
        yield step_times(configuration.timed_work(spec.steps), spec.steps, None, host, profiles)
        return
    table = profiles_of(spec, profiles)
    request = TrainRequest(
        spec.steps,
        model=configuration.model,
        batch_size=configuration.batch_size,
        input_cpu_s=to_s(configuration.input_cpu_ns) / spec.nodes,
        host_s=to_s(configuration.host_ns),
        stages=configuration.stages,
    )
    for gpu_type in types:
        layout = Layout(
            (gpu_type,) * configuration.gpus, configuration.gpus * spec.nodes, spec.nodes, host=request.share(host)
        )
        try:
            plan = plan_step(request, layout, table)
            start_s = table.step_profile(configuration.model, gpu_type, plan.batch_per_gpu).start_s
            yield replace(plan.times(spec.steps), start_ns=to_ns(start_s) if spec.program is not None else 0)
        except EmuGpuError:
            continue  # without a profile the job can't run on that type
