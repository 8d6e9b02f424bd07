"""EmuJob: a training job on emulated GPUs, and how long it took."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal, Self

from annotated_types import Interval, Len
from pydantic import Field, StrictBool, StrictFloat, StrictStr, model_validator

from emulator_runtime.domain import job as domain
from emulator_runtime.domain.samples import MAX_SAMPLES
from emulator_runtime.domain.sensitivity import Knots, Sensitivity
from emulator_runtime.domain.stages import StageTimes
from emulator_runtime.domain.units import MAX_UNIT_NS, to_s
from operators.kube.documents import Key, key_of, object_at, text_at, texts_of, whole_at
from operators.objects.custom_resource import (
    Column,
    Definition,
    Part,
    Report,
    Rule,
    Schema,
    problem,
    read_leniently,
    read_strictly,
    served,
)
from operators.objects.forms import (
    Conditions,
    DurationNs,
    GpuType,
    Image,
    Int32,
    Int64,
    Line,
    Name,
    Positive,
    Reference,
    StageNs,
    Texts,
    TimeNs,
    Word,
    quantity_type,
    text_type,
)
from operators.objects.names import (
    DEFAULT_SCHEDULER,
    EXPERIMENT_LABEL,
    FINAL,
    HOLDING,
    JOB_ID,
    LONGEST_POLICY,
    POLICY,
    PREDICTED,
    ROW,
    RUN_NAMESPACE_PREFIX,
    SCHEDULER_NAME_FORM,
    Actuator,
    Phase,
)
from operators.objects.native import Native
from operators.objects.own_profile import OwnProfile, size_rule
from operators.objects.scheduler_notes import ANNOTATION as SCHEDULING_PROBLEM
from operators.objects.template import Template

DEFAULT_CONFIGURATION = "default"
_FROZEN = "only spec.suspend and spec.weight can be changed; delete the EmuJob and make another one"
IMMUTABLE = Schema(Rule(_FROZEN, "self == oldSelf"))

Cpus = Annotated[int, quantity_type(1000, "CPUs as a quantity, such as 4 or 500m")]
Memory = Annotated[int, quantity_type(1, "memory as a quantity of bytes, such as 16Gi")]


RangeOfGpus = Annotated[Int32, Interval(ge=1, le=128)]
_GPUS = "(has(self.emuGPU) ? self.emuGPU : 1)"
"""CEL: the GPUs with which a job is submitted."""


class Resources(Part):
    """Emulated amounts of each node of the job."""

    rules = (
        Rule(
            "minEmuGPU: must be at most emuGPU, with which the job is submitted",
            f"!has(self.minEmuGPU) || self.minEmuGPU <= {_GPUS}",
            lambda resources: resources.least_gpus <= resources.gpus,
            at="minEmuGPU",
        ),
        Rule(
            "maxEmuGPU: must be at least emuGPU, with which the job is submitted",
            f"!has(self.maxEmuGPU) || self.maxEmuGPU >= {_GPUS}",
            lambda resources: not resources.has("most_gpus") or resources.most_gpus >= resources.gpus,
            at="maxEmuGPU",
        ),
    )

    gpus: Annotated[Int32, Interval(ge=0, le=128)] = Field(
        1, alias="emuGPU", description="Emulated GPUs; 1 where this is absent."
    )
    cpu_milli: Cpus = Field(0, alias="cpu", description="Emulated CPUs, such as 4 or 500m.")
    memory_bytes: Memory = Field(0, alias="memory", description="Emulated memory, such as 16Gi.")
    least_gpus: RangeOfGpus = Field(
        0,
        alias="minEmuGPU",
        description="Of an elastic job, whose job-level scheduler chooses its GPUs for each run: the fewest; emuGPU where this "
        "is absent. CPUs and memory are in proportion.",
    )
    most_gpus: RangeOfGpus = Field(
        0, alias="maxEmuGPU", description="Of an elastic job, the most emulated GPUs; emuGPU where this is absent."
    )

    @property
    def ranged(self) -> bool:
        """Whether a range of GPUs is stated."""
        return self.has("least_gpus") or self.has("most_gpus")


class Knot(Part):
    """A point of the curve of speed against an emulated amount."""

    amount: int
    speed: Positive


class CpuKnot(Knot):
    """With thousandths of a CPU."""

    amount: Annotated[int, quantity_type(1000, "CPUs as a quantity above 0, such as 3 or 500m", above_0=True)]


class MemoryKnot(Knot):
    """With bytes."""

    amount: Annotated[int, quantity_type(1, "memory as a quantity of bytes above 0, such as 62.5Gi", above_0=True)]


class Curves(Part):
    """spec.sensitivity: speed against emulated CPUs (thousandths) and memory (bytes)."""

    keywords = {"minProperties": 1}
    cpu: Annotated[tuple[CpuKnot, ...], Len(1, 16)] = Field((), description="By CPUs, the amounts growing.")
    memory: Annotated[tuple[MemoryKnot, ...], Len(1, 16)] = Field((), description="By memory, the amounts growing.")

    @model_validator(mode="after")
    def _check_growth(self) -> Self:
        curves: tuple[tuple[str, Sequence[Knot]], ...] = (("cpu", self.cpu), ("memory", self.memory))
        for name, curve in curves:
            for index, (before, after) in enumerate(pairwise(curve)):
                if after.amount <= before.amount:
                    raise problem("must be above the amount before it", name, index + 1, "amount")
        return self

    @property
    def sensitivity(self) -> Sensitivity:
        return Sensitivity(_knots(self.cpu), _knots(self.memory))


def _knots(curve: Sequence[Knot]) -> Knots:
    return tuple((knot.amount, float(knot.speed)) for knot in curve)


class Work(Part):
    """What is trained: a profiled model with a batch size, or steps of a stated time."""

    model: Annotated[Name, IMMUTABLE] = Field("", description="A profiled model (`emugpu profile list`).")
    batch_size: Annotated[Int64, Interval(ge=1, le=2**31), IMMUTABLE] = Field(
        0, description="Samples of one step on all GPUs together."
    )
    step_time_ns: Annotated[DurationNs, IMMUTABLE] = Field(
        0, alias="stepTime", description="Time of one step, such as 80ms, for work without a profile."
    )
    gpu_memory_bytes: Annotated[int, quantity_type(1, "memory as a quantity of bytes, such as 4Gi"), IMMUTABLE] = Field(
        0, alias="memory", description="With stepTime, memory on each GPU, such as 4Gi."
    )
    curves: Annotated[Curves, IMMUTABLE] | None = Field(
        None,
        alias="sensitivity",
        description="With stepTime: the job's speed for amounts of emulated CPUs and memory of each node; stepTime holds at "
        "speed 1. Linear between the points; the slower of the two counts.",
    )
    fetch_ns: Annotated[StageNs, IMMUTABLE] = Field(
        0,
        alias="fetchTime",
        description="For how long the input of each step needs the storage of its node, such as 80ms, on each node of the job. "
        "Jobs of a node share what its pool names in hostResources. The input is prepared one step ahead.",
    )
    transfer_ns: Annotated[StageNs, IMMUTABLE] = Field(
        0, alias="transferTime", description="For how long the input then needs the link of each of the job's GPUs."
    )
    exchange_ns: Annotated[StageNs, IMMUTABLE] = Field(
        0,
        alias="exchangeTime",
        description="For how long each step, when its GPUs are done, needs the network of its node, on each node of the job.",
    )
    host_ns: Annotated[StageNs, IMMUTABLE] = Field(
        0,
        alias="hostTime",
        description="For how long the host works before each step while the GPUs wait, such as 13ms.",
    )
    input_cpu_ns: Annotated[StageNs, IMMUTABLE] = Field(
        0,
        alias="inputCPUTime",
        description="With model: CPU time that the input of each step takes, on all nodes together; the emulated CPUs share it. "
        "The input is prepared one step ahead.",
    )

    @property
    def staged(self) -> bool:
        """Whether a step is more than the work of its GPUs."""
        return bool(self.stages or self.host_ns or self.input_cpu_ns)

    @property
    def stages(self) -> StageTimes:
        """What each step needs beside the work of its GPUs."""
        return StageTimes(self.fetch_ns, self.transfer_ns, self.exchange_ns)


_STAGES = ("fetchTime", "inputCPUTime", "transferTime", "hostTime", "exchangeTime")
_STAGES_TEXT = f"{', '.join(_STAGES[:-1])} and {_STAGES[-1]}"


def _staged(path: str) -> str:
    """CEL: whether the steps of this work have stages."""
    return " || ".join(f"has({path}.{name})" for name in _STAGES)


def _work_rules(unless: str = "", exempt: str = "") -> tuple[Rule, ...]:
    """Rules for members of spec or of a profile that must be given together. They don't apply where `exempt` (a field's name) is
    given; `unless` is the same condition in CEL."""
    return (
        Rule(
            "give either model with batchSize, or stepTime with memory",
            f"{unless}has(self.model) != has(self.stepTime)",
            lambda work: (exempt != "" and work.has(exempt)) or work.has("model") != work.has("step_time_ns"),
        ),
        Rule(
            "model and batchSize belong together",
            "has(self.model) == has(self.batchSize)",
            lambda work: work.has("model") == work.has("batch_size"),
        ),
        Rule(
            "memory: belongs to stepTime; a model's memory is in its profile",
            "!has(self.memory) || has(self.stepTime)",
            lambda work: not work.has("gpu_memory_bytes") or work.has("step_time_ns"),
            at="memory",
        ),
        Rule(
            "sensitivity: belongs to stepTime",
            "!has(self.sensitivity) || has(self.stepTime)",
            lambda work: not work.has("curves") or work.has("step_time_ns"),
            at="sensitivity",
        ),
        Rule(
            f"sensitivity: goes not together with {_STAGES_TEXT}; leave it or them out",
            f"!has(self.sensitivity) || !({_staged('self')})",
            lambda work: not work.has("curves") or not work.staged,
            at="sensitivity",
        ),
        Rule(
            "inputCPUTime: belongs to model",
            "!has(self.inputCPUTime) || !has(self.stepTime)",
            lambda work: not work.has("input_cpu_ns") or not work.has("step_time_ns"),
            at="inputCPUTime",
        ),
        Rule(
            "exchangeTime: a step before an exchange takes at most 10m; make steps shorter (stepTime)",
            holds=lambda work: not work.exchange_ns or work.step_time_ns <= MAX_UNIT_NS,
            at="exchangeTime",
        ),
    )


def _ranged(path: str) -> str:
    """CEL: whether the resources of this job or configuration have a range of GPUs."""
    members = (f"has({path}.resources.{name})" for name in ("minEmuGPU", "maxEmuGPU"))
    return f"has({path}.resources) && ({' || '.join(members)})"


def _amount_rules(path: str, way: str) -> tuple[Rule, ...]:
    """Rules between resources and profile. `path` of the profile in CEL, `way`: what has them, for people."""
    rules = [
        Rule(
            f"resources.emuGPU: a model's profile is of GPUs; give stepTime for a {way} without one",
            f"!has({path}.model) || !has(self.resources) || !has(self.resources.emuGPU) || self.resources.emuGPU > 0",
            lambda way: not way.model or way.resources.gpus > 0,
            at="resources.emuGPU",
        ),
        Rule(
            f"resources: minEmuGPU and maxEmuGPU are for a {way} with a model, whose speed on any number of GPUs is known",
            f"has({path}.model) || !({_ranged('self')})",
            lambda way: way.model or not way.resources.ranged,
            at="resources",
        ),
        Rule(
            f"resources: minEmuGPU and maxEmuGPU go not together with {_STAGES_TEXT} of a {way}",
            f"!({_staged(path)}) || !({_ranged('self')})",
            lambda way: not way.staged or not way.resources.ranged,
            at="resources",
        ),
        Rule(
            "transferTime: a link serves all GPUs of the job that are behind it, for at most 10m of work together",
            holds=lambda way: way.stages.transfer_ns * max(1, way.resources.gpus) <= MAX_UNIT_NS,
            at=f"{path}.transferTime".removeprefix("self."),
        ),
    ]
    for name, amount in (("cpu", "cpu_milli"), ("memory", "memory_bytes")):
        rules.append(
            Rule(
                f"sensitivity.{name}: give resources.{name} too, the amount until a scheduler allocates another one",
                f"!has({path}.sensitivity) || !has({path}.sensitivity.{name}) || "
                f"(has(self.resources) && has(self.resources.{name}))",
                _has_amount(name, amount),
                at=f"{path}.sensitivity.{name}".removeprefix("self."),
            )
        )
    return tuple(rules)


def _has_amount(curve: str, amount: str) -> Callable[[Any], bool]:
    """Whether what has such a curve states the amount that it starts from."""
    return lambda way: way.curves is None or not getattr(way.curves, curve) or getattr(way.resources, amount) > 0


class Profile(Work):
    """The work of one configuration."""

    rules = _work_rules()


_GPU_TYPES = "GPU types that will do (names or aliases, as `emugpu gpus` lists them); any where this is absent."
GpuTypes = Annotated[tuple[GpuType, ...], Len(1, 32), IMMUTABLE]


class Configuration(Part):
    """One way to run: emulated amounts of each node, and the work. `gpus` 0: on CPUs alone. `gpu_types` empty: any."""

    rules = _amount_rules("self.profile", "configuration")
    name: Annotated[
        str, text_type("^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "is no name: small letters, digits and -", most=63)
    ]
    resources: Annotated[Resources, IMMUTABLE] = Field(
        Resources.model_construct(),
        description="Emulated amounts of each node of the job; the pods' own requests are in spec.native.",
    )
    gpu_types: GpuTypes = Field((), description=_GPU_TYPES)
    profile: Profile = Field(description="What is trained.")

    @property
    def gpus(self) -> int:
        return self.resources.gpus

    @property
    def gpu_range(self) -> range:
        """The numbers of GPUs of each node on which it can run."""
        return range(self.resources.least_gpus or self.gpus, (self.resources.most_gpus or self.gpus) + 1)

    @property
    def elastic(self) -> bool:
        return len(self.gpu_range) > 1

    @property
    def cpu_milli(self) -> int:
        return self.resources.cpu_milli

    @property
    def memory_bytes(self) -> int:
        return self.resources.memory_bytes

    @property
    def model(self) -> str:
        """Empty: steps of `step_time_ns`."""
        return self.profile.model

    @property
    def batch_size(self) -> int:
        """Of the whole job."""
        return self.profile.batch_size

    @property
    def step_time_ns(self) -> int:
        """At speed 1 of the `sensitivity`, if there is one."""
        return self.profile.step_time_ns

    @property
    def gpu_memory_bytes(self) -> int:
        return self.profile.gpu_memory_bytes

    @property
    def stages(self) -> StageTimes:
        return self.profile.stages

    @property
    def host_ns(self) -> int:
        """Of the host before each step, while the GPUs wait."""
        return self.profile.host_ns

    @property
    def input_cpu_ns(self) -> int:
        """CPU time of the input of one step, on all nodes together."""
        return self.profile.input_cpu_ns

    @property
    def staged(self) -> bool:
        return self.profile.staged

    def timed_work(self, steps: int) -> domain.TimedWork:
        """The work of so many steps without a model."""
        duration_s, host_s = to_s((self.step_time_ns + self.host_ns) * steps), to_s(self.host_ns)
        return domain.TimedWork(duration_s, self.sensitivity, host_s, self.stages)

    @property
    def curves(self) -> Curves | None:
        return self.profile.curves

    @cached_property
    def sensitivity(self) -> Sensitivity | None:
        return self.curves.sensitivity if self.curves is not None else None


class Program(Part):
    """spec.program: what the pod runs, in place of emulated training."""

    command: Annotated[tuple[Annotated[StrictStr, Schema(maxLength=4096)], ...], Len(1, 256)] = Field(
        description="The command. {steps} in it is replaced by spec.steps, {batch} by the samples of a step on each GPU."
    )
    files: Reference = Field(
        "",
        description="A ConfigMap in the job's namespace; its keys are files in /program, where the command runs.",
    )
    resumes: StrictBool = Field(
        False,
        description="Whether the program ends with a checkpoint when it gets SIGTERM, and goes on there when it is started "
        "again. Otherwise a job that was preempted begins anew.",
    )

    def words(self, steps: int, batch_size: int) -> tuple[str, ...]:
        """The command of a job with so many steps, of so many samples on each GPU."""
        return domain.Program(self.command).words(steps, batch_size)


class Scheduling(Part):
    """spec.scheduler: who decides where and when the job runs."""

    rules = (
        Rule(
            "scheduler: a name belongs to an actuator (jobs, gated or binding), and an actuator needs a name",
            "(self.actuator == 'none') == (self.name == '')",
            lambda scheduling: (scheduling.actuator == "none") == (not scheduling.name),
        ),
        Rule(
            "scheduler.schedulerName: with actuator binding the pods need a scheduler's name of their own",
            "self.actuator != 'binding' || self.schedulerName != 'default-scheduler'",
            lambda scheduling: scheduling.actuator != "binding" or scheduling.pod_scheduler != DEFAULT_SCHEDULER,
            at="schedulerName",
        ),
    )
    actuator: Actuator = served(
        "none",
        "How a job-level scheduler acts. none: there is none, a Kubernetes scheduler places the pods at once. jobs: it "
        "resumes and suspends the Job. gated: it removes the pods' scheduling gate. binding: it binds the pods.",
    )
    name: Annotated[str, text_type("^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$", SCHEDULER_NAME_FORM, most=40)] = served(
        "", "The job-level scheduler that the job belongs to."
    )
    pod_scheduler: Word = served(DEFAULT_SCHEDULER, "The pods' schedulerName.", alias="schedulerName")


_OPTIONAL_AND_FROZEN = (
    *("tenant", "image", "imagePullPolicy", "template", "configurations", "resources", "gpuType", "gpuTypes"),
    *("model", "stepTime", "memory", "sensitivity", "program", "profiles", *_STAGES),
)
_SHORT = ("resources", "model", "batchSize", "stepTime", "memory", "sensitivity", "gpuType", "gpuTypes", *_STAGES)
_SHORT_FIELDS = (
    "resources",
    "model",
    "batch_size",
    "step_time_ns",
    "gpu_memory_bytes",
    "curves",
    "gpu_type",
    "gpu_types",
    "fetch_ns",
    "input_cpu_ns",
    "transfer_ns",
    "host_ns",
    "exchange_ns",
)


_OWN_PROFILES = (size_rule,)
_ANY_RANGED = f"{_ranged('self')} || has(self.configurations) && self.configurations.exists(c, {_ranged('c')})"
"""CEL: whether a configuration of the job has a range of GPUs."""


def _has_gpus(path: str) -> str:
    """CEL: whether this job or configuration has GPUs."""
    return f"!has({path}.resources) || !has({path}.resources.emuGPU) || {path}.resources.emuGPU > 0"


class EmuJobSpec(Work):
    """What a user asks for. The short form (model and resources directly in the spec) is one configuration."""

    rules = (
        Rule(
            "write either spec.configurations, or one configuration directly (spec.resources with model and batchSize, or with "
            "stepTime)",
            f"has(self.configurations) != ({' || '.join(f'has(self.{name})' for name in _SHORT)})",
            lambda spec: spec.has("listed") != any(spec.has(name) for name in _SHORT_FIELDS),
        ),
        *_work_rules("has(self.configurations) || ", "listed"),
        *_amount_rules("self", "job"),
        Rule(
            "write either spec.gpuType or spec.gpuTypes",
            "!has(self.gpuType) || !has(self.gpuTypes)",
            lambda spec: not spec.gpu_type or not spec.gpu_types,
        ),
        Rule(
            "minEmuGPU and maxEmuGPU need scheduler.actuator jobs: a job-level scheduler chooses the number, and the pods of "
            "other actuators keep theirs",
            f"!({_ANY_RANGED}) || self.scheduler.actuator == 'jobs'",
            lambda spec: not spec.ranged or spec.actuator == "jobs",
        ),
        Rule(
            "minEmuGPU and maxEmuGPU need a model with the same batchSize in all configurations: progress is counted in samples",
            f"!({_ANY_RANGED}) || !has(self.configurations) || self.configurations.all(c, has(c.profile.batchSize) && "
            "c.profile.batchSize == self.configurations[0].profile.batchSize)",
            lambda spec: not spec.ranged or len({c.batch_size for c in spec.configurations}) == 1,
        ),
        Rule(
            f"minEmuGPU and maxEmuGPU: steps with batchSize samples each may have {MAX_SAMPLES} samples together",
            f"!({_ANY_RANGED}) || (has(self.batchSize) ? self.steps <= {MAX_SAMPLES} / self.batchSize : "
            "self.configurations.all(c, !has(c.profile.batchSize) || "
            f"self.steps <= {MAX_SAMPLES} / c.profile.batchSize))",
            lambda spec: not spec.ranged or spec.steps * spec.configurations[0].batch_size <= MAX_SAMPLES,
        ),
        Rule(
            "program: needs image, in which it runs",
            "!has(self.program) || has(self.image)",
            lambda spec: spec.program is None or spec.image,
            at="program",
        ),
        Rule(
            "program: runs on one node; leave nodes out",
            "!has(self.program) || self.nodes == 1",
            lambda spec: spec.program is None or spec.nodes == 1,
            at="program",
        ),
        Rule(
            "program: belongs to a job with one configuration, which has GPUs and no range of them",
            f"!has(self.program) || !({_ANY_RANGED}) && (!has(self.configurations) || self.configurations.size() == 1 && "
            f"({_has_gpus('self.configurations[0]')})) && ({_has_gpus('self')})",
            lambda spec: (
                spec.program is None
                or (len(spec.configurations) == 1 and not spec.ranged and spec.configurations[0].gpus > 0)
            ),
            at="program",
        ),
        Rule(
            f"program: does by itself what it does beside its kernels; leave {_STAGES_TEXT} out",
            f"!has(self.program) || !({_staged('self')}) && (!has(self.configurations) || "
            f"self.configurations.all(c, !({_staged('c.profile')})))",
            lambda spec: spec.program is None or not any(c.staged for c in spec.configurations),
            at="program",
        ),
        Rule(_FROZEN, " && ".join(f"has(self.{name}) == has(oldSelf.{name})" for name in _OPTIONAL_AND_FROZEN)),
    )
    tenant: Annotated[Line, IMMUTABLE] = Field(
        "", description="Who the job is counted for; the namespace where this is absent."
    )
    weight: Positive = served(1.0, "The job's share beside others, for policies that know weights.", schema_default=1)
    nodes: Annotated[Int32, Interval(ge=1, le=1024), IMMUTABLE] = served(
        1, "Pods of the job, each on a node of its own; more than one trains as distributed data parallel."
    )
    steps: Annotated[Int64, Interval(ge=1, le=2**40), IMMUTABLE] = Field(
        description="Training steps of the whole job, over all its runs."
    )
    image: Annotated[Image, IMMUTABLE] = Field(
        "",
        description="Image of the pods, whose entrypoint is the program `emugpu`; the operator's own where this is absent. With "
        "spec.program, the image in which that runs: Linux with glibc, and Python 3.11 or later.",
    )
    image_pull_policy: Annotated[Literal["", "Always", "IfNotPresent", "Never"], IMMUTABLE] = Field(
        "", json_schema_extra={"enum": ["Always", "IfNotPresent", "Never"]}
    )
    template: Annotated[Template, IMMUTABLE] = Field(
        Template.model_construct(), description="What is merged into the pods."
    )
    scheduling: Annotated[Scheduling, IMMUTABLE] = served(
        Scheduling.model_construct(),
        "Who decides where and when the job runs.",
        alias="scheduler",
        schema_default={"actuator": "none", "name": "", "schedulerName": DEFAULT_SCHEDULER},
    )
    listed: Annotated[
        tuple[Configuration, ...],
        Len(1, 8),
        IMMUTABLE,
        Schema(
            Rule("each needs a name of its own", holds=lambda listed: len({c.name for c in listed}) == len(listed)),
            x_kubernetes_list_type="map",
            x_kubernetes_list_map_keys=["name"],
        ),
    ] = Field(
        (),
        alias="configurations",
        description="The ways in which the job can run; the scheduler takes one, the first one that fits where there is no "
        "scheduler.",
    )
    resources: Annotated[Resources, IMMUTABLE] = Field(
        Resources.model_construct(),
        description="Emulated amounts of each node of the job; the pods' own requests are in spec.native.",
    )
    gpu_type: Annotated[GpuType, IMMUTABLE] = Field("", description="The one GPU type that will do.")
    gpu_types: GpuTypes = Field((), description=_GPU_TYPES)
    native: Annotated[Native, IMMUTABLE] = served(
        Native.model_construct(),
        "What the pods really request of their machine, and may use there; small, because nothing is computed.",
        schema_default={},
    )
    program: Annotated[Program, IMMUTABLE] | None = Field(
        None,
        description="A program that the pod runs in place of emulated training, on emulated CUDA devices. The rest of the spec "
        "says how long it takes.",
    )
    profiles: Annotated[dict[str, OwnProfile], Len(1, 8), IMMUTABLE, Schema(*_OWN_PROFILES)] = Field(
        {},
        description="Profiles of the job's own, by model, as `models` of a file of profiles has them (`emugpu profile "
        "from-trace`). They go before bundled ones.",
    )
    suspend: StrictBool = served(
        False,
        "Holds the job while it is true. Afterwards a job-level scheduler resumes it; without one it goes on at once.",
    )

    @cached_property
    def configurations(self) -> tuple[Configuration, ...]:
        """The ways to run, at least one."""
        if self.listed:
            return self.listed
        profile = Profile.model_construct(**{name: getattr(self, name) for name in Work.model_fields})
        types = (self.gpu_type,) if self.gpu_type else self.gpu_types
        return (
            Configuration.model_construct(
                name=DEFAULT_CONFIGURATION, resources=self.resources, gpu_types=types, profile=profile
            ),
        )

    @cached_property
    def own_profiles(self) -> Mapping[str, Any]:
        """As a file of profiles has them."""
        return {name: profile.document for name, profile in self.profiles.items()}

    @property
    def begins_anew(self) -> bool:
        """Whether a run that is stopped has done nothing for the job."""
        return self.program is not None and not self.program.resumes

    @property
    def ranged(self) -> bool:
        """Whether a configuration states a range of GPUs."""
        return any(configuration.resources.ranged for configuration in self.configurations)

    @property
    def elastic(self) -> bool:
        """Whether its scheduler chooses its GPUs and its batch size for each run. Then steps of two runs may differ in size."""
        return any(configuration.elastic for configuration in self.configurations)

    @property
    def unit(self) -> Literal["steps", "samples"]:
        """In what its progress is counted, by its pods, managers and status."""
        return "samples" if self.elastic else "steps"

    @property
    def length(self) -> int:
        """The whole job, in that unit."""
        return self.steps * (self.configurations[0].batch_size if self.elastic else 1)

    def configuration(self, name: str) -> Configuration:
        """The configuration of this name; the first one where there is none."""
        return next((c for c in self.configurations if c.name == name), self.configurations[0])

    @property
    def pull_policy(self) -> str:
        """Empty: the operator's own."""
        return self.image_pull_policy

    @property
    def actuator(self) -> str:
        return self.scheduling.actuator

    @property
    def scheduler(self) -> str:
        """The job-level scheduler; empty: there is none."""
        return self.scheduling.name

    @property
    def pod_scheduler(self) -> str:
        return self.scheduling.pod_scheduler


