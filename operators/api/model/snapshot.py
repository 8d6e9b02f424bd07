"""What the API tells, as facts: the same types go into a snapshot, the replies and the OpenAPI document.

They are plain dataclasses (made by the ten thousand without validation); what their annotations say beside the type is for the
document. All times are seconds on the source's clock: since 1970 where it's `wall`, since the run's start where it's `emulated`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Literal

from pydantic import Field

from operators.objects.names import Phase

Clock = Literal["wall", "emulated"]
Kind = Literal["EmuJob", "Job", "Pod"]
KINDS: tuple[Kind, ...] = ("EmuJob", "Job", "Pod")
WAITING: tuple[Phase, ...] = ("Pending", "Queued", "Preempted")
HOLDING: tuple[Phase, ...] = ("Starting", "Running")

Seconds = Annotated[float | None, Field(description="Seconds; null: not known yet.")]
Place = Annotated[
    str, Field(description="NODE/INDEX of a device, NODE/cpu of a node's CPUs; a UUID where the node is gone.")
]


@dataclass(frozen=True, slots=True)
class Job:
    """One job of one run of a cluster: of Kubernetes, of a local cluster of processes, or of the simulator."""

    uid: Annotated[str, Field(description="Names it in paths and cursors.", examples=["9f1c2b7a4d5e6f708192"])]
    name: Annotated[str, Field(examples=["bert-1"])]
    run: Annotated[
        str, Field(description="Which run it belongs to; empty: none, it was just submitted.", examples=["demo.1"])
    ]
    submitted_s: Annotated[float, Field(description="When the operator, or the run, saw it first.")]
    phase: Phase = "Pending"
    namespace: str = ""
    tenant: Annotated[str, Field(description="Who it is counted for.")] = ""
    experiment: str = ""
    policy: Annotated[str, Field(description="The scheduler that places it; empty: no job-level one.")] = ""
    cluster: Annotated[str, Field(description="Where it ran: kubernetes, local or simulated.")] = "kubernetes"
    reason: Annotated[str, Field(description="Why it waits, was refused or failed; empty: nothing to say.")] = ""
    gpus: Annotated[int | None, Field(description="Emulated GPUs of the whole job.")] = None
    steps: Annotated[int | None, Field(description="Training steps of the whole job.")] = None
    steps_done: int | None = None
    nodes: tuple[str, ...] = ()
    devices: Annotated[tuple[Place, ...], Field(description="Where it is, or was last.")] = ()
    started_s: Seconds = None
    finished_s: Seconds = None
    jct_s: Annotated[float | None, Field(description="Job completion time: its end less its submission.")] = None
    predicted_jct_s: Annotated[float | None, Field(description="The simulator's word on it.")] = None
    predicted_by: Annotated[str, Field(description="The policy that the simulator ran.")] = ""
    error: Annotated[float | None, Field(description="(predicted - observed) / observed; null: not both known.")] = None
    queueing_delay_s: Annotated[
        float | None, Field(description="From submission until it held devices for the first time.")
    ] = None
    service_s: Annotated[float | None, Field(description="How long it held devices.")] = None
    slowdown: Annotated[float | None, Field(description="JCT over its run time alone.")] = None
    fairness: Annotated[float | None, Field(description="Finish-time fairness rho (Themis); 1 is fair.")] = None
    preemptions: int = 0
    suspended: Annotated[bool, Field(description="Whether spec.suspend holds it.")] = False
    deleted: Annotated[bool, Field(description="Whether it has no EmuJob, or not any more.")] = False
    kind: Annotated[
        Kind, Field(description="The Kubernetes object: an EmuJob, or a plain Job or Pod with devices.")
    ] = "EmuJob"


@dataclass(frozen=True, slots=True)
class JobRun:
    """One stay of a job on a node's devices. `to_s` null: it goes on. Steps null: nothing tells."""

    node: str
    devices: tuple[Place, ...]
    from_s: float
    to_s: Seconds = None
    from_step: int | None = None
    to_step: int | None = None
    ended: Annotated[
        str, Field(description="How: finished, released, failed, untold, ...; empty while it goes on.")
    ] = ""
    exact: Annotated[bool, Field(description="False: only the first start and the end are known.")] = True


@dataclass(frozen=True, slots=True)
class Progress:
    """Steps [from_step, to_step) were done between these times."""

    from_s: float
    to_s: float
    from_step: int
    to_step: int
    node: str = ""


@dataclass(frozen=True, slots=True)
class Condition:
    """What Kubernetes shows as a condition of the EmuJob."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    since_s: Seconds = None


@dataclass(frozen=True, slots=True)
class Timeline:
    """The story of one job. `missing`: why only what Kubernetes knows is in it; empty: nothing is missing."""

    job: Job
    runs: tuple[JobRun, ...] = ()
    progress: tuple[Progress, ...] = ()
    conditions: tuple[Condition, ...] = ()
    notes: Annotated[tuple[str, ...], Field(description="What may distort its figures.")] = ()
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
        tuple[str, ...], Field(description="UIDs of the jobs that hold it now, as far as the caller may see them.")
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
    """Runs of the same jobs under several policies. `meta`: what was compared, as texts."""

    id: Annotated[
        str, Field(description="In a cluster NAMESPACE.LABEL, or the id of a comparison.", examples=["lab.demo"])
    ]
    runs: tuple[Run, ...]
    meta: Mapping[str, str] = field(default_factory=dict)
    namespace: Annotated[str, Field(description="Of its jobs; empty: each run has a namespace of its own.")] = ""


@dataclass(frozen=True, slots=True)
class Cluster:
    """What this API is about. `problem`: why what it tells may be old; empty while all is well."""

    id: Annotated[str, Field(examples=["kubernetes"])]
    kind: Literal["kubernetes", "comparison"]
    clock: Clock
    title: str
    writable: Annotated[bool, Field(description="Whether jobs can be suspended and resumed here.")]
    problem: str = ""


@dataclass(frozen=True)
class Snapshot:
    """All that is known at one moment. `version` grows with every change. `jobs` in order of submission, then of uid;
    `missing`: why those that have no EmuJob may not be among them; empty: they are."""

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
        """The job; None where there is none."""
        return self._by_uid.get(uid)

    def runs_of(self, uid: str) -> tuple[JobRun, ...]:
        """The stays of a job on devices."""
        return self.runs.get(uid, ())
