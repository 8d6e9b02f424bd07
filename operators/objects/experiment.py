"""SchedulingExperiment: a workload under several scheduling policies, predicted and observed one after the other."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from annotated_types import Interval, Len
from pydantic import Field, StrictBool, StrictStr, create_model

from emulator_runtime.domain.units import MAX_SECONDS
from operators.kube.documents import Key, key_of, object_at, text_at, texts_of, whole_at
from operators.objects.custom_resource import (
    Column,
    Definition,
    Part,
    Report,
    Rule,
    Scalar,
    Schema,
    problem,
    read_leniently,
    read_strictly,
    served,
)
from operators.objects.forms import Conditions, Int32, Int64, Texts, TimeNs, text_type
from operators.objects.names import ExperimentPhase, SchedulerActuator

LEAST_STRETCH = 0.0001
"""Below it no job is long enough to be compared with a cluster: its pods take seconds to start."""
_COSTS = (
    "submit",
    "serialSubmit",
    "coalesce",
    "decide",
    "start",
    "warmUp",
    "serialStart",
    "sharedStart",
    "checkpoint",
    "restore",
    "stop",
    "serialStop",
    "sharedStop",
    "finish",
)
"""The durations that spec.costs can name, without the unit."""
COSTS = {
    **{
        f"{name}Seconds": "".join(f"_{each.lower()}" if each.isupper() else each for each in name) + "_s"
        for name in _COSTS
    },
    "hostSlots": "host_slots",
}
"""Members of spec.costs, and what a cluster file calls them."""
_FROZEN = (
    "only spec.suspend and spec.ttlSecondsAfterFinished can be changed; delete the experiment and make another one"
)
IMMUTABLE = Schema(Rule(_FROZEN, "self == oldSelf"))


_DECIMAL = re.compile("^[0-9]+([.][0-9]+)?$", re.ASCII)


def _decimal_type(least: float, range_cel: tuple[str, str], message: str) -> Scalar:
    """A number, written as text where it isn't whole: floats don't survive every client (Kubernetes API conventions).

    `range_cel`: the condition on a text's double and on a whole number.
    """

    def read(value: object) -> float:
        text = str(value) if isinstance(value, str) or type(value) is int else ""
        number = float(text) if _DECIMAL.fullmatch(text) else -1.0
        if not least <= number <= MAX_SECONDS:
            raise problem(f"must be a number from {least:g} to {MAX_SECONDS:.0f}, such as 4 or '0.5', not {value!r}")
        return number

    of_text, of_number = range_cel
    cel = f"type(self) == string ? self.matches('{_DECIMAL.pattern}') && {of_text} : {of_number}"
    return Scalar(read, {"x-kubernetes-int-or-string": True, "maxLength": 16}, (Rule(message, cel),))


Cost = Annotated[
    float,
    _decimal_type(
        0.0,
        ("double(self) <= 100000000.0", "self >= 0 && self <= 100000000"),
        "costs: write a number from 0 to 100000000, such as 2 or '0.5'",
    ),
]
Stretch = Annotated[
    float,
    _decimal_type(
        LEAST_STRETCH,
        ("double(self) >= 0.0001 && double(self) <= 100000000.0", "self >= 1 && self <= 100000000"),
        "spec.stretch: must be a number from 0.0001 to 100000000, such as 4 or '0.5'",
    ),
]


class ConfigMapKey(Part):
    """A key of a ConfigMap in the experiment's namespace."""

    name: Annotated[str, text_type(least=1, most=253)]
    key: Annotated[str, text_type(least=1, most=253)]


class _Source(Part):
    """A text: as it is, or a key of a ConfigMap."""

    rules = (
        Rule(
            "give the text either inline or by configMapKeyRef",
            "has(self.inline) != has(self.configMapKeyRef)",
            lambda source: source.has("text") != source.has("reference"),
        ),
    )

    if TYPE_CHECKING:
        text: str
        reference: ConfigMapKey | None

    @property
    def config_map(self) -> str:
        """The ConfigMap's name; empty: the text is inline."""
        return self.reference.name if self.reference is not None else ""

    @property
    def key(self) -> str:
        return self.reference.key if self.reference is not None else ""


class Workload(_Source):
    """spec.workload."""

    text: Annotated[str, text_type(least=1, most=524288)] = Field("", alias="inline", description="The text itself.")
    reference: ConfigMapKey | None = Field(
        None, alias="configMapKeyRef", description="A key of a ConfigMap in the same namespace."
    )


