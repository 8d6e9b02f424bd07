"""Events of a live cluster, where jobs and nodes come and go and a scheduler may start at any time."""

from __future__ import annotations

from dataclasses import dataclass, field

from emulator_runtime.domain.job import JobSpec
from scheduler_sims.clusters.base import Event
from scheduler_sims.inputs.cluster_file import NodeSpec
from scheduler_sims.interface.plan import Allocation


@dataclass(frozen=True, slots=True)
class PresentJob:
    """A job that was in the cluster before, with its history. Times are emulated seconds, `spec.submit_s` too.

    `samples_done` None: those of `steps_done` steps as submitted. `allocation` None: the job waits. `running_since_s`: when it
    got that allocation. `step_since_s`: when its present step began. `attained_gpu_s`: GPU-seconds of former runs.
    `stopping`: a stop was requested. `started`: the allocation has taken effect.
    """

    spec: JobSpec
    steps_done: int = 0
    allocation: Allocation | None = None
    running_since_s: float = 0.0
    step_since_s: float = 0.0
    attained_gpu_s: float = 0.0
    preemptions: int = 0
    stopping: bool = False
    started: bool = True
    samples_done: int | None = None

    @property
    def samples(self) -> int:
        """The samples that are done."""
        return self.steps_done * self.spec.batch_size if self.samples_done is None else self.samples_done


@dataclass(frozen=True, slots=True)
class NodeState:
    """The present state of a node. `unhealthy`: UUIDs of unusable devices; `absent`: number of further unavailable devices.

    `closed`: no job may start there, because the node is not ready or cordoned.
    """

    spec: NodeSpec
    unhealthy: frozenset[str] = frozenset()
    absent: int = 0
    closed: bool = False


@dataclass(frozen=True, slots=True)
class Submitted(Event):
    """A job that is new to the scheduler: submitted now, or before the scheduler started."""

    job: PresentJob = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class NodesChanged(Event):
    """The new set of nodes."""

    nodes: tuple[NodeState, ...] = field(kw_only=True)
