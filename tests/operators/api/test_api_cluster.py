"""A cluster as a source, over an API server in memory that fails on request, and with a store of results."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from emulator_runtime.domain.errors import ClusterError
from emulator_runtime.domain.gpu import device_uuid
from emulator_runtime.domain.units import NS_PER_S
from operators.api.authentication.callers import Scope
from operators.api.model.changes import Changes
from operators.api.model.statistics import occupancy
from operators.api.model.visibility import experiment_view, of_run
from operators.api.sources.cluster import ClusterSource, Naming
from operators.api.sources.emujobs import record_of, record_of_result
from operators.api.sources.stored_results import StoredResults
from operators.kube.api import EMUJOB, NODE, POOL, ApiAwayError, NotThereError
from operators.kube.informer import Pauses
from operators.kube.timestamps import rfc3339_micro
from operators.results.computing import job_result
from operators.results.events import JobEvent
from operators.results.facts_and_result import JobFacts
from operators.results.predicted import Prediction
from operators.results.reading import ResultReader
from operators.results.store import Batch, ResultStore
from operators.results_feed.feed import StoreFeed
from tests.support.event_streams import EventStream
from tests.support.fake_api import FakeApi

T0 = 1_767_225_600  # 2026-01-01T00:00:00Z
FAST = Pauses(settle=0.0, first=0.01, longest=0.02)


def time(offset_s: float) -> str:
    return rfc3339_micro(round((T0 + offset_s) * NS_PER_S))


def emujob(
    name: str,
    *,
    experiment: str = "",
    scheduler: str = "",
    namespace: str = "lab",
    annotations: dict[str, str] | None = None,
    **status: Any,
) -> dict[str, Any]:
    labels = {"emugpu.dev/experiment": experiment} if experiment else {}
    acting = {"actuator": "jobs", "name": scheduler} if scheduler else {"actuator": "none", "name": ""}
    return {
        "apiVersion": "emugpu.dev/v1alpha1",
        "kind": "EmuJob",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": f"uid-{name}",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": labels,
            "annotations": annotations or {},
        },
        "spec": {"steps": 100, "model": "resnet50", "batchSize": 64, "scheduler": acting},
        "status": status,
    }


def node(name: str) -> dict[str, Any]:
    status = {"capacity": {"cpu": "4", "memory": "8Gi"}, "conditions": [{"type": "Ready", "status": "True"}]}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "uid": name, "labels": {"gpu": "yes"}},
        "status": status,
    }


def pool(**members: Any) -> dict[str, Any]:
    spec = {"nodeSelector": {"matchLabels": {"gpu": "yes"}}, "gpus": [{"type": "V100", "count": 2}], **members}
    return {
        "apiVersion": "emugpu.dev/v1alpha1",
        "kind": "EmuGPUPool",
        "metadata": {"name": "p", "uid": "p"},
        "spec": spec,
    }


def running(name: str, gpu: int = 0, **members: Any) -> dict[str, Any]:
    run = {"node": "w1", "devices": [device_uuid("w1", gpu)], "from": time(2), "fromStep": 0, "toStep": 40}
    known: dict[str, Any] = {
        "phase": "Running",
        "submittedAt": time(1),
        "startedAt": time(2),
        "gpus": 1,
        "stepsDone": 40,
        "node": "w1",
        "runs": [run],
        "preemptions": 0,
    }
    return emujob(name, **(known | members))


class Story:
    """A source at work. `until` waits for what comes true of its snapshot."""

    def __init__(self, results: StoredResults | None = None) -> None:
        self.api = FakeApi()
        self.changes = Changes("e")
        self.now_s = float(T0 + 60)
        self.source = ClusterSource(
            self.api, self.changes, lambda: round(self.now_s * NS_PER_S), Naming("lab"), results, FAST
        )

    async def until(self, condition: Callable[[], Any]) -> None:
        async with asyncio.timeout(30):
            while not condition():
                await self.api.wake()
                await asyncio.sleep(0.005)

    def phase(self, name: str) -> str:
        found = self.source.snapshot().job(f"uid-{name}")
        return found.phase if found is not None else ""

    def tell(self, work: Callable[[Story], Coroutine[Any, Any, None]]) -> None:
        async def story() -> None:
            task = asyncio.create_task(self.source.run())
            try:
                await work(self)
            finally:
                task.cancel()
                await asyncio.wait([task])

        asyncio.run(story())


def test_jobs_nodes_and_devices_appear() -> None:
    async def work(story: Story) -> None:
        assert story.source.snapshot().cluster.problem == "no objects have been listed yet"
        assert story.source.waits_for() == "the first list of emujobs, emugpupools, nodes"
        story.api.put(EMUJOB, running("a"))
        story.api.put(NODE, node("w1"))
        story.api.put(POOL, pool(emulated={"cpu": 24, "memory": "500Gi"}))
        await story.until(lambda: story.source.snapshot().devices)
        snapshot = story.source.snapshot()
        assert snapshot.cluster.problem == story.source.waits_for() == ""
        (job,) = snapshot.jobs
        assert (job.name, job.namespace, job.phase, job.devices, job.steps_done) == (
            "a",
            "lab",
            "Running",
            ("w1/0",),
            40,
        )
        assert (job.submitted_s, job.started_s) == (T0 + 1, T0 + 2)
        assert snapshot.runs_of(job.uid)[0].devices == ("w1/0",)
        assert [(device.id, device.held, device.holders) for device in snapshot.devices] == [
            ("w1/0", True, ("uid-a",)),
            ("w1/1", False, ()),
        ]
        (only,) = snapshot.nodes
        assert (only.devices, only.held, only.cpu_milli, only.memory_bytes) == (2, 1, 24_000, 500 * 2**30)
        assert snapshot.now_s == T0 + 60
        story.now_s += 5
        assert snapshot.now_s == T0 + 65  # its clock goes on

    Story().tell(work)


def test_changes_are_reported() -> None:
    async def work(story: Story) -> None:
        story.api.put(NODE, node("w1"))
        story.api.put(POOL, pool())
        story.api.put(EMUJOB, running("a"))
        story.api.put(EMUJOB, emujob("b", phase="Queued"))
        await story.until(lambda: story.phase("a") and story.phase("b") and story.source.snapshot().devices)
        mark = story.changes.last
        story.api.put(EMUJOB, running("a", phase="Preempted", runs=[]))
        await story.until(lambda: story.phase("a") == "Preempted")
        changes = {(change.kind, change.subject, change.namespace) for change in story.changes.after(mark) or ()}
        assert changes == {("job", "uid-a", "lab"), ("device", "w1/0", ""), ("node", "w1", "")}
        mark = story.changes.last
        story.api.remove(EMUJOB, "lab/b")
        await story.until(lambda: not story.phase("b"))
        assert [(change.kind, change.subject) for change in story.changes.after(mark) or ()] == [("job", "uid-b")]
        mark = story.changes.last
        story.api.remove(NODE, "w1")
        await story.until(lambda: not story.source.snapshot().nodes)
        kinds = {(change.kind, change.subject) for change in story.changes.after(mark) or ()}
        assert {("node", "w1"), ("device", "w1/0"), ("device", "w1/1")} <= kinds

    Story().tell(work)


def test_an_api_server_that_is_away_is_reported_until_it_is_back() -> None:
    async def work(story: Story) -> None:
        story.api.failures["list"] = [ApiAwayError("list: away") for _ in range(12)]
        await story.until(lambda: story.source.snapshot().cluster.problem == "list: away")
        story.api.put(EMUJOB, running("a"))
        await story.until(lambda: story.source.snapshot().cluster.problem == "" and story.phase("a"))

    Story().tell(work)


def test_a_job_is_held_and_let_go() -> None:
    async def work(story: Story) -> None:
        story.api.put(EMUJOB, running("a"))
        await story.until(lambda: story.phase("a"))
        await story.source.suspend("uid-a", suspended=True)
        assert story.api.stored(EMUJOB, "lab/a")["spec"]["suspend"] is True
        assert story.api.stored(EMUJOB, "lab/a")["spec"]["steps"] == 100
        await story.until(lambda: story.source.snapshot().jobs[0].suspended)
        await story.source.suspend("uid-a", suspended=False)
        await story.until(lambda: not story.source.snapshot().jobs[0].suspended)
        with pytest.raises(NotThereError):
            await story.source.suspend("uid-b", suspended=True)
        gone = emujob("a") | {"metadata": emujob("a")["metadata"] | {"uid": "another"}}
        story.api.put(EMUJOB, gone)
        with pytest.raises(NotThereError):  # made anew under the same name: it was never meant
            await story.source.suspend("uid-a", suspended=True)

    Story().tell(work)


def test_experiments_are_labels() -> None:
    async def work(story: Story) -> None:
        for name, scheduler in (("a", "fifo"), ("b", "allox"), ("c", "allox")):
            story.api.put(EMUJOB, emujob(name, experiment="x1", scheduler=scheduler, phase="Queued"))
        story.api.put(EMUJOB, emujob("d", phase="Queued"))
        await story.until(lambda: len(story.source.snapshot().jobs) == 4)
        (experiment,) = story.source.snapshot().experiments
        assert (experiment.id, experiment.namespace, experiment.meta) == ("lab.x1", "lab", {"jobs": "3"})
        runs = [(run.id, run.policy) for run in experiment.runs]
        assert runs == [("lab.x1.fifo", "fifo"), ("lab.x1.allox", "allox")]

    Story().tell(work)


def test_a_jobs_story_without_a_store() -> None:
    async def work(story: Story) -> None:
        condition = {
            "type": "Accepted",
            "status": "True",
            "reason": "Accepted",
            "message": "",
            "lastTransitionTime": time(1),
        }
        story.api.put(EMUJOB, running("a", conditions=[condition]))
        await story.until(lambda: story.phase("a"))
        timeline = await story.source.timeline("uid-a")
        assert timeline is not None
        assert [(each.type, each.since_s) for each in timeline.conditions] == [("Accepted", T0 + 1)]
        (progress,) = timeline.progress  # a straight line from the run's beginning until now
        assert (progress.from_s, progress.to_s, progress.from_step, progress.to_step) == (T0 + 2, T0 + 60, 0, 40)
        assert await story.source.timeline("uid-b") is None

    Story().tell(work)


# --- one EmuJob --------------------------------------------------------------------------------------------------------------


def test_an_emujob_that_succeeded() -> None:
    document = emujob(
        "a",
        phase="Succeeded",
        submittedAt=time(0),
        startedAt=time(2),
        finishedAt=time(12),
        observedJCTSeconds=12.0,
        queueingDelaySeconds=2.0,
        predictedJCTSeconds={"value": 15.0, "by": "allox", "at": time(0)},
        slowdown=1.2,
        stepsDone=100,
        gpus=1,
    )
    job = record_of(document).job
    assert (job.jct_s, job.predicted_jct_s, job.predicted_by, job.error) == (12.0, 15.0, "allox", 0.25)
    assert (job.finished_s, job.queueing_delay_s, job.slowdown) == (T0 + 12, 2.0, 1.2)


@pytest.mark.parametrize(
    ("phase", "conditions", "reason"),
    [
        ("Rejected", [("Accepted", "False", "no pool has 16 GPUs")], "no pool has 16 GPUs"),
        ("Failed", [("Failed", "True", "backoff limit")], "backoff limit"),
        ("Queued", [("Progressing", "False", ""), ("Scheduled", "False", "waits for srtf")], "waits for srtf"),
        ("Running", [("Progressing", "True", "runs")], ""),
    ],
)
def test_why_a_job_does_not_run(phase: str, conditions: list[tuple[str, str, str]], reason: str) -> None:
    reported = [{"type": kind, "status": status, "message": message} for kind, status, message in conditions]
    assert record_of(emujob("a", phase=phase, conditions=reported)).job.reason == reason


def test_without_runs_the_start_and_the_end_count() -> None:
    only = record_of(emujob("a", phase="Succeeded", startedAt=time(2), finishedAt=time(9), node="w1", gpus=2)).runs
    assert [(run.node, run.from_s, run.to_s, run.exact) for run in only] == [("w1", T0 + 2, T0 + 9, True)]
    stopped = record_of(
        emujob("a", phase="Succeeded", startedAt=time(2), finishedAt=time(9), node="w1", preemptions=1)
    ).runs
    assert not stopped[0].exact
    assert record_of(emujob("a", phase="Succeeded", startedAt=time(2), node="w1")).runs == ()  # its end isn't known yet
    assert record_of(emujob("a", phase="Queued")).runs == ()


@pytest.mark.parametrize(
    "status",
    [{}, {"phase": "Asleep", "runs": "x", "gpus": "2", "observedJCTSeconds": True}, {"runs": [{}], "allocation": []}],
)
def test_what_is_odd_is_not_there(status: dict[str, Any]) -> None:
    job = record_of(emujob("a", **status)).job
    assert (job.phase, job.jct_s, job.submitted_s) == ("Pending", None, T0)
    assert record_of({"metadata": {"name": "x", "namespace": "y"}}).job.uid == ""


# --- the store ---------------------------------------------------------------------------------------------------------------


def run_of_compare(name: str, number: int, policy: str, **status: Any) -> dict[str, Any]:
    """An EmuJob as `compare --on kubernetes` makes it."""
    return emujob(
        name,
        namespace=f"emugpu-exp-6b031c29-{number}",
        experiment=f"6b031c29-{number}",
        submittedAt=time(number),
        scheduler=f"exp-6b031c29-{number}",
        annotations={"emugpu.dev/policy": policy},
        **status,
    )


def test_the_same_label_in_two_namespaces_names_two_experiments() -> None:
    async def work(story: Story) -> None:
        for name, namespace in (("a", "lab"), ("b", "other"), ("c", "lab")):
            document = emujob(name, namespace=namespace, experiment="demo", scheduler="fifo", phase="Queued")
            story.api.put(EMUJOB, document)
        await story.until(lambda: len(story.source.snapshot().jobs) == 3)
        snapshot = story.source.snapshot()
        assert {(each.id, each.meta["jobs"]) for each in snapshot.experiments} == {
            ("lab.demo", "2"),
            ("other.demo", "1"),
        }
        (mine,) = experiment_view(snapshot, Scope("other"))
        assert (mine.id, [run.id for run in mine.runs]) == ("other.demo", ["other.demo.fifo"])
        assert [job.uid for job in of_run(snapshot, Scope("other"), "other.demo.fifo").jobs] == ["uid-b"]
        assert [job.uid for job in of_run(snapshot, Scope(""), "other.demo.fifo").jobs] == ["uid-b"]
        with pytest.raises(NotThereError):
            of_run(snapshot, Scope("other"), "lab.demo.fifo")

    Story().tell(work)


def test_runs_of_an_experiment_bear_their_policys_name() -> None:
    """In namespaces of their own, also while they run, with predicted beside observed JCT."""

    async def work(story: Story) -> None:
        predicted = {"value": 20.0, "by": "srtf", "at": time(0)}
        ended = {"phase": "Succeeded", "observedJCTSeconds": 16.0, "finishedAt": time(17)}
        story.api.put(EMUJOB, run_of_compare("a", 1, "srtf", predictedJCTSeconds=predicted, **ended))
        story.api.put(
            EMUJOB, run_of_compare("b", 2, "las:threshold_s=300", phase="Running", predictedJCTSeconds=predicted)
        )
        story.api.put(EMUJOB, run_of_compare("c", 3, "srtf", phase="Queued"))
        await story.until(lambda: len(story.source.snapshot().jobs) == 3)
        snapshot = story.source.snapshot()
        (experiment,) = snapshot.experiments
        assert (experiment.id, experiment.namespace) == ("6b031c29", "")
        assert [(run.id, run.policy, run.repeat) for run in experiment.runs] == [
            ("6b031c29-1", "srtf", 1),
            ("6b031c29-2", "las:threshold_s=300", 0),
            ("6b031c29-3", "srtf", 2),
        ]
        by_name = {job.name: job for job in snapshot.jobs}
        assert (by_name["a"].jct_s, by_name["a"].predicted_jct_s, by_name["a"].error) == (16.0, 20.0, 0.25)
        assert (by_name["b"].policy, by_name["b"].predicted_jct_s) == ("las:threshold_s=300", 20.0)
        (view,) = experiment_view(snapshot, Scope("emugpu-exp-6b031c29-2"))
        assert [run.policy for run in view.runs] == ["las:threshold_s=300"]
        assert view.meta == {"jobs": "1"}

    Story().tell(work)


def test_nobody_joins_an_experiment_by_its_label() -> None:
    async def work(story: Story) -> None:
        story.api.put(EMUJOB, run_of_compare("a", 1, "srtf", phase="Queued"))
        forged = {"emugpu.dev/policy": "srtf"}
        for name, label in (("b", "6b031c29-1"), ("c", "6b031c29"), ("d", "6b031c29-2")):
            document = emujob(name, namespace="team", experiment=label, scheduler="mine", annotations=forged)
            story.api.put(EMUJOB, document)
        await story.until(lambda: len(story.source.snapshot().jobs) == 4)
        snapshot = story.source.snapshot()
        found = {each.id: [(run.id, run.policy) for run in each.runs] for each in snapshot.experiments}
        assert found == {
            "6b031c29": [("6b031c29-1", "srtf")],
            "team.6b031c29-1": [("team.6b031c29-1.mine", "mine")],
            "team.6b031c29": [("team.6b031c29.mine", "mine")],
            "team.6b031c29-2": [("team.6b031c29-2.mine", "mine")],
        }

    Story().tell(work)


def event(
    number: int, kind: str, at_s: float, from_step: int, steps_done: int, uid: str = "uid-a", detail: str = ""
) -> JobEvent:
    wall_ns = round((T0 + at_s) * NS_PER_S)
    place = {"stream": "s:w1", "epoch": 1, "sequence": number, "node": "w1", "number": number, "at_ns": wall_ns}
    steps = {"from_step": from_step, "steps_done": steps_done, "detail": detail}
    return JobEvent(
        **place, **steps, wall_ns=wall_ns, kind=kind, job_key=f"{uid}/0", namespace="lab", pod="p", received_ns=wall_ns
    )


def two_runs(uid: str = "uid-a") -> tuple[JobEvent, ...]:
    gpu = device_uuid("w1", 1)
    return (
        event(1, "attached", 2, 0, 0, uid, gpu),
        event(2, "progress", 5, 0, 30, uid),
        event(3, "released", 6, 30, 40, uid),
        event(4, "attached", 8, 40, 40, uid, gpu),
        event(5, "finished", 14, 40, 100, uid),
    )


def facts(uid: str = "uid-a", name: str = "a") -> JobFacts:
    return JobFacts(uid, "lab", name, (T0 + 1) * NS_PER_S, steps=100, gpus=1, policy="srtf")


@pytest.fixture
def store(tmp_path: Path) -> ResultStore:
    return ResultStore(tmp_path / "results.sqlite")


def test_the_store_tells_steps_and_all_runs(
    store: ResultStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("operators.api.sources.cluster.READ_S", 0.01)
    store.note_job(facts())
    store.write(Batch(two_runs()))

    async def work(story: Story) -> None:
        story.api.put(NODE, node("w1"))
        story.api.put(POOL, pool())
        story.api.put(EMUJOB, running("a"))
        await story.until(lambda: story.phase("a") == "Running" and story.source.snapshot().devices)
        await story.until(lambda: not story.source.snapshot().missing)
        timeline = await story.source.timeline("uid-a")
        assert timeline is not None
        assert [(run.from_s - T0, run.devices, run.ended) for run in timeline.runs] == [
            (2, ("w1/1",), "released"),
            (8, ("w1/1",), "finished"),
        ]
        assert [(each.from_s - T0, each.to_s - T0, each.from_step, each.to_step) for each in timeline.progress] == [
            (2, 5, 0, 30),
            (5, 6, 30, 40),
            (8, 14, 40, 100),
        ]

    Story(StoredResults(StoreFeed(tmp_path / "results.sqlite"))).tell(work)


def test_jobs_that_have_no_emujob_are_reported_by_the_store(
    store: ResultStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("operators.api.sources.cluster.READ_S", 0.01)
    store.note_job(facts("uid-plain", "plain"))
    store.write(Batch(two_runs("uid-plain")[:3]))
    store.note_prediction("uid-plain", Prediction(26.0, "srtf", T0 * NS_PER_S))

    async def work(story: Story) -> None:
        await story.until(lambda: story.phase("plain") == "Preempted")
        store.write(Batch(two_runs("uid-plain")))
        await story.until(lambda: story.phase("plain") == "Succeeded")
        job = story.source.snapshot().job("uid-plain")
        assert job is not None
        assert (job.deleted, job.name, job.policy, job.jct_s, job.predicted_jct_s, job.error) == (
            True,
            "plain",
            "srtf",
            13.0,
            26.0,
            1.0,
        )
        with pytest.raises(NotThereError):
            await story.source.suspend("uid-plain", suspended=True)

    Story(StoredResults(StoreFeed(tmp_path / "results.sqlite"))).tell(work)


def test_a_run_that_has_ended_stays_with_its_gantt(
    store: ResultStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its namespace and its EmuJobs are deleted; the store has its events, its policy and its predictions."""
    monkeypatch.setattr("operators.api.sources.cluster.READ_S", 0.01)
    namespace = "emugpu-exp-6b031c29-2"
    members = {"namespace": namespace, "experiment": "6b031c29-2", "policy": "las:threshold_s=300"}
    store.note_job(replace(facts(), **members))
    store.note_prediction("uid-a", Prediction(26.0, "las:threshold_s=300", T0 * NS_PER_S))
    store.write(Batch(tuple(replace(each, namespace=namespace) for each in two_runs())))

    async def work(story: Story) -> None:
        story.api.put(NODE, node("w1"))
        story.api.put(POOL, pool())
        await story.until(lambda: story.phase("a") == "Succeeded" and story.source.snapshot().devices)
        snapshot = story.source.snapshot()
        (experiment,) = snapshot.experiments
        assert (experiment.id, [run.policy for run in experiment.runs]) == ("6b031c29", ["las:threshold_s=300"])
        job = snapshot.job("uid-a")
        assert job is not None and (job.jct_s, job.predicted_jct_s, job.error) == (13.0, 26.0, 1.0)
        view = of_run(snapshot, Scope(""), "6b031c29-2")
        spans = occupancy(view.jobs, snapshot.runs, view.window(None, None))
        assert [(span.device, span.from_s - T0, span.to_s and span.to_s - T0) for span in spans] == [
            ("w1/1", 2, 6),
            ("w1/1", 8, 14),
        ]

    Story(StoredResults(StoreFeed(tmp_path / "results.sqlite"))).tell(work)