class ClusterFile(_Source):
    """spec.cluster."""

    text: Annotated[str, text_type(least=1, most=65536)] = Field("", alias="inline")
    reference: ConfigMapKey | None = Field(None, alias="configMapKeyRef")


class ProfilesFile(_Source):
    """spec.profiles."""

    text: Annotated[str, text_type(least=1, most=262144)] = Field("", alias="inline")
    reference: ConfigMapKey | None = Field(None, alias="configMapKeyRef")


Source = Workload | ClusterFile | ProfilesFile

Costs: type[Part] = create_model(
    "Costs", __base__=Part, **{name: (Cost | None, Field(None, alias=alias)) for alias, name in COSTS.items()}
)  # type: ignore[call-overload]

_OPTION = r" *[A-Za-z_][A-Za-z0-9_]* *= *[^,=\x00-\x20\x7f]+ *"
_POLICY = f"^[a-z][a-z0-9-]*(:{_OPTION}(,{_OPTION})*)?$"


def _all_match(pattern: str) -> Any:
    form = re.compile(pattern, re.ASCII)
    return lambda texts: all(form.fullmatch(text) for text in texts)


def _is_file(policy: str) -> bool:
    return ".py" in policy or "/" in policy


_NO_NUMBER = "(?i)= *[+-]?(nan|inf|infinity) *(,|$)"
_POLICIES = Schema(
    Rule(_FROZEN, "self == oldSelf"),
    Rule(
        "spec.policies: name at least one policy, such as fifo (`emugpu policies` lists them)",
        "size(self) >= 1",
        lambda policies: len(policies) >= 1,
    ),
    Rule(
        "spec.policies: a policy file is no part of the runner's image; it runs with `emugpu compare --on kubernetes`",
        "self.all(p, !p.contains('.py') && !p.contains('/'))",
        lambda policies: not any(map(_is_file, policies)),
    ),
    Rule(
        "spec.policies: write NAME or NAME:OPTION=VALUE,..., such as las:threshold_s=300",
        f"self.all(p, p.contains('.py') || p.contains('/') || p.matches('{_POLICY}'))",
        _all_match(_POLICY),
    ),
    Rule(
        "spec.policies: an option's value can't be nan or inf",
        f"self.all(p, !p.matches('{_NO_NUMBER}'))",
        lambda policies: not any(re.search(_NO_NUMBER, policy, re.ASCII) for policy in policies),
    ),
    Rule("names a policy twice", holds=lambda policies: len(set(policies)) == len(policies)),
    x_kubernetes_list_type="set",
)
_POD_SCHEDULER = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*$"
PodScheduler = Annotated[
    str, text_type(_POD_SCHEDULER, "is no scheduler's name: small letters, digits, - and .", most=63)
]


