"""The data of the API: the same types make the snapshot, the replies and the OpenAPI document.

They are plain dataclasses, since tens of thousands are created without validation; `Field` descriptions are for the OpenAPI
document. All times are seconds on the source's clock: since 1970 (`wall`), or since the run's start (`emulated`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Literal, get_args

from pydantic import Field

from operators.objects.names import Phase

Clock = Literal["wall", "emulated"]
Kind = Literal["EmuJob", "Job", "Pod"]
KINDS: tuple[Kind, ...] = get_args(Kind)

Seconds = Annotated[float | None, Field(description="Seconds; null: not known yet.")]
Place = Annotated[
    str, Field(description="NODE/INDEX of a device, NODE/cpu for a node's CPUs; a UUID if the node no longer exists.")
]


@dataclass(frozen=True, slots=True)
class Job:
    """One job, on Kubernetes, on a local cluster of processes, or in the simulator."""

    uid: Annotated[
        str, Field(description="Identifies the job in paths and cursors.", examples=["9f1c2b7a4d5e6f708192"])
    ]
    name: Annotated[str, Field(examples=["bert-1"])]
    run: Annotated[
        str, Field(description="The run of an experiment that it belongs to; empty: none.", examples=["demo.1"])
    ]
    submitted_s: Annotated[
        float, Field(description="When the operator first observed it; in a comparison, its submission.")
    ]
    phase: Phase = "Pending"
    namespace: str = ""
    tenant: Annotated[str, Field(description="The tenant to which the job is attributed.")] = ""
    experiment: str = ""
    policy: Annotated[str, Field(description="The job-level scheduler or policy that places it; empty: none.")] = ""
    cluster: Annotated[str, Field(description="Where it ran: kubernetes, local or simulated.")] = "kubernetes"
    reason: Annotated[str, Field(description="Why it waits, was rejected or failed; empty: no reason is known.")] = ""
    gpus: Annotated[int | None, Field(description="Emulated GPUs of the whole job.")] = None
    steps: Annotated[int | None, Field(description="Training steps of the whole job, or its samples; see unit.")] = None
    steps_done: int | None = None
    unit: Annotated[
        str,
        Field(
            description="In what progress is counted, here, in runs and in progress: steps; samples of an elastic job."
        ),
    ] = "steps"
    nodes: tuple[str, ...] = ()
    devices: Annotated[tuple[Place, ...], Field(description="The devices that it holds, or held last.")] = ()
    started_s: Seconds = None
    finished_s: Seconds = None
    jct_s: Annotated[float | None, Field(description="Job completion time: end - submission.")] = None
    predicted_jct_s: Annotated[float | None, Field(description="The JCT that the simulator predicted.")] = None
    predicted_by: Annotated[str, Field(description="The policy that was simulated.")] = ""
    error: Annotated[
        float | None, Field(description="(predicted - observed) / observed; null unless both are known.")
    ] = None
    queueing_delay_s: Annotated[
        float | None, Field(description="From submission until it held devices for the first time.")
    ] = None
    service_s: Annotated[float | None, Field(description="How long it held devices.")] = None
    slowdown: Annotated[float | None, Field(description="JCT over its run time alone.")] = None
    fairness: Annotated[float | None, Field(description="Finish-time fairness rho (Themis); 1 is fair.")] = None
    preemptions: int = 0
    suspended: Annotated[bool, Field(description="Whether spec.suspend is set.")] = False
    deleted: Annotated[bool, Field(description="Whether it has no EmuJob (any more).")] = False
    kind: Annotated[
        Kind, Field(description="The Kubernetes object: an EmuJob, or a plain Job or Pod with devices.")
    ] = "EmuJob"


@dataclass(frozen=True, slots=True)
class JobRun:
    """One run of a job on a node's devices. `to_s` null: it continues. Steps null: not known."""

    node: str
    devices: tuple[Place, ...]
    from_s: float
    to_s: Seconds = None
    from_step: int | None = None
    to_step: int | None = None
    ended: Annotated[
        str,
        Field(
            description="How it ended: finished, released, failed, untold (not reported), ...; empty while it continues."
        ),
    ] = ""
    exact: Annotated[bool, Field(description="False: only the first start and the end are known.")] = True