# -- status ------------------------------------------------------------------------------------------------------------


class ReconciledJob(Report):
    """status.job: what the controller remembers of the Job."""

    uid: StrictStr = ""
    run: StrictStr = Field("", description="When the present run began; empty while the Job is suspended.")
    rejected: StrictBool = Field(False, description="Whether a node rejected a pod of this Job.")


class AllocationStatus(Report):
    """What a scheduler gave the job."""

    configuration: StrictStr = ""
    nodes: Texts = ()
    gpus: Int32 = 0
    cpu: StrictStr = ""
    memory: StrictStr = ""
    devices: Texts = ()
    batch_size: Int64 = Field(0, description="Of an elastic job, the samples of one step of this run.")


class Predicted(Report):
    """A predicted JCT, in seconds."""

    keywords = {"required": ["value"]}
    value: StrictFloat | None = None
    by: StrictStr = ""
    at_ns: TimeNs | None = Field(None, alias="at")


class RunStatus(Report):
    """A stay of the job on a node. `to_ns` None: it goes on. `ended`: how."""

    keywords = {"required": ["node", "devices", "from", "fromStep", "toStep"]}
    node: StrictStr = ""
    devices: Texts = Field((), description="UUIDs.")
    from_ns: TimeNs | None = Field(None, alias="from")
    to_ns: TimeNs | None = Field(None, alias="to", description="Absent while it goes on.")
    from_step: Int64 = 0
    to_step: Int64 = Field(
        0, description="Steps that were done at its end, or until now; in samples if the job is elastic."
    )
    ended: StrictStr = Field(
        "", description="How: finished, released, gone, fenced, suspended, failed, or untold (no event said when)."
    )


