"""What happens to jobs and nodes while a scheduler runs, and what it makes of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from emulator_runtime.domain.errors import ClusterError
from operators.controllers.leader_election import LeadershipLostError
from operators.kube.api import EMUJOB, JOB, NODE, POD, POOL, ApiAwayError, ConflictError
from operators.kube.timestamps import ns_of
from operators.scheduling.track.tracked_jobs import Scope
from scheduler_sims.interface.view import Phase

NS = 10**9


class Story:
    """A program that goes on until something is so, step by step."""

    def __init__(self, program: Any) -> None:
        self.program, self.world = program, program.world

    def until(self, condition: Callable[[], Any], within_s: float = 60) -> None:
        end_ns = self.world.now_ns + round(within_s * NS)
        self.program.finished = lambda: condition() or self.world.now_ns >= end_ns
        self.program.loop.run()
        assert condition(), f"not within {within_s} s: {self.program.said} {self.phases()}"

    def later(self, seconds: float) -> None:
        end_ns = self.world.now_ns + round(seconds * NS)
        self.until(lambda: self.world.now_ns >= end_ns, within_s=seconds + 1)

    def phases(self) -> dict[str, str]:
        return {job_id: str(view.phase) for job_id, view in self.program.loop.books.views.items()}

    def view(self, name: str) -> Any:
        return self.program.loop.books.views.get(name)

    def running(self, *names: str) -> Callable[[], bool]:
        return lambda: all((view := self.view(name)) is not None and view.phase is Phase.RUNNING for name in names)

    def done(self, *names: str) -> Callable[[], bool]:
        return lambda: all(self.world.phase(name) == "Succeeded" for name in names)

    def close(self) -> None:
        self.program.close()


@pytest.fixture
def story(lab: Any) -> Any:
    stories: list[Story] = []

    def begin(world: Any, policy: str = "fifo", **more: Any) -> Story:
        stories.append(Story(lab(world, policy, until_s=500, **more)))
        return stories[-1]

    yield begin
    for each in stories:
        each.close()


@pytest.mark.parametrize("actuator", ["jobs", "gated", "binding"])
def test_a_running_job_that_is_deleted_frees_its_device(world: Any, story: Any, actuator: str) -> None:
    here = world.of(gpus=1)
    here.submit("a", 100, actuator=actuator)
    here.submit("b", 5, actuator=actuator)
    now = story(here)
    now.until(now.running("a"))
    here.remove("a")
    now.until(now.done("b"))
    assert now.phases() == {}
    assert here.job("a") is None


def test_a_waiting_job_that_is_deleted_is_forgotten(world: Any, story: Any) -> None:
    here = world.of(gpus=1)
    here.submit("a", 10)
    here.submit("b", 5)
    now = story(here)
    now.until(now.running("a"))
    here.remove("b")
    now.until(lambda: "b" not in now.phases())
    now.until(now.done("a"))


def test_a_job_that_is_made_anew_under_its_name_is_another_one(world: Any, story: Any) -> None:
    here = world.of(gpus=2)
    here.submit("a", 100)
    now = story(here)
    now.until(now.running("a"))
    here.remove("a")
    here.submit("a", 5)
    now.until(now.done("a"))
    assert [name for name, _, _ in here.runs] == ["a", "a"]


def test_what_its_owner_holds_back_is_none_of_the_loops_until_it_is_let_go(world: Any, story: Any) -> None:
    here = world.of(gpus=1)
    here.submit("a", 20)
    here.submit("b", 5)
    now = story(here)
    now.until(now.running("a"))
    now.later(4)
    here.hold("a", suspend=True)
    now.until(now.done("b"))
    assert now.phases() == {}
    here.hold("a", suspend=False)
    now.until(now.running("a"))
    view = now.view("a")
    assert view.steps_done >= 2
    assert view.attained_gpu_s >= 4
    now.until(now.done("a"))


def test_a_job_that_fits_nowhere_is_reported_once_and_taken_when_nodes_come(world: Any, story: Any) -> None:
    here = world.of(nodes=1, gpus=1)
    here.submit("large", 5, resources={"emuGPU": 2})
    here.submit("small", 5)
    now = story(here)
    now.until(now.done("small"))
    (told,) = now.program.said
    (complaint,) = now.program.complaints
    assert (complaint.kind, complaint.job_id, complaint.retry) == ("does-not-fit", "large", False)
    assert complaint.uid == here.emujob("large")["metadata"]["uid"]
    assert told.startswith(
        "it waits for nodes: job 'large' is larger than the cluster: needs 2 GPUs on one node; the largest node has 1"
    )
    here.api.put(POOL, {**here.api.stored(POOL, "p"), "spec": {"gpus": [{"type": "V100", "count": 2}]}})
    found = here.api.stored(NODE, "w1")
    allocatable = {**found["status"]["allocatable"], "emugpu.dev/emuGPU": "2"}
    here.api.put(NODE, {**found, "status": {**found["status"], "allocatable": allocatable}})
    now.until(now.done("large"))


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"stepTime": "soon"}, "EmuJob lab/j: spec.stepTime: must be a time above 0 such as 80ms or 1.5s, not 'soon'"),
    ],
)
def test_what_can_not_be_read_is_left_alone(world: Any, story: Any, spec: Any, problem: str) -> None:
    here = world.of()
    here.submit("j", 5, **spec)
    here.submit("k", 5)
    now = story(here, scope=Scope("s"))
    now.until(now.done("k"))
    assert now.program.said == [problem]
    assert here.job("j")["spec"]["suspend"] is True


def test_jobs_of_others_are_none_of_its_business(world: Any, story: Any) -> None:
    here = world.of()
    here.submit("theirs", 5, scheduler={"actuator": "jobs", "name": "other"})
    here.submit("plain", 5, scheduler={"actuator": "none"})
    here.submit("labelled", 5, metadata={"labels": {"team": "a"}})
    here.submit("gated", 5, actuator="gated", metadata={"labels": {"team": "b"}})
    here.submit("ours", 5, metadata={"labels": {"team": "b"}})
    now = story(here, scope=Scope("s", "lab", {"team": "b"}, ("jobs", "binding")))
    now.until(now.done("ours"))
    assert not here.runs or {name for name, _, _ in here.runs} <= {"ours", "plain"}
    assert here.job("theirs")["spec"]["suspend"] is True
    assert here.job("labelled")["spec"]["suspend"] is True
    assert here.pods("gated")[0]["spec"]["schedulingGates"]


def test_a_job_that_somebody_else_resumes_is_stopped(world: Any, story: Any) -> None:
    """There's no room for it: who lets it go knows nothing of the others."""
    here = world.of(gpus=1)
    here.submit("a", 20)
    here.submit("b", 5)
    now = story(here)
    now.until(now.running("a"))
    job = here.job("b")
    here.api.put(JOB, {**job, "spec": {**job["spec"], "suspend": False}})
    now.until(lambda: here.job("b")["spec"]["suspend"] is True)
    now.until(now.done("a", "b"))


