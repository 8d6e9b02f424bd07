"""A simulated run from described nodes and jobs (scheduler_sims.testing), in memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import pytest

from emulator_runtime.domain.gpu import Device
from emulator_runtime.domain.job import JobSpec, TimedWork
from emulator_runtime.domain.units import GIB
from emulator_runtime.profiles.table import ProfileTable
from scheduler_sims.clusters.leases import Leases
from scheduler_sims.clusters.simulated import SimulatedCluster
from scheduler_sims.inputs.cluster_file import ClusterSpec, NodeSpec
from scheduler_sims.inputs.truth import WorkloadTruth
from scheduler_sims.inputs.workload import Workload
from scheduler_sims.interface.costs import ClusterCosts
from scheduler_sims.interface.estimates import parse_estimates
from scheduler_sims.interface.policy import Policy
from scheduler_sims.loop.scheduler_loop import SchedulerLoop
from scheduler_sims.loop.strategies import Listeners
from scheduler_sims.record import JobRecord, Span
from scheduler_sims.testing import Job, Node


@dataclass(frozen=True)
class Simulated:
    """What a run left behind; `explained` holds what `--explain` would print."""

    cluster: SimulatedCluster
    loop: SchedulerLoop
    explained: list[tuple[float, str, str]]

    @property
    def records(self) -> dict[str, JobRecord]:
        return {record.job_id: record for record in self.loop.books.records()}

    def spans(self, job_id: str) -> list[Span]:
        return [span for span in self.loop.books.spans if span.job_id == job_id]


def job_specs(jobs: Sequence[Job]) -> tuple[JobSpec, ...]:
    """Jobs as a workload file would give them."""
    specs = []
    for row, job in enumerate(jobs):
        times = {"gpu": job.gpu_s, "cpu": job.cpu_s}
        work = {name: TimedWork(value) for name, value in times.items() if isinstance(value, int | float)}
        if "gpu" in work:
            work["gpu"] = TimedWork(work["gpu"].duration_s, job.sensitivity())
        own_row = row if job.row is None else job.row
        specs.append(JobSpec(job.job_id, job.user, job.submit_s, job.steps, job.configurations(), work, own_row))
    return tuple(specs)


def cluster_spec(nodes: Sequence[Node], **costs: float) -> ClusterSpec:
    """Nodes as a cluster file would give them."""
    specs = [
        NodeSpec(
            node.name,
            round(node.cpus * 1000),
            round(node.memory_gib * GIB),
            tuple(Device(node.name, i, node.gpu_type, round(node.gpu_memory_gib * GIB)) for i in range(node.gpus)),
            sharing=node.sharing,
            replicas=node.replicas,
            nvlink=dict(enumerate(node.nvlink)),
        )
        for node in nodes
    ]
    return ClusterSpec(tuple(specs), ClusterCosts(**costs))


def simulate(
    policy: Policy,
    nodes: Sequence[Node],
    jobs: Sequence[Job],
    *,
    cluster: type[SimulatedCluster] = SimulatedCluster,
    estimates: str = "oracle",
    seed: int = 0,
    leases: Leases | None = None,
    until_s: Mapping[str, float] | None = None,
    **costs: float,
) -> Simulated:
    """The finished run of `policy`. `until_s`: when jobs leave that have no end of their own."""
    spec, specs = cluster_spec(nodes, **costs), job_specs(jobs)
    specs = tuple(replace(each, until_s=(until_s or {}).get(each.job_id)) for each in specs)
    truth = WorkloadTruth(Workload("test", specs, ProfileTable.bundled()), spec)
    explained: list[tuple[float, str, str]] = []
    built = cluster(truth, spec.costs) if leases is None else cluster(truth, spec.costs, leases)
    loop = SchedulerLoop(
        built,
        spec,
        policy,
        parse_estimates(estimates, truth, seed),
        specs,
        listeners=Listeners(explain=lambda now_s, job_id, reason: explained.append((now_s, job_id, reason))),
    )
    loop.run()
    return Simulated(built, loop, explained)


@pytest.fixture(name="simulate", scope="session")
def _simulate() -> Callable[..., Simulated]:
    return simulate


@pytest.fixture(name="job_specs", scope="session")
def _job_specs() -> Callable[..., tuple[JobSpec, ...]]:
    return job_specs


@pytest.fixture(name="cluster_spec", scope="session")
def _cluster_spec() -> Callable[..., ClusterSpec]:
    return cluster_spec
