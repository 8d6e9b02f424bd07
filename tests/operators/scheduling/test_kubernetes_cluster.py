"""The loop's side of Kubernetes: what it hears from the other thread, and what is left when that one fails."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from threading import Event as Hang
from threading import Thread
from typing import Any

import pytest

from emulator_runtime.domain.job import Configuration, JobSpec, TimedWork
from emulator_runtime.domain.units import NS_PER_S
from emulator_runtime.profiles.table import ProfileTable
from emulator_runtime.timing.host import monotonic_ns, sleep_ns
from operators.controllers.leader_election import Candidate, Leader, Terms
from operators.kube.api import CONFIG_MAP, EMUJOB, LEASE, NODE, ApiAwayError, ForbiddenError, Resource
from operators.scheduling.cluster import Connection, KubernetesCluster, Successor
from operators.scheduling.remember.handover import Handover, from_document
from operators.scheduling.track.tracked_jobs import Scope
from operators.scheduling.watcher import Dependencies
from scheduler_sims.clusters.base import Event, Happening
from scheduler_sims.clusters.open import PresentJob, Submitted
from scheduler_sims.inputs.truth import OpenTruth
from scheduler_sims.interface.costs import ClusterCosts
from scheduler_sims.interface.plan import Allocation, TaskPlacement
from tests.support.fake_api import FakeApi

WALL_NS = 1_767_225_600_000_000_000
TERMS = Terms(lease=15.0, give_up=10.0, retry=0.01)
ON_CPU = Allocation("cpu", (TaskPlacement("w1", (), 1000),))


class Side:
    """A cluster over an API server in memory, and what it is given."""

    def __init__(self, api: FakeApi) -> None:
        self.api, self.truth, self.said = api, OpenTruth(ProfileTable.bundled()), list[str]()
        connection = Connection(lambda: api, self._leader, "ns", "emugpu-scheduler-s")
        self.cluster = KubernetesCluster(connection, Scope("s"), self._dependencies)

    def _leader(self, api: Any) -> Leader:
        return Leader(api, Candidate("ns", "emugpu-scheduler-s", "me", TERMS), monotonic_ns, lambda: WALL_NS)

    def _dependencies(self, cluster: KubernetesCluster) -> Dependencies:
        profiles, costs = ProfileTable.bundled(), ClusterCosts()
        deliver, say = cluster.deliver, self.said.append
        complain = lambda complaint: say(complaint.text)  # noqa: E731
        return Dependencies(
            profiles, costs, self.truth, lambda: WALL_NS, deliver, say, complain, lambda: cluster.may_act
        )


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
    one.cluster.deliver([submitted(before)])
    one.cluster.wait(0)
    one.truth.add(after)
    one.cluster.deliver([Event(0, Happening.REMOVED, "a", 0), submitted(after)])
    one.cluster.wait(0)
    one.cluster.wait(0)
    assert one.truth.rate("a", ON_CPU) > 0
    one.cluster.deliver([Event(0, Happening.FINISHED, "a", 0)])
    one.cluster.wait(0)
    assert one.truth.rate("a", ON_CPU) > 0  # the loop is about to hear of it
    one.cluster.wait(0)
    with pytest.raises(KeyError):
        one.truth.rate("a", ON_CPU)


class Broken(FakeApi):
    """It lists what is asked for once; what it lists from then on is up to `then`."""

    def __init__(self, kind: Resource, then: Callable[[], Awaitable[None]]) -> None:
        super().__init__()
        self._kind, self._then, self._asked = kind, then, 0

    async def list(self, resource: Resource, **options: Any) -> Any:
        if resource is self._kind:
            self._asked += 1
            if self._asked > 1:
                await self._then()
        return await super().list(resource, **options)


def test_what_ends_the_work_while_it_begins_is_raised_at_once(side: Callable[..., Side]) -> None:
    async def fail() -> None:
        raise AssertionError("broken")

    with pytest.raises(AssertionError, match=r"^broken$"):
        side(Broken(EMUJOB, fail)).cluster.connect(Successor("fifo", ""))


def test_what_is_not_listed_in_time_is_named(side: Callable[..., Side], monkeypatch: pytest.MonkeyPatch) -> None:
    async def wait() -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr("operators.scheduling.cluster._SYNC_S", 0.1)
    with pytest.raises(ApiAwayError, match=r"^the API server has not listed within 0\.1 s: nodes$"):
        side(Broken(NODE, wait)).cluster.connect(Successor("fifo", ""))


def test_who_has_no_rights_where_its_lease_belongs_is_told_what_to_do(side: Callable[..., Side]) -> None:
    one = side()
    one.api.failures["create"] = [ForbiddenError("create leases: forbidden")]
    message = (
        "create leases: forbidden; the scheduler's lease is in namespace ns; name another one with --lease-namespace"
    )
    with pytest.raises(ForbiddenError) as caught:
        one.cluster.connect(Successor("fifo", ""))
    assert str(caught.value) == message


def test_who_waits_for_its_turn_is_ready_and_who_has_not_listed_is_not(side: Callable[..., Side]) -> None:
    """Else an upgrade would wait for a pod that waits for the former one's lease."""
    problems: list[str] = []

    async def look() -> None:
        problems.append(one.cluster.problem)

    api = Broken(NODE, look)
    spec = {"holderIdentity": "other", "leaseDurationSeconds": 1000}
    api.put(LEASE, {"metadata": {"name": "emugpu-scheduler-s", "namespace": "ns"}, "spec": spec})
    one = side(api)
    assert one.cluster.problem == "the API server has not been contacted yet"
    connecting = Thread(target=one.cluster.connect, args=[Successor("fifo", "")])
    connecting.start()
    while not one.said:
        sleep_ns(1_000_000)
    assert (one.said, one.cluster.problem) == (["lease ns/emugpu-scheduler-s: is held by other; waiting"], "")
    api.put(LEASE, {"metadata": {"name": "emugpu-scheduler-s", "namespace": "ns"}, "spec": {}})
    connecting.join(10)
    assert problems == ["the first lists of the API server are not complete yet"]
    assert one.cluster.problem == ""