class EmuJobStatus(Report):
    """What the controller says of the job. Times are nanoseconds since 1970; None: it hasn't happened or isn't known."""

    observed_generation: Int64 = 0
    phase: Phase | None = None
    job_name: StrictStr = Field("", description="The Job of this EmuJob.")
    job: ReconciledJob = Field(
        ReconciledJob.model_construct(), description="What the next reconciliation has to know of this one."
    )
    submitted_ns: TimeNs | None = Field(
        None, alias="submittedAt", description="When the operator first observed the EmuJob."
    )
    started_ns: TimeNs | None = Field(None, alias="startedAt")
    finished_ns: TimeNs | None = Field(None, alias="finishedAt")
    steps: Int64 = Field(0, description="The length of the job, in its progressUnit.")
    steps_done: Int64 = Field(0, description="As of the newest event; refreshed every few seconds while the job runs.")
    progress_unit: StrictStr = Field(
        "steps", description="In what steps, stepsDone and the runs count: samples for an elastic job, else steps."
    )
    steps_done_ns: TimeNs | None = Field(None, alias="stepsDoneAt", description="When that event happened.")
    progress: StrictStr = ""
    gpus: Int32 | None = None
    node: StrictStr = ""
    allocation: AllocationStatus = AllocationStatus.model_construct()
    preemptions: Int32 = Field(0, description="How often a job-level scheduler took the job's GPUs away.")
    rejections: Int32 = Field(0, description="How often a node rejected a pod; the Job was made anew each time.")
    failures: Int32 = Field(0, description="Pods of the present Job that failed.")
    predicted: Predicted = Field(Predicted.model_construct(), alias="predictedJCTSeconds")
    observed_jct_s: StrictFloat | None = Field(
        None,
        alias="observedJCTSeconds",
        description="From the submission to the end of the last step, of a job that has succeeded.",
    )
    queueing_delay_s: StrictFloat | None = Field(
        None,
        alias="queueingDelaySeconds",
        description="From the submission until the job held devices for the first time.",
    )
    service_s: StrictFloat | None = Field(
        None, alias="serviceSeconds", description="How long the job held devices until now."
    )
    slowdown: StrictFloat | None = Field(None, description="Its completion time over its run time alone.")
    fairness: StrictFloat | None = Field(
        None,
        description="Its completion time over that with an equal share of the cluster for itself (Themis' rho); above 1: it got "
        "less.",
    )
    runs: Annotated[tuple[RunStatus, ...], Schema(maxItems=20, x_kubernetes_list_type="atomic")] = Field(
        (), description="The stays of the job on nodes, the newest 20 in order of their beginning."
    )
    conditions: Conditions = ()

    @property
    def assumed_runs(self) -> tuple[RunStatus, ...]:
        """If no manager has reported runs: one on each node from the start to the end, exact if the job was never preempted.

        A node that isn't known is empty. None for a job that doesn't run any more and whose end isn't known.
        """
        finished_ns = self.finished_ns if self.phase in FINAL else None
        if self.runs or self.started_ns is None or (self.phase not in HOLDING and finished_ns is None):
            return ()
        nodes = self.allocation.nodes or tuple(filter(None, self.node.split(","))) or ("",)
        return tuple(
            RunStatus.model_construct(
                node=node,
                devices=self.allocation.devices if len(nodes) == 1 else (),
                from_ns=self.started_ns,
                to_ns=finished_ns,
                to_step=self.steps_done,
                ended={"Succeeded": "finished", "Failed": "failed"}.get(self.phase or "", ""),
            )
            for node in nodes
        )


