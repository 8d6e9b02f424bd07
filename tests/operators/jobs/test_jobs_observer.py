"""What the results are told of what the controller sees: EmuJobs, plain Jobs and Pods, and what their containers say."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest

from emulator_runtime.domain.units import GIB
from emulator_runtime.profiles.table import ProfileTable
from operators.fitting.offers import NodeOffer
from operators.jobs.cluster_cache import ClusterCache, pod_of_interest
from operators.jobs.isolated_time import isolated_s
from operators.jobs.observer import ClusterView, Observer
from operators.objects.emujob import EmuJob, parse_spec
from operators.objects.job import BatchJob, submission_ns
from operators.results.events import JobEvent
from operators.results.facts_and_result import JobFacts
from operators.results.predicted import Prediction
from operators.results.status import Outcome

S = 1_000_000_000
NOW_NS = 1_767_225_600 * S  # 2026-01-01T00:00:00Z
V100 = "Tesla_V100-PCIE-32GB"
OFFERS = (NodeOffer("w1", 8000, 64 * GIB, ((V100, 32 * GIB),) * 4),)


@dataclass
class Heard:
    """Results that only listen."""

    cluster_gpus: int = 0
    facts: dict[str, JobFacts] = field(default_factory=dict)
    predictions: dict[str, Prediction | None] = field(default_factory=dict)
    events: list[JobEvent] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)

    def outcome(self, uid: str) -> Outcome | None:
        return None

    def note(self, facts: JobFacts, prediction: Prediction | None = None) -> None:
        self.facts[facts.uid], self.predictions[facts.uid] = facts, prediction

    def tell(self, events: Iterable[JobEvent]) -> None:
        self.events += events

    def open_jobs(self) -> list[JobFacts]:
        return [facts for facts in self.facts.values() if facts.deleted_ns is None]

    def gone(self, uid: str) -> None:
        self.missing.append(uid)


@dataclass
class Stage:
    """Documents as the API server has them; `look` shows them to the observer."""

    heard: Heard = field(default_factory=Heard)
    emujobs: list[dict[str, Any]] = field(default_factory=list)
    jobs: list[dict[str, Any]] = field(default_factory=list)
    pods: list[dict[str, Any]] = field(default_factory=list)
    offers: tuple[NodeOffer, ...] = OFFERS

    def __post_init__(self) -> None:
        self.observer = Observer(self.heard, ProfileTable.bundled())

    def look(self, now_s: float = 0.0) -> Heard:
        now_ns = NOW_NS + round(now_s * S)
        emujobs = [EmuJob.read(document, now_ns) for document in self.emujobs]
        jobs = [BatchJob.read(document, now_ns) for document in self.jobs]
        pods = [pod_of_interest(document, now_ns) for document in self.pods]
        self.observer.look(ClusterView(emujobs, jobs, pods, self.offers, now_ns))
        return self.heard

    def kept(self) -> int:
        """How much the observer remembers."""
        return sum(len(value) for value in vars(self.observer).values() if isinstance(value, dict))


def emujob(status: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    labels = {"emugpu.dev/experiment": "e1"}
    metadata = {"name": "j", "namespace": "lab", "uid": "u", "generation": 1, "labels": labels}
    told = {"submittedAt": "2026-01-01T00:00:00.250000Z"} if status is None else status
    return {"metadata": metadata, "spec": {"steps": 100, "stepTime": "80ms", "memory": "1Gi", **spec}, "status": told}


def job(owner: str = "", **status: Any) -> dict[str, Any]:
    metadata: dict[str, Any] = {"name": "j", "namespace": "lab", "uid": "job-1"}
    metadata["creationTimestamp"] = "2026-01-01T00:00:00Z"
    if owner:
        metadata |= {"ownerReferences": [{"uid": owner, "controller": True}], "labels": {"emugpu.dev/job": "j"}}
    container = {"name": "t", "resources": {"limits": {"emugpu.dev/emuGPU": "2"}}}
    template = {"metadata": {"annotations": {}}, "spec": {"containers": [container]}}
    return {"metadata": metadata, "spec": {"template": template}, "status": status}


def pod(uid: str = "p", gpus: str = "2", **more: Any) -> dict[str, Any]:
    metadata = {"name": f"pod-{uid}", "namespace": "lab", "uid": uid, "creationTimestamp": "2026-01-01T00:00:00Z"}
    limits = {"emugpu.dev/emuGPU": gpus} if gpus else {}
    state = {"running": {"startedAt": "2026-01-01T00:00:02Z"}}
    status = {"phase": "Running", "containerStatuses": [{"name": "t", "state": state}], **more.pop("status", {})}
    spec = {"nodeName": "w1", "containers": [{"name": "t", "resources": {"limits": limits}}]}
    return {"metadata": {**metadata, **more}, "spec": spec, "status": status}


def ended(code: int) -> dict[str, Any]:
    times = {"startedAt": "2026-01-01T00:00:02Z", "finishedAt": "2026-01-01T00:00:09Z"}
    states = [{"name": "t", "state": {"terminated": {**times, "exitCode": code}}}]
    return {"phase": "Failed" if code else "Succeeded", "containerStatuses": states}


def test_an_emujob_is_noted_as_its_status_says_it_was_submitted() -> None:
    spec = {"nodes": 2, "resources": {"emuGPU": 2}, "scheduler": {"actuator": "jobs", "name": "allox"}}
    at = Stage(emujobs=[emujob(status={}, **spec)])
    assert at.look().facts == {}  # nothing is written yet: the next replica would find another time
    at.emujobs = [emujob(**spec)]
    expected = JobFacts("u", "lab", "j", NOW_NS + S // 4, 2, 100, 2, 8.0, "allox", experiment="e1")
    assert at.look().facts == {"u": expected}
    assert at.heard.cluster_gpus == 4


def test_the_end_of_its_job_is_noted() -> None:
    complete = {"conditions": [{"type": "Complete", "status": "True"}], "completionTime": "2026-01-01T00:00:09Z"}
    at = Stage(emujobs=[emujob()], jobs=[job("u", **complete)])
    assert at.look().facts["u"].completed_ns == NOW_NS + 9 * S
    gave_up = {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}
    failed = {"conditions": [{**gave_up, "lastTransitionTime": "2026-01-01T00:00:07Z"}]}
    at = Stage(emujobs=[emujob()], jobs=[job("u", **failed)])
    assert at.look().facts["u"].failed_ns is None  # a pod that was turned away looks the same: the status decides
    at.emujobs = [emujob(status={"submittedAt": "2026-01-01T00:00:00Z", "phase": "Failed"})]
    assert at.look().facts["u"].failed_ns == NOW_NS + 7 * S


def test_what_was_so_at_its_submission_stays() -> None:
    at = Stage(emujobs=[emujob(model="resnet50", batchSize=64, stepTime=None, memory=None)], offers=())
    at.emujobs[0]["spec"] = {name: value for name, value in at.emujobs[0]["spec"].items() if value is not None}
    assert at.look().facts["u"].isolated_s is None  # no pool is there yet
    at.offers = OFFERS
    isolated = at.look().facts["u"].isolated_s
    assert isolated is not None and isolated > 1
    at.offers = (NodeOffer("w1", 8000, 64 * GIB, (("H100-SXM5-80GB", 80 * GIB),)),)
    assert at.look().facts["u"].isolated_s == isolated


def test_a_forecast_goes_with_it() -> None:
    at = Stage(emujobs=[emujob()])
    note = '{"seconds": 9.5, "by": "fifo", "at": "2026-01-01T00:00:01Z"}'
    at.emujobs[0]["metadata"]["annotations"] = {"emugpu.dev/predicted": note}
    assert at.look().predictions == {"u": Prediction(9.5, "fifo", NOW_NS + S)}
    at.emujobs[0]["metadata"]["annotations"] = {"emugpu.dev/predicted": "soon"}
    assert at.look().predictions == {"u": None}


def test_a_plain_pod_that_asks_for_emulated_gpus_is_noted_and_heard() -> None:
    at = Stage(pods=[pod(), pod("other", gpus="")])
    assert at.look(0.75).facts == {"p": JobFacts("p", "lab", "pod-p", NOW_NS + 3 * S // 4, gpus=2, kind="Pod")}
    assert [(event.kind, event.job_key) for event in at.heard.events] == [("attached", "p")]
    at.look(1.5)
    assert len(at.heard.events) == 1  # the same again is no news
    assert at.heard.facts["p"].submitted_ns == NOW_NS + 3 * S // 4
    at.pods[0]["status"] = ended(0)
    assert [event.kind for event in at.look(9.5).events] == ["attached", "attached", "finished"]
    assert at.heard.facts["p"].failed_ns is None
    at.pods[0]["status"] = ended(1)
    assert at.look(9.5).facts["p"].failed_ns == NOW_NS + 9 * S


def test_a_pod_that_is_taken_away_has_not_failed() -> None:
    at = Stage(pods=[pod(status=ended(143), deletionTimestamp="2026-01-01T00:00:09Z")])
    assert at.look().facts["p"].failed_ns is None


def test_a_plain_job_is_noted_and_its_pods_work_for_it() -> None:
    indexed = job()
    indexed["spec"] |= {"completions": 3, "completionMode": "Indexed"}
    at = Stage(jobs=[indexed], pods=[pod(labels={"batch.kubernetes.io/controller-uid": "job-1"})])
    expected = JobFacts("job-1", "lab", "j", NOW_NS + S // 2, tasks=3, gpus=2, kind="Job")
    assert at.look(0.5).facts == {"job-1": expected}
    assert [event.job_uid for event in at.heard.events] == ["job-1"]
    at.jobs[0]["status"] = {
        "conditions": [{"type": "Complete", "status": "True"}],
        "completionTime": "2026-01-01T00:00:09Z",
    }
    assert at.look(10).facts["job-1"].completed_ns == NOW_NS + 9 * S


def test_jobs_without_emulated_gpus_are_nobodys_business() -> None:
    plain = job()
    plain["spec"]["template"]["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "1"}}
    assert Stage(jobs=[plain], pods=[pod(gpus="")]).look().facts == {}


def test_what_is_gone_has_ended_also_from_before_this_program() -> None:
    at = Stage(emujobs=[emujob()], pods=[pod()])
    at.heard.facts["old"] = JobFacts("old", "lab", "x", 0)
    at.look(1)
    assert at.heard.facts["old"].deleted_ns == NOW_NS + S
    assert at.heard.missing == []
    at.emujobs = []
    at.look(2)
    assert (at.heard.facts["u"].deleted_ns, at.heard.missing) == (NOW_NS + 2 * S, ["u"])
    at.pods = []
    at.look(3)
    assert at.heard.missing == ["u", "p"]


def test_a_pod_that_was_left_behind_keeps_no_job_open() -> None:
    """Its Job was deleted with --cascade=orphan, then what it belonged to; the dashboard would show a job that waits for ever."""
    waits = {"phase": "Pending", "containerStatuses": []}
    orphan = pod(gpus="1", labels={"emugpu.dev/job": "j", "emugpu.dev/job-uid": "u"})
    other = pod("q", labels={"batch.kubernetes.io/controller-uid": "job-1"}, status=waits)
    at = Stage(emujobs=[emujob()], jobs=[job()], pods=[orphan, other])
    at.look(1)
    assert at.heard.facts.keys() == {"u", "job-1"} and not at.heard.missing
    at.emujobs, at.jobs = [], []
    at.look(2)
    deleted = {uid: facts.deleted_ns for uid, facts in at.heard.facts.items()}
    assert deleted == {"u": None, "job-1": NOW_NS + 2 * S}  # the one that runs holds devices still
    orphan["status"]["phase"] = "Pending"
    at.look(3)
    assert at.heard.facts["u"].deleted_ns == NOW_NS + 3 * S and at.heard.missing == ["job-1", "u"]


def test_a_spec_that_can_not_be_read_is_not_noted() -> None:
    at = Stage(emujobs=[emujob(steps=0)])
    assert at.look().facts == {}
    at.emujobs = []
    at.look()
    assert at.kept() == 0  # nor kept, once it's gone
    assert at.heard.missing == []


def test_nothing_is_kept_of_what_is_gone() -> None:
    at = Stage(emujobs=[emujob(), emujob(status={})], jobs=[job()], pods=[pod(), pod("plain")])
    at.emujobs[1]["metadata"] |= {"name": "k", "uid": "unwritten"}
    at.look()
    assert at.kept() > 0
    at.emujobs, at.jobs, at.pods = [], [], []
    at.look(1)
    assert at.kept() == 0


def test_a_pod_that_has_nothing_to_do_with_emugpu_is_never_news() -> None:
    before, after = pod(gpus=""), pod(gpus="", status={"phase": "Succeeded"})
    after["metadata"]["resourceVersion"] = "7"
    assert pod_of_interest(before, 1) == pod_of_interest(after, 2)


@pytest.mark.parametrize(
    ("created", "seen_s", "submitted_s"),
    [
        ("2026-01-01T00:00:00Z", 0.4, 0.4),
        ("2026-01-01T00:00:00Z", 2.9, 2.9),
        ("2026-01-01T00:00:00Z", 3.0, 0.0),  # nobody was there: the API server's own time, cut to the second
        ("2026-01-01T00:00:00Z", -0.2, -0.2),
        ("", 5.0, 5.0),
    ],
)
def test_when_an_object_was_submitted(created: str, seen_s: float, submitted_s: float) -> None:
    assert submission_ns(created, NOW_NS + round(seen_s * S)) == NOW_NS + round(submitted_s * S)


def alone(offers: tuple[NodeOffer, ...] = OFFERS, **spec: Any) -> float | None:
    return isolated_s(parse_spec("lab", "j", {"steps": 100, **spec}), offers, ProfileTable.bundled())


def test_the_time_alone_is_that_of_the_fastest_way_to_run() -> None:
    slow = {"name": "cpu", "resources": {"emuGPU": 0}, "profile": {"stepTime": "1s"}}
    quick = {"name": "gpu", "profile": {"stepTime": "20ms", "memory": "1Gi"}}
    assert alone(configurations=[slow, quick]) == 2.0
    assert alone((), configurations=[slow, quick]) == 100.0
    assert alone((), stepTime="20ms", memory="1Gi") is None
    v100 = alone(model="resnet50", batchSize=64)
    both = (*OFFERS, NodeOffer("w2", 8000, 64 * GIB, (("A100-SXM4-80GB", 80 * GIB),)))
    assert v100 is not None and (alone(both, model="resnet50", batchSize=64) or v100) < v100
    two = alone(model="resnet50", batchSize=64, resources={"emuGPU": 2})
    assert two is not None and v100 / 2 < two < v100


def test_what_was_left_behind_is_missed_when_it_ends() -> None:
    """With its EmuJob gone nothing else tells that what its pod held is over."""
    known = ClusterCache(lambda _: None, lambda *_: None, lambda: NOW_NS)
    labels = {"emugpu.dev/job": "j", "emugpu.dev/job-uid": "u"}
    known.emujobs.update("ADDED", emujob())
    known.pods.update("ADDED", pod(labels=labels))
    assert not known.take_vanished()
    known.pods.update("MODIFIED", pod(labels=labels, status=ended(0)))
    assert not known.take_vanished()  # its EmuJob tells what becomes of it
    known.emujobs.update("DELETED", emujob())
    assert known.take_vanished() and not known.take_vanished()
    known.pods.update("ADDED", pod("q", labels=labels))
    assert not known.take_vanished()
    for kind in ("MODIFIED", "DELETED"):
        known.pods.update(kind, pod("q", labels=labels, status=ended(1)))
        assert known.take_vanished()
