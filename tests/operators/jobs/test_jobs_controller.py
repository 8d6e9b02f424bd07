"""The controller's shell on an API server in memory: what it writes, and what it does when things fail or somebody is faster."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from emulator_runtime.domain.errors import ClusterError
from emulator_runtime.profiles.table import ProfileTable
from operators.controllers.leader_election import LeadershipLostError
from operators.jobs.controller import Controller, Dependencies, JobMetrics
from operators.jobs.creation_attempts import CreationAttempts
from operators.jobs.manifests import Images
from operators.kube.api import (
    EMUJOB,
    JOB,
    NODE,
    POD,
    POOL,
    SERVICE,
    ApiAwayError,
    ConflictError,
    ForbiddenError,
    NotThereError,
    Resource,
)
from operators.kube.informer import Pauses
from operators.results.computing import job_result
from operators.results.facts_and_result import JobFacts
from operators.results.status import Outcome
from tests.support.event_streams import EventStream
from tests.support.fake_api import FakeApi

WALL_NS = 1_767_225_600_000_000_000  # 2026-01-01T00:00:00Z
QUICK = Pauses(settle=0.001, first=0.001, longest=0.01)


def emujob(name: str = "j", **spec: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "lab", "uid": f"uid-{name}", "generation": 1}
    return {"metadata": metadata, "spec": {"steps": 5, "model": "resnet50", "batchSize": 64, **spec}}


def three_steps_done(name: str) -> Outcome:
    """What the event log tells of an EmuJob of five steps."""
    node, uid = EventStream("w1", begin_ns=WALL_NS, namespace="lab"), f"uid-{name}"
    node.tell("attached", 0, key=f"{uid}/0")
    node.tell("progress", 1, 3, key=f"{uid}/0")
    return Outcome(job_result(JobFacts(uid, "lab", name, WALL_NS, steps=5), node.events))


def cluster() -> FakeApi:
    """One node, which a pool gives two devices."""
    api = FakeApi()
    api.put(NODE, {"metadata": {"name": "w1", "uid": "n"}, "status": {"capacity": {"cpu": "8", "memory": "16Gi"}}})
    metadata = {"name": "p", "uid": "p", "creationTimestamp": "2026-01-01T00:00:00Z", "generation": 1}
    api.put(POOL, {"metadata": metadata, "spec": {"gpus": [{"type": "V100", "count": 2}]}})
    return api


class Running:
    """A controller at work on `api`, for the time of a `with`."""

    def __init__(self, api: FakeApi, pauses: Pauses = QUICK) -> None:
        self.api, self.metrics = api, JobMetrics()
        self.outcomes: dict[str, Outcome] = {}
        self.may_act, self.now_ns = True, WALL_NS
        context = Dependencies(
            Images("emugpu:1"), ProfileTable.bundled(), lambda: self.now_ns, lambda: self.may_act, self.outcomes.get
        )
        self.controller = Controller(api, self.metrics, context, pauses)

    async def __aenter__(self) -> Running:
        self.task = asyncio.create_task(self.controller.run())
        return self

    async def __aexit__(self, *_exception: object) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(30):
            while not condition():
                await self.api.wake()
                await asyncio.sleep(0.002)

    async def rest(self) -> None:
        """Until nothing has been looked at for a while, so that what was written has come back, however busy the machine is."""
        before, quiet = -1.0, 0
        while quiet < 20:
            await asyncio.sleep(0.003)
            before, quiet = looks(self), quiet + 1 if looks(self) == before else 0

    def status(self, name: str = "j") -> dict[str, Any]:
        found: dict[str, Any] = self.api.stored(EMUJOB, f"lab/{name}").get("status", {})
        return found

    def has(self, resource: Resource, name: str) -> bool:
        return name in self.api.objects.get(resource.plural, {})

    def failures(self, doing: str) -> float:
        return self.metrics.registry.get_sample_value("emugpu_jobs_failures_total", {"doing": doing}) or 0.0


def run(story: Callable[[Running], Awaitable[None]], api: FakeApi | None = None, pauses: Pauses = QUICK) -> FakeApi:
    api = api or cluster()

    async def play() -> None:
        async with Running(api, pauses) as running:
            await story(running)

    asyncio.run(play())
    return api


def events(api: FakeApi, reason: str) -> list[dict[str, Any]]:
    return [event for event in api.objects.get("events", {}).values() if event["reason"] == reason]


def test_a_job_from_its_making_to_its_end() -> None:
    async def story(at: Running) -> None:
        await at.until(lambda: at.controller.problem == "")
        at.api.put(EMUJOB, emujob(nodes=1))
        await at.until(lambda: at.has(JOB, "lab/j") and at.status().get("phase") == "Queued")
        job = at.api.stored(JOB, "lab/j")
        assert job["metadata"]["ownerReferences"][0]["uid"] == "uid-j"
        owner = {"uid": job["metadata"]["uid"], "controller": True}
        metadata = {"name": "j-0", "namespace": "lab", "uid": "pod", "labels": {"emugpu.dev/job": "j"}}
        pod = {"metadata": {**metadata, "ownerReferences": [owner]}, "spec": {"nodeName": "w1"}}
        at.api.put(POD, {**pod, "status": {"phase": "Running"}})
        await at.until(lambda: at.status()["phase"] == "Running")
        assert at.status()["node"] == "w1"
        at.outcomes["uid-j"] = three_steps_done("j")
        at.controller.look_again()
        await at.until(lambda: at.status()["progress"] == "3/5")
        status = {"conditions": [{"type": "Complete", "status": "True"}], "completionTime": "2026-01-01T00:00:09Z"}
        at.api.put(JOB, {**at.api.stored(JOB, "lab/j"), "status": status})
        await at.api.wake()
        await asyncio.sleep(0.02)
        assert at.status()["phase"] == "Running"  # the log has not told of the end
        at.now_ns += 5 * 10**9
        at.controller.look_again()
        await at.until(lambda: at.status()["phase"] == "Succeeded")
        assert at.status()["submittedAt"] == "2026-01-01T00:00:00.000000Z"
        value = at.metrics.registry.get_sample_value
        assert (value("emugpu_jobs", {"phase": "Succeeded"}), value("emugpu_jobs", {"phase": "Running"})) == (1, 0)

    api = run(story)
    events = sorted(event["reason"] for event in api.objects["events"].values())
    assert events == ["Complete", "Running"]
    assert {event["metadata"]["namespace"] for event in api.objects["events"].values()} == {"lab"}


def test_several_nodes_have_a_service() -> None:
    api = cluster()
    api.put(NODE, {"metadata": {"name": "w2", "uid": "n2"}})
    api.put(EMUJOB, emujob(nodes=2))
    run(lambda at: at.until(lambda: at.has(SERVICE, "lab/j") and at.has(JOB, "lab/j")), api)
    assert api.stored(SERVICE, "lab/j")["spec"]["publishNotReadyAddresses"] is True


def test_a_service_of_somebody_else_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    api = cluster()
    api.put(NODE, {"metadata": {"name": "w2", "uid": "n2"}})
    api.put(EMUJOB, emujob(nodes=2))
    api.failures = {"create": [ConflictError('services "j" already exists')] * 2}

    async def story(at: Running) -> None:
        await at.until(lambda: at.failures("CreateService") >= 1)
        assert at.controller.problem == ""  # one job's trouble, not the controller's
        await at.until(lambda: at.has(JOB, "lab/j"))

    run(story, api)
    assert 'jobs: services "j" already exists' in capsys.readouterr().err
    told = [(e["type"], e["note"], e["regarding"]["name"]) for e in events(api, "NotCarriedOut")]
    assert told == [("Warning", 'services "j" already exists', "j")]


def test_a_refusal_that_does_not_last_is_no_event() -> None:
    api = cluster()
    api.put(EMUJOB, emujob())
    api.failures = {"create": [ClusterError("exceeded quota")]}
    run(lambda at: at.until(lambda: at.has(JOB, "lab/j") and at.status().get("phase") == "Queued"), api)
    assert events(api, "NotCarriedOut") == []


def why_not(at: Running, name: str = "j") -> tuple[str, str]:
    found = [c for c in at.status(name).get("conditions", ()) if c["type"] == "Scheduled"]
    return (found[0]["reason"], found[0]["message"]) if found else ("", "")


def test_a_job_that_stays_refused_says_why_in_its_status(capsys: pytest.CaptureFixture[str]) -> None:
    api = cluster()
    api.put(EMUJOB, emujob())
    invalid = ClusterError('create jobs: Job.batch "j" is invalid')
    refusals: list[Exception] = []
    create = api.create

    async def refuse(resource: Resource, document: dict[str, Any], manager: str = "") -> dict[str, Any]:
        if resource is JOB and refusals:
            raise refusals[0]
        return await create(resource, document, manager)

    api.create = refuse  # type: ignore[method-assign]
    refusals.append(invalid)

    async def story(at: Running) -> None:
        await at.until(lambda: why_not(at) == ("NotCarriedOut", str(invalid)))
        await at.until(lambda: at.failures("CreateJob") >= 4)
        assert at.controller.problem == "" and at.status()["phase"] == "Pending"
        at.now_ns += 10**9
        refusals[0] = ForbiddenError("create jobs: exceeded quota")
        await at.until(lambda: why_not(at) == ("NotCarriedOut", "create jobs: exceeded quota"))
        refusals.clear()
        await at.until(lambda: at.has(JOB, "lab/j") and why_not(at)[0] == "WaitingForNodes")

    run(story, api)
    told = [event["note"] for event in events(api, "NotCarriedOut")]
    assert sorted(told) == [str(invalid), "create jobs: exceeded quota"]
    lines = capsys.readouterr().err.splitlines()
    assert lines == [f"jobs: {invalid}", "jobs: create jobs: exceeded quota"]  # not once for each attempt


@pytest.mark.parametrize("failing", ["create", "apply"])
def test_what_fails_while_a_refusal_stands_is_tried_ever_less_often(failing: str) -> None:
    """Of the Job, once its time to be asked for again has come, or of the status that would tell the refusal."""
    api, pauses = cluster(), Pauses(settle=0.001, first=0.05, longest=10.0)
    api.put(EMUJOB, emujob())
    create, apply = api.create, api.apply
    refusals, asked_s = 0, []

    def away() -> ApiAwayError:
        asked_s.append(asyncio.get_running_loop().time())
        return ApiAwayError(f"{failing}: away")

    async def refuse(resource: Resource, document: dict[str, Any], manager: str = "") -> dict[str, Any]:
        nonlocal refusals
        if resource is not JOB:
            return await create(resource, document, manager)
        refusals += 1
        if refusals <= 2:
            raise ForbiddenError("create jobs: exceeded quota")
        raise away()

    async def lose(resource: Resource, name: str, document: dict[str, Any], manager: str) -> dict[str, Any]:
        if failing == "apply" and refusals >= 2:
            raise away()
        return await apply(resource, name, document, manager)

    api.create, api.apply = refuse, lose  # type: ignore[method-assign]
    run(lambda at: at.until(lambda: len(asked_s) >= 5), api, pauses)
    pauses_s = sum(pauses.after(times) for times in (1, 2, 3))  # the refusal's own time may end one of the four early
    assert asked_s[4] - asked_s[0] >= 0.9 * pauses_s


def test_other_news_is_no_reason_to_ask_again() -> None:
    attempts = CreationAttempts(Pauses())
    assert attempts.of("lab/j", "u", 0.0) is None
    asked = []
    now_s = 0.0
    while now_s < 120.0:
        known = attempts.of("lab/j", "u", now_s)
        if known is None or not known.left_s:
            asked.append(now_s)
            attempts.note("lab/j", "u", "no", now_s)
        now_s += 0.5
    assert asked == [0.0, 0.5, 8.5, 24.5, 56.5, 116.5]
    assert attempts.of("lab/j", "another", now_s) is None
    assert attempts.note("lab/j", "another", "no", now_s)  # of another EmuJob: said again
    attempts.forget("lab/j")
    assert attempts.of("lab/j", "another", now_s) is None


def test_writes_that_do_not_come_through_make_it_unready() -> None:
    api = cluster()
    api.put(EMUJOB, emujob())
    api.failures = {"create": [ApiAwayError("the API server is away")] * 3}

    async def story(at: Running) -> None:
        await at.until(lambda: at.controller.problem == "the API server is away")
        await at.until(lambda: at.has(JOB, "lab/j") and at.controller.problem == "")

    run(story, api)
    assert events(api, "NotCarriedOut") == []


def test_a_cluster_at_rest_is_not_written_to() -> None:
    async def story(at: Running) -> None:
        await at.until(lambda: at.has(JOB, "lab/j") and at.status().get("phase") == "Queued")
        writes = len(at.api.log)
        for _ in range(3):
            at.controller.look_again()
            await asyncio.sleep(0.02)
        assert len(at.api.log) == writes

    api = cluster()
    api.put(EMUJOB, emujob())
    run(story, api)


def test_a_job_of_the_same_name_in_another_namespace_is_another_one() -> None:
    api = cluster()
    api.put(EMUJOB, emujob())
    other = emujob()
    other["metadata"] |= {"namespace": "other", "uid": "u2"}
    api.put(EMUJOB, other)
    run(lambda at: at.until(lambda: at.has(JOB, "lab/j") and at.has(JOB, "other/j")), api)


def test_failures_are_retried_reported_and_hold_up_nobody(capsys: pytest.CaptureFixture[str]) -> None:
    api = cluster()
    for name in ("j", "k"):
        api.put(EMUJOB, emujob(name))
    api.failures = {
        "list": [ApiAwayError("list: away")],
        "watch": [ClusterError("watch: forbidden")],
        "create": [ClusterError("create jobs: forbidden")],
    }

    async def story(at: Running) -> None:
        await at.until(lambda: at.has(JOB, "lab/j") and at.has(JOB, "lab/k") and at.controller.problem == "")
        assert (at.failures("CreateJob"), at.failures("watch")) == (1, 2)

    run(story, api)
    assert "jobs: create jobs: forbidden" in capsys.readouterr().err


def test_old_news_is_looked_at_again() -> None:
    api = cluster()
    api.put(EMUJOB, emujob())
    api.failures = {"apply": [ConflictError("the object has been modified")]}

    async def story(at: Running) -> None:
        await at.until(lambda: not api.failures["apply"])
        assert not at.has(JOB, "lab/j")  # what comes after a write that failed waits for it
        api.put(EMUJOB, {**emujob(), "metadata": {**emujob()["metadata"], "labels": {"changed": "yes"}}})
        await at.until(lambda: at.has(JOB, "lab/j"))
        assert not at.failures("WriteStatus") and at.controller.problem == ""

    run(story, api)


def test_who_may_not_act_any_more_ends_before_it_writes() -> None:
    async def story(at: Running) -> None:
        await at.until(lambda: at.controller.problem == "")
        at.may_act = False
        at.api.put(EMUJOB, emujob())
        await at.until(at.task.done)
        with pytest.raises(ExceptionGroup) as caught:
            await at.task
        assert caught.group_contains(LeadershipLostError)

    assert run(story).log == []


def test_a_hold_is_of_the_version_that_was_seen() -> None:
    async def story(at: Running) -> None:
        await at.until(lambda: at.has(JOB, "lab/j"))
        document = {**at.api.stored(EMUJOB, "lab/j"), "spec": {**emujob()["spec"], "suspend": True}}
        at.api.put(EMUJOB, document)
        await at.until(lambda: at.api.stored(JOB, "lab/j")["spec"]["suspend"])

    api = cluster()
    api.put(EMUJOB, emujob())
    run(story, api)


def test_a_job_whose_pod_was_turned_away_is_made_anew() -> None:
    async def story(at: Running) -> None:
        await at.until(lambda: at.has(JOB, "lab/j"))
        first = at.api.stored(JOB, "lab/j")["metadata"]["uid"]
        metadata = {"name": "j-0", "namespace": "lab", "labels": {"emugpu.dev/job": "j"}, "uid": "pod"}
        metadata["ownerReferences"] = [{"uid": first, "controller": True}]
        status = {"phase": "Failed", "reason": "UnexpectedAdmissionError"}
        at.api.put(POD, {"metadata": metadata, "spec": {"nodeName": "w1"}, "status": status})
        await at.until(lambda: at.has(JOB, "lab/j") and at.api.stored(JOB, "lab/j")["metadata"]["uid"] != first)
        await at.until(lambda: at.status()["job"]["uid"] != first)
        assert (at.status()["rejections"], at.status()["failures"]) == (1, 0)

    api = cluster()
    api.put(EMUJOB, emujob())
    run(story, api)


def looks(at: Running) -> float:
    return at.metrics.registry.get_sample_value("emugpu_jobs_reconcile_seconds_count") or 0.0


def test_a_change_costs_one_look_however_many_there_are() -> None:
    api = cluster()
    for number in range(30):
        api.put(EMUJOB, emujob(f"j{number}"))

    async def story(at: Running) -> None:
        await at.until(lambda: at.status("j29").get("phase") == "Queued")
        await at.rest()
        before = looks(at)
        api.put(JOB, {**api.stored(JOB, "lab/j7"), "status": {"active": 1}})
        api.put(POD, {"metadata": {"name": "p", "namespace": "lab", "uid": "p", "labels": {"emugpu.dev/job": "j7"}}})
        await at.until(lambda: looks(at) > before)
        await at.rest()
        assert looks(at) - before <= 4

    run(story, api)


def test_a_new_pool_lets_all_be_looked_at() -> None:
    api = cluster()
    pool = api.stored(POOL, "p")
    api.remove(POOL, "p")
    for name in ("j", "k"):
        api.put(EMUJOB, emujob(name))

    async def story(at: Running) -> None:
        await at.until(lambda: at.status("j").get("phase") == at.status("k").get("phase") == "Rejected")
        api.put(POOL, pool)
        await at.until(lambda: at.has(JOB, "lab/j") and at.has(JOB, "lab/k"))

    run(story, api)


def test_only_those_who_are_named_are_looked_at_again() -> None:
    api = cluster()
    for name in ("j", "k"):
        api.put(EMUJOB, emujob(name))

    async def story(at: Running) -> None:
        await at.until(lambda: at.status("j").get("phase") == at.status("k").get("phase") == "Queued")
        await at.rest()
        at.outcomes |= {f"uid-{name}": three_steps_done(name) for name in ("j", "k")}
        at.controller.look_again("uid-k")
        await at.until(lambda: at.status("k")["stepsDone"] == 3)
        assert at.status("j")["stepsDone"] == 0
        at.controller.look_again()
        await at.until(lambda: at.status("j")["stepsDone"] == 3)

    run(story, api)


async def divided(at: Running) -> None:
    """An EmuJob whose pod runs and has been given four emulated CPUs."""
    await at.until(lambda: at.has(JOB, "lab/j"))
    owner = {"uid": at.api.stored(JOB, "lab/j")["metadata"]["uid"], "controller": True}
    note = {"emugpu.dev/allocation": '{"configuration":"default","nodes":["w1"],"cpu_milli":4000}'}
    metadata = {"name": "j-0", "namespace": "lab", "uid": "pod", "labels": {"emugpu.dev/job": "j"}, "annotations": note}
    container = {"name": "train", "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}}}
    spec = {"nodeName": "w1", "containers": [container]}
    pod = {"metadata": {**metadata, "ownerReferences": [owner]}, "spec": spec, "status": {"phase": "Running"}}
    at.api.put(POD, pod)
    await at.until(lambda: at.status().get("phase") == "Running")


def asked(at: Running) -> Any:
    return at.api.stored(POD, "lab/j-0")["spec"]["containers"][0]["resources"]["requests"]["cpu"]


def resized(at: Running) -> tuple[str, str]:
    (found,) = [c for c in at.status()["conditions"] if c["type"] == "Resized"]
    return found["reason"], found["message"]


FOLLOWING = {"scheduler": {"actuator": "gated", "name": "s"}, "native": {"follow": {"cpu": "50m"}}}


@pytest.mark.parametrize("failure", [ConflictError("faster"), ApiAwayError("away")])
def test_a_resize_is_tried_until_it_comes_through(failure: Exception) -> None:
    api = cluster()
    api.put(EMUJOB, emujob(**FOLLOWING))
    api.failures = {"patch": [failure, failure]}

    async def story(at: Running) -> None:
        await divided(at)
        await at.until(lambda: asked(at) == "200m" and resized(at) == ("AsAllocated", "cpu 200m"))
        await at.until(lambda: at.controller.problem == "")

    run(story, api)
    assert api.log.count(("patch", "pods", "j-0")) == 1


@pytest.mark.parametrize(
    "failure", [ForbiddenError("exceeded quota"), ClusterError("not valid"), NotThereError("no such subresource")]
)
def test_a_resize_that_is_refused_is_reported_and_asked_for_again_later(
    failure: Exception, capsys: pytest.CaptureFixture[str]
) -> None:
    api = cluster()
    api.put(EMUJOB, emujob(**FOLLOWING))
    api.failures = {"patch": [failure, ClusterError("for another reason")]}

    async def story(at: Running) -> None:
        await divided(at)
        await at.until(lambda: resized(at) == ("Refused", str(failure)))
        await asyncio.sleep(0.05)
        assert (asked(at), at.failures("ResizePod"), at.controller.problem) == ("10m", 1, "")
        at.now_ns += 60 * 10**9
        at.controller.look_again()
        await at.until(lambda: resized(at) == ("Refused", "for another reason"))
        at.now_ns += 60 * 10**9
        at.controller.look_again()
        await at.until(lambda: asked(at) == "200m" and resized(at)[0] == "AsAllocated")

    run(story, api)
    assert f"jobs: {failure}" in capsys.readouterr().err
    (event,) = [event for event in api.objects["events"].values() if event["reason"] == "ResizeRefused"]
    assert event["note"] == str(failure)