# -- the resource ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class EmuJob:
    """One EmuJob. `spec_json`, `status_json`: as the API server has them. `created` is RFC 3339. `annotations`: emugpu's own.

    `seen_ns`: when this was received, in nanoseconds since 1970. `spec` is validated; the other properties are also known of an
    EmuJob whose specification is wrong: what is missing or odd there has its default.
    """

    key: Key
    created: str = ""
    generation: int = 1
    deleting: bool = False
    spec_json: Mapping[str, Any] = field(default_factory=dict)
    status_json: Mapping[str, Any] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    seen_ns: int = field(default=0, compare=False)

    DEFINITION: ClassVar[Definition]

    @classmethod
    def read(cls, document: Mapping[str, Any], seen_ns: int = 0) -> EmuJob:
        """An EmuJob as the API server sends it."""
        metadata = object_at(document, "metadata")
        annotations = texts_of(metadata, "annotations")
        return cls(
            key=key_of(document),
            created=text_at(metadata, "creationTimestamp"),
            generation=whole_at(metadata, "generation"),
            deleting="deletionTimestamp" in metadata,
            spec_json=object_at(document, "spec"),
            status_json=object_at(document, "status"),
            labels=texts_of(metadata, "labels"),
            annotations={key: text for key, text in annotations.items() if key.startswith("emugpu.dev/")},
            seen_ns=seen_ns,
        )

    @cached_property
    def spec(self) -> EmuJobSpec:
        """Raises InputError naming the EmuJob and the field; UnknownNameError for a GPU type that isn't known."""
        return parse_spec(self.key.namespace, self.key.name, self.spec_json)

    @cached_property
    def status(self) -> EmuJobStatus:
        return read_leniently(EmuJobStatus, self.status_json)

    @property
    def scheduler(self) -> str:
        """The job-level scheduler; empty: there is none."""
        return text_at(object_at(self.spec_json, "scheduler"), "name")

    @property
    def actuator(self) -> str:
        return text_at(object_at(self.spec_json, "scheduler"), "actuator") or "none"

    @property
    def pod_scheduler(self) -> str:
        return text_at(object_at(self.spec_json, "scheduler"), "schedulerName") or DEFAULT_SCHEDULER

    @property
    def suspended(self) -> bool:
        """Whether its owner holds it."""
        return self.spec_json.get("suspend") is True

    @property
    def nodes(self) -> int:
        return whole_at(self.spec_json, "nodes") or 1

    @property
    def steps(self) -> int:
        """0: not known."""
        return whole_at(self.spec_json, "steps")

    @property
    def tenant(self) -> str:
        return text_at(self.spec_json, "tenant") or self.key.namespace

    @property
    def phase(self) -> str:
        """Empty: the controller hasn't seen it."""
        return text_at(self.status_json, "phase")

    @property
    def experiment(self) -> str:
        """The label of the experiment, or of its run, that it belongs to (names.membership); empty: none."""
        return self.labels.get(EXPERIMENT_LABEL, "")

    @property
    def job_id(self) -> str:
        """Its name in the workload that it came from."""
        return self.annotations.get(JOB_ID, self.key.name)

    @property
    def row(self) -> int | None:
        """Its row in the workload that it came from; None without the annotation ROW."""
        text = self.annotations.get(ROW, "")
        return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else None

    @property
    def policy(self) -> str:
        """In a run of an experiment the policy's title, by the annotation of the program that submits the jobs; elsewhere the
        job-level scheduler's name, empty if there is none.

        The text becomes a metric's label, so tenants must not choose it: they don't create namespaces of runs.
        """
        in_run = self.key.namespace.startswith(RUN_NAMESPACE_PREFIX)
        return (self.annotations.get(POLICY, "")[:LONGEST_POLICY] if in_run else "") or self.scheduler

    @property
    def predicted(self) -> str:
        """The annotation of a prediction."""
        return self.annotations.get(PREDICTED, "")

    @property
    def scheduling_problem(self) -> str:
        """The annotation that says why its scheduler can't start it."""
        return self.annotations.get(SCHEDULING_PROBLEM, "")