@dataclass(frozen=True, slots=True)
class Progress:
    """The steps [from_step, to_step) were done between these times."""

    from_s: float
    to_s: float
    from_step: int
    to_step: int
    node: str = ""


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition of the EmuJob's status."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    since_s: Seconds = None


@dataclass(frozen=True, slots=True)
class Timeline:
    """The history of one job. `missing`: why the results store's part is missing; empty: it isn't."""

    job: Job
    runs: tuple[JobRun, ...] = ()
    progress: tuple[Progress, ...] = ()
    conditions: tuple[Condition, ...] = ()
    notes: Annotated[tuple[str, ...], Field(description="What may distort the job's figures.")] = ()
    missing: str = ""


@dataclass(frozen=True, slots=True)
class Device:
    """An emulated GPU, or the CPUs of a node on which jobs ran (`index` null)."""

    id: Place
    node: str
    index: int | None
    uuid: str = ""
    gpu_type: str = ""
    memory_bytes: int | None = None
    healthy: bool = True
    reason: str = ""
    holders: Annotated[
        tuple[str, ...], Field(description="UIDs of the jobs that hold it now and that the caller may see.")
    ] = ()
    held: Annotated[bool, Field(description="Whether any job holds it now.")] = False


@dataclass(frozen=True, slots=True)
class Node:
    """A node with emulated devices. CPUs and memory are the emulated amounts that schedulers divide."""

    name: str
    pool: str = ""
    ready: bool = True
    gpu_types: tuple[str, ...] = ()
    devices: int = 0
    unhealthy: int = 0
    held: Annotated[int, Field(description="Devices that jobs hold now.")] = 0
    cpu_milli: int | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Run:
    """One run of an experiment: a policy on a cluster, once."""

    id: Annotated[str, Field(examples=["demo.1"])]
    experiment: str
    policy: str
    cluster: Annotated[str, Field(description="kubernetes, local or simulated.")]
    repeat: int = 0


@dataclass(frozen=True, slots=True)
class Experiment:
    """Runs of the same jobs under several policies. `meta`: properties of the comparison, as texts."""

    id: Annotated[
        str, Field(description="In a cluster NAMESPACE.LABEL, or the id of a comparison.", examples=["lab.demo"])
    ]
    runs: tuple[Run, ...]
    meta: Mapping[str, str] = field(default_factory=dict)
    namespace: Annotated[
        str, Field(description="The namespace of its jobs; empty: each run has a namespace of its own.")
    ] = ""


@dataclass(frozen=True, slots=True)
class Cluster:
    """The cluster or the comparisons that this API serves. `problem`: why its data may be out of date; empty: they aren't."""

    id: Annotated[str, Field(examples=["kubernetes"])]
    kind: Literal["kubernetes", "comparison"]
    clock: Clock
    title: str
    writable: Annotated[bool, Field(description="Whether jobs can be suspended and resumed here.")]
    problem: str = ""


@dataclass(frozen=True)
class Snapshot:
    """The state at one moment. `version` grows with every change. `jobs` are ordered by submission, then uid; `missing`: why jobs
    without an EmuJob may be missing among them; empty: they aren't."""

    version: int
    cluster: Cluster
    now: Callable[[], float]
    jobs: tuple[Job, ...] = ()
    runs: Mapping[str, tuple[JobRun, ...]] = field(default_factory=dict)
    nodes: tuple[Node, ...] = ()
    devices: tuple[Device, ...] = ()
    experiments: tuple[Experiment, ...] = ()
    missing: str = ""

    @property
    def now_s(self) -> float:
        """The time on the source's clock."""
        return self.now()

    @cached_property
    def _by_uid(self) -> Mapping[str, Job]:
        return {job.uid: job for job in self.jobs}

    def job(self, uid: str) -> Job | None:
        """The job; None if there is none."""
        return self._by_uid.get(uid)

    def runs_of(self, uid: str) -> tuple[JobRun, ...]:
        """The runs of a job."""
        return self.runs.get(uid, ())
