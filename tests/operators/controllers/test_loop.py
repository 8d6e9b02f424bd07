"""The loop of controllers: plans don't wait for each other, failures are retried ever later, and lasting ones become events."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from emulator_runtime.domain.errors import ClusterError, EmuGpuError
from operators.controllers.actions import Plan, SuspendJob
from operators.controllers.leader_election import LeadershipLostError
from operators.controllers.loop import ControllerLoop, Failure, Reconciler, failure_of
from operators.controllers.metrics import ControllerMetrics
from operators.controllers.writer import Author
from operators.kube.api import EMUJOB, JOB, Api, ApiAwayError, ConflictError, Json
from operators.kube.documents import Key
from operators.kube.informer import Followed, Pauses
from operators.kube.store import Store, full_name_of
from tests.support.fake_api import FakeApi

OWNER = Key("lab", "a", "uid-a")


class World:
    """Reconciles `a` to the plans given, whose actions are names; `errors`: what writing a name raises, one after the other."""

    def __init__(self, *plans: Plan[Any], failure: Callable[..., Failure] = failure_of, may_act: bool = True) -> None:
        self.api, self.metrics = FakeApi(), ControllerMetrics("tests", "one test")
        self.errors: dict[str, list[EmuGpuError]] = {}
        self.written: list[tuple[str, float]] = []
        self.plans: Sequence[Plan[Any]] | None = plans
        self.failure, self.reconciled = failure, 0
        self.pauses = Pauses(settle=0.0, first=0.02, longest=1.0)
        self.loop: ControllerLoop[str] = ControllerLoop(
            self.api, self.metrics, lambda: 0, may_act=lambda: may_act, pauses=self.pauses
        )

    def tell(self, until: Callable[[], object]) -> None:
        async def story() -> None:
            store: Store[str] = Store(full_name_of)
            reconciler: Reconciler[str] = Reconciler(
                author=Author("tests", EMUJOB, "EmuJob", "tests"),
                followed=(Followed(EMUJOB, store),),
                reconcile=self._reconcile,
                write=self._write,
                failure=self.failure,
            )
            task = asyncio.create_task(self.loop.run(reconciler))
            self.loop.add("a")
            try:
                async with asyncio.timeout(30):
                    while not until() and not task.done():
                        await asyncio.sleep(0.002)
                if task.done():
                    await task
            finally:
                task.cancel()
                await asyncio.wait([task])

        asyncio.run(story())

    def _reconcile(self, _key: str) -> Sequence[Plan[Any]] | None:
        self.reconciled += 1
        return self.plans

    async def _write(self, _api: Api, action: str) -> Json | None:
        if self.errors.get(action):
            raise self.errors[action].pop(0)
        self.written.append((action, asyncio.get_running_loop().time()))
        return None

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.written]

    def failures(self, doing: str) -> float:
        return self.metrics.registry.get_sample_value("emugpu_tests_failures_total", {"doing": doing}) or 0.0

    def events(self) -> list[tuple[str, str]]:
        return [(event["reason"], event["note"]) for event in self.api.objects.get("events", {}).values()]


def test_an_action_waits_for_the_one_before_and_for_no_other_plan() -> None:
    world = World(Plan(("a1", "a2"), owner=OWNER), Plan(("b1",)))
    world.errors["a1"] = [ApiAwayError("away")] * 2
    world.tell(until=lambda: "a2" in world.names)
    assert world.names[:4] == ["b1", "b1", "a1", "a2"]
    assert world.failures("str") == 2


def test_pauses_between_failures_grow() -> None:
    world = World(Plan(("a1",), owner=OWNER))
    world.errors["a1"] = [ApiAwayError("away")] * 4
    problems: list[str] = []
    began_s: list[float] = []

    def done() -> bool:
        began_s.append(asyncio.get_running_loop().time())
        problems.append(world.loop.problem)
        return bool(world.written)

    world.tell(until=done)
    assert world.written[0][1] - began_s[0] >= sum(world.pauses.after(times) for times in (1, 2, 3, 4))
    assert {"away"} <= set(problems) <= {"nothing was listed yet", "", "away"}


def test_a_lasting_refusal_is_an_event_of_its_owner_once_and_no_problem_of_the_controller() -> None:
    world = World(Plan(("a1",), owner=OWNER))
    world.errors["a1"] = [ClusterError("exceeded quota")] * 4
    problems: set[str] = set()
    world.tell(until=lambda: problems.add(world.loop.problem) or world.written)
    assert world.events() == [("NotCarriedOut", "exceeded quota")]
    assert problems <= {"nothing was listed yet", ""}


def test_an_error_without_an_owner_is_the_controller_s_problem() -> None:
    world = World(Plan(("a1",)))
    world.errors["a1"] = [ClusterError("forbidden")] * 100
    world.tell(until=lambda: world.loop.problem == "forbidden")
    assert world.events() == []


def test_an_outdated_plan_is_dropped_until_its_object_changes() -> None:
    world = World(Plan(("a1", "a2"), owner=OWNER))
    world.errors["a1"] = [ConflictError("modified")]

    def done() -> bool:
        if world.reconciled == 1:
            world.loop.add("a")  # as a watch event does
        return "a2" in world.names

    world.tell(until=done)
    assert (world.reconciled, world.failures("str"), world.names) == (2, 0, ["a1", "a2"])


def test_a_reported_failure_is_reconciled_at_once_and_logged_unless_repeated(
    capsys: pytest.CaptureFixture[str],
) -> None:
    answers = [Failure.REPORTED, Failure.REPEATED]
    world = World(Plan(("a1",), owner=OWNER), failure=lambda *_: answers.pop(0))
    world.errors["a1"] = [ClusterError("refused")] * 2
    world.tell(until=lambda: world.written)
    assert (world.failures("str"), world.events()) == (2, [])
    assert capsys.readouterr().err == "tests: refused\n"


def test_common_actions_are_written_and_counted_by_their_label() -> None:
    world = World()
    world.api.put(JOB, {"metadata": {"name": "a", "namespace": "lab", "uid": "uid-a"}, "spec": {"suspend": False}})
    version = world.api.stored(JOB, "lab/a")["metadata"]["resourceVersion"]
    key = Key("lab", "a", "uid-a", version)
    world.plans = (Plan((SuspendJob(key, suspend=True, label="SuspendRunner"),)),)
    count = world.metrics.registry.get_sample_value
    world.tell(until=lambda: count("emugpu_tests_writes_total", {"kind": "SuspendRunner"}))
    assert world.api.stored(JOB, "lab/a")["spec"]["suspend"] is True


def test_nothing_is_written_without_leadership() -> None:
    world = World(Plan(("a1",)), may_act=False)
    with pytest.raises(ExceptionGroup) as caught:
        world.tell(until=lambda: False)
    assert caught.group_contains(LeadershipLostError) and world.written == []


def test_a_key_without_objects_is_no_reconciliation() -> None:
    world = World()
    world.plans = None
    world.tell(until=lambda: world.reconciled)
    assert world.metrics.registry.get_sample_value("emugpu_tests_reconcile_seconds_count") == 0.0
