"""The loop's side of Kubernetes: what it hears from the other thread, and what is left when that one fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from emulator_runtime.domain.job import Configuration, JobSpec, TimedWork
from emulator_runtime.profiles.table import ProfileTable
from emulator_runtime.timing.host import monotonic_ns
from operators.leader import Candidate, Leader, Terms
from operators.scheduling.cluster import Connection, KubernetesCluster
from operators.scheduling.scope import Scope
from operators.scheduling.watcher import Tools
from operators.testing.fake_api import FakeApi
from scheduler_sims.clusters.base import Event, Happening
from scheduler_sims.clusters.open import PresentJob, Submitted
from scheduler_sims.inputs.truth import OpenTruth
from scheduler_sims.interface.costs import ClusterCosts
from scheduler_sims.interface.plan import Allocation, TaskPlacement

WALL_NS = 1_767_225_600_000_000_000
TERMS = Terms(lease=15.0, give_up=10.0, retry=0.01)
ON_CPU = Allocation("cpu", (TaskPlacement("w1", (), 1000),))


class Side:
    """A cluster over an API server in memory, and what it is given."""

    def __init__(self, api: FakeApi) -> None:
        self.api, self.truth, self.said = api, OpenTruth(ProfileTable.bundled()), list[str]()
        connection = Connection(lambda: api, self._leader, "ns", "emugpu-scheduler-s")
        self.cluster = KubernetesCluster(connection, Scope("s"), self._tools)

    def _leader(self, api: Any) -> Leader:
        return Leader(api, Candidate("ns", "emugpu-scheduler-s", "me", TERMS), monotonic_ns, lambda: WALL_NS)

    def _tools(self, cluster: KubernetesCluster) -> Tools:
        profiles, costs = ProfileTable.bundled(), ClusterCosts()
        tell, say = cluster.tell, self.said.append
        return Tools(profiles, costs, self.truth, lambda: WALL_NS, tell, say, lambda: cluster.may_act)


@pytest.fixture
def side() -> Iterator[Callable[..., Side]]:
    made: list[Side] = []

    def make(api: FakeApi | None = None) -> Side:
        made.append(Side(api or FakeApi()))
        return made[-1]

    yield make
    for each in made:
        each.cluster.close()


def job(name: str) -> JobSpec:
    return JobSpec(name, "user", 0.0, 100, (Configuration("cpu", 0, 1000),), {"cpu": TimedWork(10.0)}, 0)


def submitted(spec: JobSpec) -> Submitted:
    return Submitted(0, Happening.SUBMITTED, spec.job_id, 0, job=PresentJob(spec))


def test_a_job_that_has_come_back_is_not_forgotten(side: Callable[..., Side]) -> None:
    """The same one: it was held back by its owner, and let go."""
    one = side()
    before, after = job("a"), job("a")
    one.truth.add(before)
    one.cluster.tell([submitted(before)])
    one.cluster.wait(0)
    one.truth.add(after)
    one.cluster.tell([Event(0, Happening.REMOVED, "a", 0), submitted(after)])
    one.cluster.wait(0)
    one.cluster.wait(0)
    assert one.truth.rate("a", ON_CPU) > 0
    one.cluster.tell([Event(0, Happening.FINISHED, "a", 0)])
    one.cluster.wait(0)
    assert one.truth.rate("a", ON_CPU) > 0  # the loop is about to hear of it
    one.cluster.wait(0)
    with pytest.raises(KeyError):
        one.truth.rate("a", ON_CPU)