def test_jobs_that_are_not_elastic_keep_their_batch_size(side: Callable[..., Side]) -> None:
    one = side()
    one.cluster.connect(Successor("fifo", ""))
    assert not one.cluster.capabilities.any_batch


def test_what_ends_the_work_later_is_raised_where_the_loop_waits(side: Callable[..., Side]) -> None:
    one = side()
    one.cluster.connect(Successor("fifo", ""))
    one.api.failures["replace"] = [RuntimeError("broken")]
    with pytest.raises(RuntimeError, match=r"^broken$"):
        one.cluster.wait(10 * NS_PER_S)


def test_what_the_policy_remembers_is_kept_as_it_was(side: Callable[..., Side]) -> None:
    """The policy plans on, in its own thread, while the other one is about to write."""
    one, hang = side(), Hang()
    one.cluster.connect(Successor("fifo", ""))
    one.cluster.event_loop.call_soon_threadsafe(hang.wait)
    state = {"round": 1}
    one.cluster.keep(Handover(WALL_NS, "fifo", state), one.said.append)
    state["round"] = 2
    hang.set()
    while not one.said:
        sleep_ns(1_000_000)
    found = from_document(one.api.stored(CONFIG_MAP, "ns/emugpu-scheduler-s"), "fifo", "")
    assert found is not None and found.state == {"round": 1}


def test_the_lease_is_given_back_though_what_it_remembers_can_not_be_kept(side: Callable[..., Side]) -> None:
    one = side()
    one.cluster.connect(Successor("fifo", ""))
    one.api.failures["create"] = [RuntimeError("broken")]
    one.cluster.keep(Handover(WALL_NS, "fifo"), one.said.append)
    one.cluster.wait(0)
    with pytest.raises(RuntimeError, match=r"^broken$"):
        one.cluster.close()
    assert one.api.stored(LEASE, "ns/emugpu-scheduler-s")["spec"]["holderIdentity"] == ""
    assert one.cluster.event_loop.is_closed()