class ExperimentSpec(Part):
    """`policies` as on the command line. `cluster` None: the pools' nodes. `stated_costs` None: measured with probe jobs."""

    rules = (
        Rule(
            _FROZEN,
            " && ".join(
                f"has(self.{name}) == has(oldSelf.{name})" for name in ("podSchedulers", "cluster", "profiles", "costs")
            ),
        ),
        Rule(
            "spec.podSchedulers: a name can't be that of a policy as well",
            "!has(self.podSchedulers) || self.podSchedulers.all(s, !(s in self.policies))",
            lambda spec: not set(spec.pod_schedulers) & set(spec.policies),
            at="podSchedulers",
        ),
    )
    workload: Annotated[Workload, IMMUTABLE] = Field(description="The jobs, as the CSV file of `emugpu compare`.")
    policies: Annotated[tuple[Annotated[str, text_type(least=1, most=128)], ...], Len(max_length=16), _POLICIES] = (
        Field(description="Policies with their options as on the command line, such as las:threshold_s=300.")
    )
    pod_schedulers: Annotated[
        tuple[PodScheduler, ...],
        Len(1, 8),
        IMMUTABLE,
        Schema(
            Rule("names a scheduler twice", holds=lambda names: len(set(names)) == len(names)),
            x_kubernetes_list_type="set",
        ),
    ] = Field(
        (),
        description="Schedulers of pods (schedulerName) that run in the cluster, default-scheduler among them; they are observed "
        "only, with the jobs' GPU configurations.",
    )
    cluster: Annotated[ClusterFile, IMMUTABLE] | None = Field(
        None,
        description="A cluster file that the cluster must be like, or the experiment fails. Absent: the nodes of the pools.",
    )
    profiles: Annotated[ProfilesFile, IMMUTABLE] | None = Field(
        None,
        description="Profiles of models beside the bundled ones, as in a file of --profiles; for this experiment only.",
    )
    repeats: Annotated[Int32, Interval(ge=1, le=20), IMMUTABLE] = served(1, "Observed runs of each policy.")
    stretch: Annotated[Stretch, IMMUTABLE] = served(
        1.0,
        "Factor for all submit times and durations. Longer jobs say more about policies, and less about starting pods.",
        schema_default=1,
    )
    estimates: Annotated[
        str,
        text_type(
            "^(oracle|none|error:[0-9]([.][0-9]+)?)$",
            "is none of oracle, none, error:SIGMA with SIGMA from 0 to below 10 (such as error:0.2)",
            most=32,
        ),
        IMMUTABLE,
    ] = served("oracle", "What policies know of run times: oracle, none, or error:SIGMA with SIGMA from 0 to below 10.")
    seed: Annotated[Int64, Interval(ge=0, le=2**53 - 1), IMMUTABLE] = served(
        0, "Of everything that is drawn by chance."
    )
    stated_costs: Annotated[Costs, IMMUTABLE] | None = Field(  # type: ignore[valid-type]
        None,
        alias="costs",
        description="What scheduling actions take on this cluster, in seconds, for the predictions. Absent: measured with probe "
        "jobs beforehand (about two minutes).",
    )
    actuator: Annotated[SchedulerActuator, IMMUTABLE] = served(
        "jobs", "How the policies' jobs are started and stopped."
    )
    retries: Annotated[Int32, Interval(ge=0, le=10), IMMUTABLE] = served(
        3, "How often a runner that has failed is started again; it continues with the runs that are missing."
    )
    suspend: StrictBool = served(
        False, "Holds the experiment while it is true. A run that is interrupted by it starts anew afterwards."
    )
    ttl_s: Annotated[Int32, Interval(ge=0)] | None = Field(
        None,
        alias="ttlSecondsAfterFinished",
        description="Seconds after its end at which the experiment is deleted, with its report. Absent: never.",
    )

    @property
    def columns(self) -> tuple[str, ...]:
        """What is compared: policies, then the schedulers that are observed only."""
        return (*self.policies, *self.pod_schedulers)

    @cached_property
    def costs(self) -> Mapping[str, float] | None:
        """Those that are given, by the names of a cluster file; None: they are measured."""
        return self.stated_costs.model_dump(exclude_unset=True) if self.stated_costs is not None else None


class Progress(Report):
    """status.progress: the state of the runner."""

    stage: Literal["Preparing", "Calibrating", "Predicting", "Observing", "Done"] | None = None
    policy: StrictStr = ""
    repeat: Int32 = 0
    jobs_ended: Int32 = 0
    jobs: Int32 = 0
    problem: StrictStr = Field(
        "", description="What keeps the runner from going on, such as a job that fits on no node."
    )
    at_ns: TimeNs | None = Field(None, alias="at", description="When the runner reported this.")


def _decimal(alias: str) -> Any:
    return Field("", alias=alias)


class Figures(Report):
    """What a column comes to, predicted or observed: decimal texts, in seconds."""

    mean_jct: StrictStr = _decimal("meanJCTSeconds")
    median_jct: StrictStr = _decimal("medianJCTSeconds")
    p95_jct: StrictStr = _decimal("p95JCTSeconds")
    makespan: StrictStr = _decimal("makespanSeconds")
    mean_queueing_delay: StrictStr = _decimal("meanQueueingDelaySeconds")
    ratio: StrictStr = Field("", description="Its mean JCT over the first column's.")


class Errors(Report):
    """How wrong a prediction is: decimal texts."""

    mean_jct: StrictStr = _decimal("meanJCT")
    median_jct: StrictStr = _decimal("medianJCT")
    p95_jct: StrictStr = _decimal("p95JCT")
    makespan: StrictStr = ""
    jct_quantiles_max: StrictStr = ""
    per_job_p95: StrictStr = Field("", alias="perJobP95", description="95% of the jobs have a smaller error.")


class ResultColumn(Report):
    """An element of status.results."""

    name: StrictStr
    kind: Literal["Policy", "PodScheduler"]
    repeats: Int32 = Field(0, description="Runs that were observed.")
    failed_jobs: Int32 = Field(0, description="In observed runs, all repeats together.")
    predicted: Figures | None = None
    observed: Figures | None = None
    errors: Errors | None = Field(
        None,
        description="(predicted - observed) / observed; jctQuantilesMax: the largest over the quantiles of the sorted JCTs.",
    )
    spearman: StrictStr = Field("", description="Rank correlation of predicted and observed JCTs of the jobs.")