def parse_spec(namespace: str, name: str, spec: object) -> EmuJobSpec:
    """The tenant is the namespace where none is given. Raises InputError naming the EmuJob and the field; UnknownNameError for a
    GPU type that isn't known."""
    filled = {"tenant": namespace, **spec} if isinstance(spec, dict) else spec
    return read_strictly(EmuJobSpec, filled, f"EmuJob {namespace}/{name}")


_PROGRESSING = '.status.conditions[?(@.type=="Progressing")].reason'

EmuJob.DEFINITION = Definition(
    kind="EmuJob",
    plural="emujobs",
    short_name="ej",
    scope="Namespaced",
    description="Trains a model for a number of steps on emulated GPUs, and reports when it started, its progress and how long "
    "it took.",
    spec=EmuJobSpec,
    status=EmuJobStatus,
    columns=(
        Column("Phase", "string", ".status.phase", "Where the job is between submission and its end"),
        Column("GPUs", "integer", ".status.gpus", "Emulated GPUs of the whole job"),
        Column("Progress", "string", ".status.progress", "Steps done of all steps; samples if the job is elastic"),
        Column("Predicted", "number", ".status.predictedJCTSeconds.value", "Seconds predicted at submission"),
        Column("Observed", "number", ".status.observedJCTSeconds", "Observed job completion time in seconds"),
        Column("Node", "string", ".status.node", "Where its pods run"),
        Column("Age", "date", ".metadata.creationTimestamp"),
        Column("Preemptions", "integer", ".status.preemptions", "How often a scheduler took its GPUs away", 1),
        Column("Reason", "string", _PROGRESSING, "Why it runs or waits", 1),
    ),
    rules=(
        Rule(
            "metadata.name: 50 characters at most, small letters, digits and -, beginning with a letter: pods and a Service are "
            "named after it",
            "size(self.metadata.name) <= 50 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
        ),
    ),
)