@pytest.mark.parametrize("kind", ["Job", "Pod"])
def test_plain_jobs_and_pods_are_in_the_list_and_the_gantt(
    store: ResultStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr("operators.api.sources.cluster.READ_S", 0.01)
    store.note_job(replace(facts("uid-plain", "plain"), kind=kind, steps=0, policy=""))
    key = "uid-plain/0" if kind == "Job" else "uid-plain"
    store.write(Batch(tuple(replace(each, job_key=key) for each in two_runs("uid-plain")[:2])))

    async def work(story: Story) -> None:
        story.api.put(NODE, node("w1"))
        story.api.put(POOL, pool())
        await story.until(lambda: story.phase("plain") == "Running" and story.source.snapshot().devices)
        snapshot = story.source.snapshot()
        job = snapshot.job("uid-plain")
        assert job is not None and (job.kind, job.devices) == (kind, ("w1/1",))
        view = of_run(snapshot, Scope("lab"), "")
        (span,) = occupancy(view.jobs, snapshot.runs, view.window(None, None))
        assert (span.device, span.name, span.to_s) == ("w1/1", "plain", None)
        (held,) = [device for device in snapshot.devices if device.held]
        assert held.holders == ("uid-plain",)

    Story(StoredResults(StoreFeed(tmp_path / "results.sqlite"))).tell(work)


def test_a_store_that_is_not_there_yet_is_reported_and_found_later(tmp_path: Path) -> None:
    path = tmp_path / "later.sqlite"
    results = StoredResults(StoreFeed(path))
    assert results.refresh()
    assert "can't read this file" in results.problem
    assert not results.refresh()  # reported once
    with pytest.raises(ClusterError, match=f"^{re.escape(results.problem)}$"):
        results.history("uid-a")
    store = ResultStore(path)
    store.note_job(facts())
    assert results.refresh()
    assert results.problem == ""
    assert list(results.jobs) == ["uid-a"]
    assert not results.refresh()
    store.note_job(facts("uid-b", "b"))
    assert results.refresh()
    assert list(results.jobs) == ["uid-a", "uid-b"]


def test_a_store_that_fails_is_opened_again(store: ResultStore, tmp_path: Path) -> None:
    path = tmp_path / "results.sqlite"
    store.note_job(facts())
    failing = [False]

    def opened(path: Path) -> ResultReader:
        reader = ResultReader.open(path)
        if failing[0]:
            reader.close()  # as a disk that fails
        return reader

    results = StoredResults(StoreFeed(path, opener=opened))
    assert results.refresh()
    failing[0] = True
    with pytest.raises(ClusterError, match=r"results\.sqlite: can't read this file as .*: Cannot operate on a closed"):
        results.history("uid-a")
    assert results.refresh()
    assert results.problem
    failing[0] = False
    assert results.refresh()
    assert results.problem == ""
    assert list(results.jobs) == ["uid-a"]


def test_a_deleted_job_waits_for_nothing() -> None:
    facts = JobFacts("u", "lab", "j", 1, steps=5, deleted_ns=10**9)
    found = record_of_result(job_result(facts, []), None).job
    assert (found.phase, found.reason) == ("Failed", "deleted before it had ended")
    node = EventStream("w1", namespace="lab")
    node.tell("attached", 0, key="u/0")
    left = record_of_result(
        job_result(replace(facts, deleted_ns=None), node.events), None
    )  # its pod was left, and runs
    assert (left.job.phase, left.job.deleted, left.runs[0].to_s) == ("Running", True, None)