def test_a_job_that_runs_untold_at_the_start_is_stopped_first(world: Any, story: Any) -> None:
    here = world.of(gpus=1)
    here.submit("a", 20)
    before = story(here)
    before.until(before.running("a"))
    before.close()
    job = here.job("a")
    notes = {**job["spec"]["template"]["metadata"], "annotations": {}}
    template = {**job["spec"]["template"], "metadata": notes}
    here.api.put(JOB, {**job, "spec": {**job["spec"], "template": template}})
    for pod in here.pods("a"):
        here.api.put(POD, {**pod, "metadata": {**pod["metadata"], "annotations": {}}})
    now = story(here)
    assert now.program.said == ["a runs without an allocation of this scheduler; it is stopped"]
    now.until(now.done("a"))
    assert [name for name, _, _ in here.runs] == ["a", "a"]


def test_nothing_is_written_any_more_once_it_has_ended(world: Any, story: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is another's turn then."""
    here = world.of(gpus=1)
    here.submit("a", 100)
    now = story(here)
    now.until(now.running("a"))
    program = now.program
    tracked = program.watcher._tracked_jobs.in_loop["a"]

    async def wait(*_: Any) -> None:
        await asyncio.Event().wait()

    async def end() -> None:
        await program.watcher.stop("a")
        await asyncio.sleep(0)
        assert not tracked.enforcing.done()
        program._task.cancel()
        await asyncio.wait([program._task])
        assert tracked.enforcing.done()
        tracked.enforcing = None
        program.watcher._enforcer.enforce(tracked)
        assert tracked.enforcing is None

    monkeypatch.setattr(here.api, "patch", wait)
    program._run(end())


def test_what_runs_is_taken_over_with_its_past(world: Any, story: Any) -> None:
    here = world.of(gpus=2)
    here.submit("a", 40)
    before = story(here, "las:threshold_s=100")
    before.until(before.running("a"))
    before.later(6)
    since_s, allocation = before.view("a").running_since_s, before.view("a").allocation
    before.close()
    here.now_ns += 3 * NS
    now = story(here, "las:threshold_s=100")
    now.until(now.running("a"))
    assert (now.view("a").running_since_s, now.view("a").allocation) == (since_s, allocation)
    now.until(now.done("a"))
    assert len(here.runs) == 1


def test_a_job_that_was_stopped_meanwhile_waits_with_the_service_that_it_had(world: Any, story: Any) -> None:
    here = world.of(gpus=1)
    here.submit("a", 40)
    before = story(here)
    before.until(before.running("a"))
    before.close()
    here.now_ns += 8 * NS
    job = here.job("a")
    here.api.put(JOB, {**job, "spec": {**job["spec"], "suspend": True}})
    here.submit("b", 3)
    now = story(here)
    now.until(now.done("a", "b"))
    assert len(here.runs) == 3
    assert now.program.decisions[0].triggers


# --- nodes --------------------------------------------------------------------------------------------------------------


def change_node(here: Any, name: str, **status: Any) -> None:
    found = here.api.stored(NODE, name)
    here.api.put(NODE, {**found, "status": {**found["status"], **status}})


def test_a_job_on_a_node_that_is_gone_starts_elsewhere(world: Any, story: Any) -> None:
    here = world.of(nodes=2, gpus=1)
    here.submit("a", 20)
    now = story(here)
    now.until(now.running("a"))
    node = here.runs[0][1]
    here.api.remove(NODE, node)
    now.until(now.done("a"))
    assert [where for _, where, _ in here.runs] == [node, ({"w1", "w2"} - {node}).pop()]


def test_a_job_on_gpus_that_became_others_is_stopped_by_the_next_program(world: Any, story: Any) -> None:
    """Nobody knows how fast its model is there."""
    here = world.of(nodes=2, gpus=1)
    here.submit("a", steps=20, model="resnet50", batchSize=64, gpuTypes=["V100"])
    before = story(here)
    before.until(before.running("a"))
    before.close()
    node = here.runs[0][1]
    other = ({"w1", "w2"} - {node}).pop()
    for name, where, kind in (("p", other, "V100"), ("q", node, "T4")):
        changed = pool_of(name, {"kubernetes.io/hostname": f"host-{where}"}, kind)
        here.api.put(POOL, changed)
    now = story(here)
    assert now.program.said == ["a runs without an allocation of this scheduler; it is stopped"]
    now.until(now.done("a"))
    assert [where for _, where, _ in here.runs] == [node, other]


def test_a_model_that_no_gpu_is_known_for_waits_for_others(world: Any, story: Any) -> None:
    here = world.of(nodes=1, gpus=1)
    here.submit("a", steps=20, model="resnet50", batchSize=64)
    before = story(here)
    before.until(before.running("a"))
    before.close()
    here.api.put(POOL, pool_of("p", {}, "T4"))
    now = story(here)
    told = "it waits for nodes: job 'a': its model has no profile on any GPU of the cluster"
    now.until(lambda: here.phase("a") == "Queued")
    assert now.program.said == [told]
    now.later(5)
    here.api.put(POOL, pool_of("p", {}, "V100"))
    now.until(now.done("a"))


@pytest.mark.parametrize("text", ["soon", "2026-01-01T00:00:00"])
def test_a_job_that_came_nobody_knows_when_is_left_alone(world: Any, story: Any, text: str) -> None:
    here = world.of()
    here.submit("a", 5)
    here.api.put(EMUJOB, {**here.emujob("a"), "status": {"submittedAt": text}})
    here.submit("b", 5)
    now = story(here)
    now.until(now.done("b"))
    assert now.program.said == [f"a: its status doesn't say when it was submitted: submittedAt is {text!r}"]


def test_times_are_exact_to_the_microsecond(world: Any, story: Any) -> None:
    here = world.of(gpus=1)
    for name, micro in (("a", "000003"), ("b", "000007")):
        here.submit(name, 50)
        here.api.put(EMUJOB, {**here.emujob(name), "status": {"submittedAt": f"2026-01-01T00:00:00.{micro}Z"}})
    now = story(here)
    now.until(now.running("a"))
    assert [now.view(name).submit_s for name in ("a", "b")] == [3e-6, 7e-6]
    assert now.program.watcher._loop_events._emulated(ns_of("2026-01-01T00:00:00.000003Z")) == 3000


def pool_of(name: str, selector: dict[str, str], gpu_type: str) -> dict[str, Any]:
    metadata = {"name": name, "uid": name, "creationTimestamp": "2026-01-01T00:00:00Z", "generation": 1}
    return {
        "metadata": metadata,
        "spec": {"nodeSelector": {"matchLabels": selector}, "gpus": [{"type": gpu_type, "count": 1}]},
    }


@pytest.mark.parametrize("how", ["not ready", "cordoned"])
def test_nothing_starts_on_a_closed_node_and_what_runs_there_goes_on(world: Any, story: Any, how: str) -> None:
    here = world.of(nodes=2, gpus=2)
    here.submit("a", 12)
    now = story(here)
    now.until(now.running("a"))
    node = here.runs[0][1]
    if how == "cordoned":
        here.api.put(NODE, {**here.api.stored(NODE, node), "spec": {"unschedulable": True}})
    else:
        change_node(here, node, conditions=[{"type": "Ready", "status": "Unknown"}])
    for number in range(3):
        here.submit(f"b{number}", 4)
    now.until(now.done("a", "b0", "b1", "b2"))
    assert {where for name, where, _ in here.runs if name != "a"} == {"w1", "w2"} - {node}
    assert len(here.runs) == 4


def test_devices_that_a_node_does_not_offer_are_not_taken(world: Any, story: Any) -> None:
    here = world.of(gpus=3)
    change_node(here, "w1", allocatable={"cpu": "8", "emugpu.dev/emuGPU": "2"})
    for number in range(3):
        here.submit(f"j{number}", 10)
    now = story(here)
    now.until(now.running("j0", "j1"))
    now.later(3)
    assert now.view("j2").queued
    change_node(here, "w1", allocatable={"cpu": "8", "emugpu.dev/emuGPU": "3"})
    now.until(now.running("j2"), within_s=3)
    now.until(now.done("j0", "j1", "j2"))


def test_devices_that_the_pool_calls_unhealthy_are_not_taken(world: Any, story: Any) -> None:
    here = world.of(gpus=2)
    here.submit("a", 10)
    here.submit("b", 10)
    pool = here.api.stored(POOL, "p")
    broken = [{"node": "w1", "index": 0, "reason": "test"}]
    spec = {**pool["spec"], "unhealthy": broken}
    here.api.put(POOL, {**pool, "spec": spec})
    change_node(here, "w1", allocatable={"cpu": "8", "emugpu.dev/emuGPU": "1"})
    now = story(here)
    now.until(now.running("a"))
    (share,) = now.view("a").allocation.tasks[0].shares
    devices = now.program.loop._ledger.views()["w1"].devices
    assert [(d.healthy, d.uuid == share.device) for d in devices] == [(False, False), (True, True)]
    now.until(now.done("a", "b"))


def test_gpus_of_other_peoples_pods_are_not_taken(world: Any, story: Any) -> None:
    here = world.of(gpus=2)
    container = {"name": "c", "resources": {"limits": {"emugpu.dev/emuGPU": "1"}}}
    metadata = {
        "name": "theirs",
        "namespace": "else",
        "uid": "x",
        "labels": {"emugpu.dev/job": "?", "emugpu.dev/job-uid": "?"},
    }
    pod = {"metadata": metadata, "spec": {"nodeName": "w1", "containers": [container]}, "status": {"phase": "Running"}}
    here.api.put(POD, pod)
    for number in range(2):
        here.submit(f"j{number}", 6)
    now = story(here)
    now.until(now.running("j0"))
    now.later(3)
    assert now.view("j1").queued
    here.api.put(POD, {**pod, "status": {"phase": "Succeeded"}})
    now.until(now.running("j1"), within_s=3)
    now.until(now.done("j0", "j1"))


# --- the API server --------------------------------------------------------------------------------------------------------


def test_a_start_that_finds_a_newer_job_looks_again_at_once(world: Any, story: Any) -> None:
    here = world.of()
    here.submit("a", 5)
    now = story(here)
    here.api.failures["patch"] = [ConflictError("newer"), ConflictError("newer")]
    now.until(now.running("a"), within_s=3)
    assert now.program.said == []


@pytest.mark.parametrize("error", [ApiAwayError("away"), ClusterError("can't be"), ConflictError("newer")])
def test_a_start_that_fails_is_tried_again(world: Any, story: Any, error: Exception) -> None:
    here = world.of()
    here.submit("a", 5)
    now = story(here)
    here.api.failures["patch"] = [error] * 3
    now.until(now.done("a"))
    assert now.program.decisions[0].refused == ["a"]
    assert now.program.said == (
        [] if isinstance(error, ConflictError) else [f"job 'a' can't be started: {error}; trying again"] * 3
    )


@pytest.mark.parametrize("actuator", ["jobs", "gated", "binding"])
def test_a_stop_is_tried_until_it_is_so(world: Any, story: Any, actuator: str) -> None:
    here = world.of(gpus=1)
    here.submit("long", 40, actuator=actuator)
    now = story(here, "srtf")
    now.until(now.running("long"))
    operation = "patch" if actuator == "jobs" else "delete"
    here.api.failures[operation] = [ApiAwayError("away"), ConflictError("newer"), ApiAwayError("away")]
    here.submit("short", 3, actuator=actuator)
    now.until(now.done("long", "short"))
    assert [name for name, _, _ in here.runs] == ["long", "short", "long"]


def test_who_may_not_act_any_more_ends(world: Any, story: Any) -> None:
    here = world.of()
    now = story(here)
    now.program.may_act = False
    here.submit("a", 5)
    with pytest.raises(LeadershipLostError, match="another scheduler of this name may act now"):
        now.until(now.done("a"))
    assert here.job("a")["spec"]["suspend"] is True


def test_who_may_not_act_any_more_stops_nothing(world: Any, story: Any) -> None:
    here = world.of(gpus=1)
    here.submit("long", 40)
    now = story(here, "srtf")
    now.until(now.running("long"))
    now.program.may_act = False
    here.submit("short", 3)
    with pytest.raises(LeadershipLostError):
        now.until(now.done("short"))
    assert here.job("long")["spec"]["suspend"] is False


def test_a_rejected_pods_job_is_started_again(world: Any, story: Any) -> None:
    """The controller makes the Job anew; its scheduler sees it wait, and starts it again."""
    here = world.of(gpus=1)
    here.submit("a", 5, actuator="binding")
    now = story(here)
    now.until(lambda: any(pod["spec"].get("nodeName") for pod in here.pods("a")))
    here.api.remove(JOB, "lab/a")
    for pod in here.pods("a"):
        here.api.remove(POD, f"lab/{pod['metadata']['name']}")
    now.until(now.done("a"))
    assert len(here.runs) == 1


# --- progress and division ----------------------------------------------------------------------------------------------------


def test_steps_are_known_between_two_reports(world: Any, story: Any) -> None:
    here = world.of()
    here.submit("a", 20, steps=20)
    now = story(here)
    now.until(now.running("a"))
    began_ns = here.now_ns
    now.later(5)
    expected = (here.now_ns - began_ns) // NS
    assert abs(now.program.steps_done("a") - expected) <= 1
    now.later(30)
    assert now.view("a") is None


def test_the_loop_knows_the_steps_of_a_stopped_job(world: Any, story: Any) -> None:
    here = world.of(gpus=1)
    here.submit("long", 40, steps=40)
    now = story(here, "srtf")
    now.until(now.running("long"))
    now.later(6)
    here.submit("short", 3)
    now.until(now.running("short"))
    uid = here.emujob("long")["metadata"]["uid"]
    assert abs(now.view("long").steps_done - here.done[uid]) <= 2


def test_a_newer_status_corrects_what_the_loop_believes_of_a_waiting_job(world: Any, story: Any) -> None:
    here = world.of(gpus=1)
    here.submit("a", 40)
    here.submit("b", 40)
    now = story(here)
    now.until(now.running("a"))
    assert now.view("b").steps_done == 0
    found = here.emujob("b")
    here.api.put(EMUJOB, {**found, "status": {**found["status"], "stepsDone": 4}})
    here.done[found["metadata"]["uid"]] = 4
    now.until(lambda: now.view("b").steps_done == 4, within_s=3)


DIVIDING = """
from scheduler_sims.interface.plan import Plan
from scheduler_sims.policies.placing import FreeSpace
from dataclasses import replace

class Dividing:
    '''Each job gets two CPUs; the first one gets three more once another one is there.'''
    needs_estimates = False
    preemptive = False

    def plan(self, view):
        space = FreeSpace.now(view)
        start = {}
        for job in view.queued():
            allocation = space.place(job.configurations[0])
            if allocation:
                start[job.job_id] = _with(allocation, 2000)
        for job in view.holding():
            if job.allocation and len(view.jobs) > 1 and job.row == min(j.row for j in view.jobs.values()):
                start[job.job_id] = _with(job.allocation, 5000)
        return view.plan.evolve(start=start)


def _with(allocation, cpu_milli):
    return replace(allocation, tasks=tuple(replace(task, cpu_milli=cpu_milli) for task in allocation.tasks))
"""


@pytest.mark.parametrize("actuator", ["jobs", "gated"])
def test_a_new_division_reaches_the_pods_and_the_emujob(world: Any, story: Any, tmp_path: Any, actuator: str) -> None:
    (tmp_path / "dividing.py").write_text(DIVIDING)
    here = world.of(gpus=2)
    here.submit("a", 20, actuator=actuator)
    now = story(here, f"{tmp_path}/dividing.py:Dividing")
    now.until(now.running("a"))
    assert noted(here.pods("a")[0]) == 2000
    here.submit("b", 10, actuator=actuator)
    here.api.failures["patch"] = [ApiAwayError("away")]
    now.until(lambda: noted(here.pods("a")[0]) == 5000 and noted(here.emujob("a")) == 5000)
    assert len(here.pods("a")) == 1
    now.close()
    again = story(here, f"{tmp_path}/dividing.py:Dividing")
    assert again.program._events[1].job.allocation.tasks[0].cpu_milli == 5000
    again.until(again.done("a", "b"))


def noted(document: Any) -> int:
    text = document["metadata"].get("annotations", {}).get("emugpu.dev/allocation", "{}")
    return int(json.loads(text).get("cpu_milli", 0))