class StoredReport(Report):
    """status.report: where the report is."""

    config_map: StrictStr = ""
    keys: Texts = ()
    left_out: StrictStr = Field("", description="What there was no room for.")


class ExperimentStatus(Report):
    """How far an experiment is, and its results."""

    observed_generation: Int64 = 0
    phase: ExperimentPhase | None = None
    policies: Int32 = Field(0, description="Columns that are compared.")
    done: Int32 = Field(0, description="Columns that are complete.")
    doing: StrictStr = Field("", description="The present activity, for people.")
    progress: Progress = Field(Progress.model_construct(), description="The state of its runner.")
    attempts: Int32 = Field(0, description="How often a runner was started.")
    runner: StrictStr = Field("", description="The runner's Job, in the operator's namespace.")
    nodes: Int32 = Field(0, description="Of the cluster, as simulated.")
    gpus: Int32 = 0
    best: StrictStr = Field("", description="The column with the smallest observed mean JCT.")
    error: StrictStr = Field("", description="The largest error of a mean JCT, without its sign.")
    started_ns: TimeNs | None = Field(None, alias="startedAt")
    finished_ns: TimeNs | None = Field(None, alias="finishedAt")
    calibration: dict[str, StrictStr] = Field(
        {},
        description="What scheduling actions take on this cluster, as measured: seconds, and numbers of slots, as decimal texts.",
    )
    results: Annotated[
        tuple[ResultColumn, ...],
        Schema(maxItems=24, x_kubernetes_list_type="map", x_kubernetes_list_map_keys=["name"]),
    ] = Field((), description="Decimal texts: floating-point numbers don't survive every client.")
    report: StoredReport = StoredReport.model_construct()
    conditions: Conditions = ()


@dataclass(frozen=True)
class Experiment:
    """One SchedulingExperiment. `spec_json`, `status_json`: as the API server has them. `created`: RFC 3339."""

    key: Key
    created: str = ""
    generation: int = 1
    deleting: bool = False
    finalizers: tuple[str, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)
    spec_json: Mapping[str, Any] = field(default_factory=dict)
    status_json: Mapping[str, Any] = field(default_factory=dict)

    DEFINITION: ClassVar[Definition]

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Experiment:
        """A SchedulingExperiment as the API server sends it."""
        metadata = object_at(document, "metadata")
        finalizers = metadata.get("finalizers")
        return cls(
            key=key_of(document),
            created=text_at(metadata, "creationTimestamp"),
            generation=whole_at(metadata, "generation"),
            deleting="deletionTimestamp" in metadata,
            finalizers=tuple(str(each) for each in finalizers) if isinstance(finalizers, list) else (),
            annotations=texts_of(metadata, "annotations"),
            spec_json=object_at(document, "spec"),
            status_json=object_at(document, "status"),
        )

    @cached_property
    def spec(self) -> ExperimentSpec:
        """Raises InputError that names the field."""
        return parse_spec(self.spec_json)

    @cached_property
    def status(self) -> ExperimentStatus:
        return read_leniently(ExperimentStatus, self.status_json)

    @property
    def phase(self) -> str:
        return text_at(self.status_json, "phase")


def parse_spec(spec: object, place: str = "") -> ExperimentSpec:
    """Raises InputError that names the field."""
    return read_strictly(ExperimentSpec, spec, place)


Experiment.DEFINITION = Definition(
    kind="SchedulingExperiment",
    plural="schedulingexperiments",
    short_name="sexp",
    scope="Namespaced",
    description="Runs a workload under several scheduling policies, each predicted by the simulator and observed on the cluster, "
    "one after the other. One experiment runs at a time; it needs the cluster's emulated GPUs for itself.",
    spec=ExperimentSpec,
    status=ExperimentStatus,
    columns=(
        Column("Phase", "string", ".status.phase", "Where the experiment is between submission and its end"),
        Column("Policies", "integer", ".status.policies", "Policies and schedulers of pods that are compared"),
        Column("Done", "integer", ".status.done", "How many of them are complete"),
        Column("Best", "string", ".status.best", "With the smallest observed mean JCT until now"),
        Column("Error", "string", ".status.error", "The largest error of a predicted mean JCT until now"),
        Column("Age", "date", ".metadata.creationTimestamp"),
        Column("Doing", "string", ".status.doing", "The present activity of its runner", 1),
        Column("Attempts", "integer", ".status.attempts", "How often a runner was started", 1),
    ),
    rules=(
        Rule(
            "metadata.name: 50 characters at most, small letters, digits and -, beginning with a letter: a Job and a "
            "ConfigMap are named after it",
            "size(self.metadata.name) <= 50 && self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
        ),
    ),
)
