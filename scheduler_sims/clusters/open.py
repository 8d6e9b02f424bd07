"""Clusters that live on: jobs and nodes come and go, and a scheduler may begin in the middle of it all."""

from __future__ import annotations

from dataclasses import dataclass, field

from emulator_runtime.domain.job import JobSpec
from scheduler_sims.clusters.base import Event
from scheduler_sims.inputs.cluster_file import NodeSpec
from scheduler_sims.interface.plan import Allocation


@dataclass(frozen=True, slots=True)
class PresentJob:
    """A job that is in the cluster, and what it has been through. Emulated seconds, `spec.submit_s` too.

    `allocation` None: it waits. `running_since_s`: when it got that allocation; `step_since_s`: when the step began that it
    is at. `attained_gpu_s`: GPU-seconds of its former runs. `stopping`: it was told to give its devices back. `started`: its
    allocation has taken effect.
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


@dataclass(frozen=True, slots=True)
class NodeState:
    """A node now. `unhealthy`: UUIDs of devices that nobody gets; `absent` more, whichever, can't be had at the moment.

    `closed`: nothing more may start there (it doesn't answer, or was cordoned off).
    """

    spec: NodeSpec
    unhealthy: frozenset[str] = frozenset()
    absent: int = 0
    closed: bool = False


@dataclass(frozen=True, slots=True)
class Submitted(Event):
    """A job that the scheduler did not know: a new one, or one of before its own start."""

    job: PresentJob = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class NodesChanged(Event):
    """These are all nodes from now on."""

    nodes: tuple[NodeState, ...] = field(kw_only=True)
