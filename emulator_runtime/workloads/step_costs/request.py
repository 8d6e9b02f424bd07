"""The request of `emugpu train`, and the plan computed from it: what each step costs on the devices of this pod."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from emulator_runtime.domain.errors import InputError
from emulator_runtime.domain.mig import rate_milli, slowest_type
from emulator_runtime.domain.samples import RunSamples
from emulator_runtime.domain.sensitivity import HostShare, Sensitivity
from emulator_runtime.domain.stages import NO_STAGES, StageTimes
from emulator_runtime.domain.step import StepProfile, StepTimes
from emulator_runtime.domain.units import to_ns, to_s
from emulator_runtime.node.layout import HOST_RESOURCE
from emulator_runtime.profiles.table import ProfileTable
from emulator_runtime.workloads.step_costs.communication import DEFAULT_NETWORK_GBPS, Links, all_reduce_s, exposed_s

PARALLEL = ("dp", "ddp")
ONE_CPU = HostShare(1000)


@dataclass(frozen=True, slots=True)
class TrainRequest:
    """A training job as given on the command line.

    Either `model` and `batch_size` (samples per step on all GPUs of the job together) or `step_time_s` and `memory_bytes`
    (on each GPU) are set. `gradient_bytes`: 0 takes the value of the profile, or none for work without a profile.
    `input_cpu_s`: CPU time to prepare the input of one step. `host_s`: time of the host before each step, while the GPU waits.
    With a `sensitivity`, `step_time_s` holds at speed 1.
    `host`: the emulated CPUs and memory of each process, unless a scheduler assigns others. `parallel`: empty means
    DataParallel within one process and DistributedDataParallel for several.
    `samples`: the length of an elastic job, whose runs may have other batch sizes and numbers of GPUs: its progress is counted in
    samples, and its batch needn't be divisible by its GPUs. 0: progress is counted in steps.
    `stages`: what each step needs of the resources that a node's jobs share.
    """

    steps: int
    model: str = ""
    batch_size: int = 0
    step_time_s: float = 0.0
    memory_bytes: int = 0
    gradient_bytes: int = 0
    input_cpu_s: float = 0.0
    host_s: float = 0.0
    sensitivity: Sensitivity | None = None
    host: HostShare = ONE_CPU
    parallel: str = ""
    network_gbps: float = DEFAULT_NETWORK_GBPS
    extrapolate: bool = False
    samples: int = 0
    stages: StageTimes = NO_STAGES

    @property
    def work(self) -> str:
        """What all ranks of a job must have in common."""
        stages = self.stages
        beside = f", stages of {stages.fetch_ns}, {stages.transfer_ns} and {stages.exchange_ns} ns" if stages else ""
        return f"{self.title}, {self.steps} steps{beside}"

    @property
    def title(self) -> str:
        """A short description of the training."""
        if self.model:
            return f"{self.model}, batch size {self.batch_size}"
        return f"steps of {self.step_time_s * 1e3:g} ms"

    @property
    def unit(self) -> str:
        """In what the job's progress is counted: sample or step."""
        return "sample" if self.samples else "step"

    @property
    def length(self) -> int:
        """The whole job, in units of its progress."""
        return self.samples or self.steps

    def run_from(self, done: int) -> RunSamples:
        """The steps of a run that begins when `done` units are done. A job that counts steps has one unit in each."""
        each = self.batch_size if self.samples else 1
        return RunSamples(done // each, done, each, self.length)

    @property
    def uses_host(self) -> bool:
        """Whether CPUs and memory affect the step time."""
        return self.sensitivity is not None or self.input_cpu_s > 0

    def share(self, given: HostShare | None) -> HostShare:
        """The CPUs and memory of a process to which `given` was assigned. An amount of 0 in `given` means unspecified."""
        if given is None:
            return self.host
        return HostShare(given.cpu_milli or self.host.cpu_milli, given.memory_bytes or self.host.memory_bytes)


@dataclass(frozen=True, slots=True)
class Layout:
    """Where a job runs: the types of this process's GPUs (empty: on CPUs), and the GPUs and nodes of the whole job.

    `linked`: false if the GPUs of this container can communicate only through the host. `nodes_linked`: NVLink joins the GPUs
    of all nodes. `host`: the CPUs and memory of this process; None takes those of the request.
    """

    gpu_types: tuple[str, ...]
    gpus: int
    nodes: int = 1
    linked: bool = True
    nodes_linked: bool = False
    host: HostShare | None = None


@dataclass(frozen=True, slots=True)
class StepPlan:
    """What a step costs on each GPU of this process. Times are seconds, memory is bytes.

    `exposed_s`: the part of the communication that doesn't overlap with computation; `step_s` includes it. `slowest`: the
    GPU type that determines the step time; empty without a GPU. `host_s`: time of the host before each step. `stages`: as in the
    request.
    """

    step_s: float
    exposed_s: float
    reduce_s: float
    input_s: float
    persistent_bytes: int
    peak_bytes: int
    slowest: str
    batch_per_gpu: int = 0
    extrapolated: bool = False
    host_s: float = 0.0
    stages: StageTimes = NO_STAGES

    @property
    def alone_s(self) -> float:
        """Seconds from step to step where nothing is shared: the step with its exchange, or its input if that takes longer, and
        the host's time before it."""
        stages = self.stages
        input_s = self.input_s + to_s(stages.fetch_ns + stages.transfer_ns)
        return max(self.step_s + to_s(stages.exchange_ns), input_s) + self.host_s

    def times(self, steps: int) -> StepTimes:
        return StepTimes(steps, to_ns(self.step_s) * steps, to_ns(self.input_s), to_ns(self.host_s), self.stages)


def plan_step(request: TrainRequest, layout: Layout, profiles: ProfileTable) -> StepPlan:
    """The plan for these devices. GPUs of different types in one process wait for the slowest one.

    Raises InputError if the batch can't be divided or a GPU is missing, and the errors of the profile look-up.
    """
    if not layout.gpu_types:
        _must_need_no_gpu(request)
    if not request.model:
        return _timed(request, layout, profiles)
    batch = _largest_part(request, layout.gpus)
    profiled = [
        (profiles.step_profile(request.model, gpu_type, batch, extrapolate=request.extrapolate), gpu_type)
        for gpu_type in sorted(set(layout.gpu_types))
    ]
    profile, slowest = max(profiled, key=lambda item: item[0].device_s)
    gradients = request.gradient_bytes or profiles.gradient_bytes(request.model)
    return _plan(request, layout, profile, gradients, (slowest, batch, _links(request, layout, profiles)))


def _must_need_no_gpu(request: TrainRequest) -> None:
    """Raises InputError naming the option for which the container lacks a GPU."""
    where = f"this container has none (only {HOST_RESOURCE})"
    if request.model:
        fix = "give --step-time-s instead, or ask for emuGPU"
        raise InputError("--model", f"a model's profile is of GPUs, and {where}; {fix}")
    if request.memory_bytes:
        raise InputError("--memory", f"is memory of a GPU, and {where}; leave it out, or ask for emuGPU")


def _timed(request: TrainRequest, layout: Layout, profiles: ProfileTable) -> StepPlan:
    """A step without a profile: for the overlap, the whole step counts as backward pass, since nothing more is known. Its time is
    that on a whole GPU; on a MIG instance it takes longer."""
    host = layout.host or request.host
    slowest = slowest_type(sorted(layout.gpu_types)) or ""
    step_s = request.step_time_s / (request.sensitivity.speed(host) if request.sensitivity is not None else 1.0)
    step_s *= 1000 / rate_milli(slowest)
    profile = StepProfile(0.0, 0.0, step_s, request.memory_bytes, request.memory_bytes)
    links = _links(request, layout, profiles) if request.gradient_bytes else None
    return _plan(request, layout, profile, request.gradient_bytes, (slowest, 0, links))


def _plan(
    request: TrainRequest,
    layout: Layout,
    profile: StepProfile,
    gradient_bytes: int,
    rest: tuple[str, int, Links | None],
) -> StepPlan:
    slowest, batch, links = rest
    reduce_s = all_reduce_s(gradient_bytes, links) if links else 0.0
    parallel = request.parallel or ("ddp" if layout.nodes > 1 else "dp")
    exposed = exposed_s(reduce_s, profile.backward_s, gradient_bytes, overlap=parallel == "ddp")
    return StepPlan(
        step_s=profile.device_s + exposed,
        exposed_s=exposed,
        reduce_s=reduce_s,
        input_s=request.input_cpu_s * 1000 / (layout.host or request.host).cpu_milli,
        persistent_bytes=profile.persistent_bytes,
        peak_bytes=profile.peak_bytes,
        slowest=slowest,
        batch_per_gpu=batch,
        extrapolated=profile.extrapolated,
        host_s=request.host_s,
        stages=request.stages,
    )


def _largest_part(request: TrainRequest, gpus: int) -> int:
    """The samples of one step on the GPU that has most of them, which sets the pace: one more than others in an elastic job."""
    return -(-request.batch_size // gpus) if request.samples else batch_per_gpu(request.batch_size, gpus)


def batch_per_gpu(batch_size: int, gpus: int, place: str = "--batch-size") -> int:
    """The samples of one step on each GPU of the job. Raises InputError naming `place`, the option with `batch_size`."""
    if batch_size % gpus:
        near = max(1, batch_size // gpus) * gpus
        raise InputError(place, f"{batch_size} samples can't be divided equally among {gpus} GPUs; give e.g. {near}")
    return batch_size // gpus


def _links(request: TrainRequest, layout: Layout, profiles: ProfileTable) -> Links | None:
    """The links between the job's GPUs. None for a job with one GPU, whose type needn't be in the catalogue then. Without
    GPUs, each process is one end of a network link."""
    network_bytes_per_s = request.network_gbps * 1e9 / 8
    if (layout.gpus or layout.nodes) == 1:
        return None
    if not layout.gpu_types:
        return Links(layout.nodes, layout.nodes, network_bytes_per_s, network_bytes_per_s)
    return Links(
        gpus=layout.gpus,
        nodes=1 if layout.nodes_linked else layout.nodes,
        peer_bytes_per_s=_peer_bytes_per_s(layout.gpu_types, profiles, linked=layout.linked),
        network_bytes_per_s=network_bytes_per_s,
    )


def _peer_bytes_per_s(gpu_types: Sequence[str], profiles: ProfileTable, *, linked: bool) -> float:
    specs = [profiles.catalogue.spec(gpu_type, "the device's type") for gpu_type in gpu_types]
    if linked and all(spec.peer_link_bytes_per_s for spec in specs):
        return min(spec.peer_link_bytes_per_s for spec in specs)
    return min(spec.host_link_bytes_per_s for spec in specs)
