"""Pods as the API server shows them, turned into events."""

from __future__ import annotations

import pytest

from operators.objects.pod import Pod
from operators.results.computing import job_result
from operators.results.events import events_of_pod
from operators.results.facts_and_result import CrossCheck
from sharing_manager.kubernetes.objects import pod as manager_pod

S = 1_000_000_000
T0 = 1_700_000_000 * S
SEEN = T0 + 1000 * S


def clock(at_s):
    return f"2023-11-14T22:{13 + (20 + at_s) // 60:02d}:{(20 + at_s) % 60:02d}Z"


def pod(state, *, last=None, conditions=(), uid="u1", index="0", **metadata):
    labels = {"batch.kubernetes.io/controller-uid": "job", "batch.kubernetes.io/job-completion-index": index}
    meta = {"name": f"train-{uid}", "namespace": "team", "uid": uid, "labels": labels}
    status = {"name": "train", "state": state, "lastState": last or {}}
    return {
        "metadata": {**meta, **metadata},
        "spec": {"nodeName": "n1"},
        "status": {"conditions": list(conditions), "containerStatuses": [status]},
    }


def ended(begin_s, end_s, code):
    return {"terminated": {"startedAt": clock(begin_s), "finishedAt": clock(end_s), "exitCode": code}}


def events_of(document, seen_ns=SEEN + 5):
    return events_of_pod(Pod.read(document, seen_ns))


def told(document):
    return [(e.kind, (e.wall_ns - T0) // S, e.job_key, e.node) for e in events_of(document)]


def test_a_running_container_has_begun():
    assert told(pod({"running": {"startedAt": clock(3)}}, index="2")) == [("attached", 3, "job/2", "n1")]


def test_the_work_is_named_as_the_nodes_manager_names_it():
    """The same claims in the same order, so that both tell of one job; the manager's key begins with the namespace."""
    labels = {"emugpu.dev/job-uid": "emu", "batch.kubernetes.io/controller-uid": "job"}
    document = pod({"running": {"startedAt": clock(3)}}, labels=labels)
    document["metadata"]["annotations"] = {"batch.kubernetes.io/job-completion-index": "4"}
    assert [event.job_key for event in events_of(document)] == ["emu/4"]
    assert manager_pod(document).job_key == "team/emu/4"
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "owner", "controller": True}
    document["metadata"] |= {"labels": {"controller-uid": "job"}, "ownerReferences": [owner]}
    assert [event.job_key for event in events_of(document)] == ["owner/4"]
    assert manager_pod(document).job_key == "team/owner/4"


@pytest.mark.parametrize("index", ["9" * 253, "12345678901", "-1", "1\n", "1/2", "\u0663", "one"])
@pytest.mark.parametrize("uid", ["x" * 65, "a/b", "a\nb", "a\n", "\u00e9", " "])
def test_a_claim_that_has_not_the_form_of_its_value_is_none(index, uid):
    """The API server takes any text in owner references and annotations; each event of a job has its key twice."""
    document = pod({"running": {"startedAt": clock(3)}}, labels={"controller-uid": "job"})
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": uid, "controller": True}
    annotations = {"batch.kubernetes.io/job-completion-index": index}
    document["metadata"] |= {"ownerReferences": [owner], "annotations": annotations}
    assert [event.job_key for event in events_of(document)] == ["job/0"]
    assert manager_pod(document).job_key == "team/job/0"
    owner["uid"], annotations["batch.kubernetes.io/job-completion-index"] = "x" * 64, "2147483647"
    assert [event.job_key for event in events_of(document)] == [f"{'x' * 64}/2147483647"]
    assert manager_pod(document).job_key == f"team/{'x' * 64}/2147483647"


@pytest.mark.parametrize(
    ("code", "more", "kind"),
    [
        (0, {}, "finished"),
        (143, {}, "released"),
        (1, {}, "failed"),
        (137, {}, "failed"),
        (137, {"deletionTimestamp": "2023-11-14T22:13:20Z"}, "gone"),
        (137, {"conditions": [{"type": "DisruptionTarget", "status": "True"}]}, "gone"),
        (137, {"conditions": [{"type": "DisruptionTarget", "status": "False"}]}, "failed"),
    ],
)
def test_how_a_container_ended(code, more, kind):
    assert told(pod(ended(3, 9, code), **more)) == [("attached", 3, "job/0", "n1"), (kind, 9, "job/0", "n1")]


def test_a_container_that_was_restarted_has_two_runs():
    document = pod({"running": {"startedAt": clock(12)}}, last=ended(3, 9, 1))
    assert [kind for kind, *_ in told(document)] == ["attached", "failed", "attached"]


def test_what_tells_nothing_gives_no_events():
    assert told(pod({"waiting": {"reason": "ContainerCreating"}})) == []
    assert told({"metadata": pod({})["metadata"]}) == []
    assert told(pod({"running": {"startedAt": "soon"}})) == []


def test_a_pod_of_no_job_has_its_own_uid():
    document = pod({"running": {"startedAt": clock(3)}}, labels={})
    assert [event.job_key for event in events_of(document)] == ["u1"] == [manager_pod(document).job_key]


def test_containers_that_ask_for_devices_have_work_of_their_own():
    state = {"running": {"startedAt": clock(3)}}
    document = pod(state)
    limits = {"a": {"emugpu.dev/emuGPU": "2", "cpu": 1}, "b": {"emugpu.dev/emuGPU": "1"}, "log": {"cpu": 1}}
    containers = [{"name": name, "resources": {"limits": limit}} for name, limit in limits.items()]
    document["spec"]["containers"] = containers
    document["status"]["containerStatuses"] = [{"name": name, "state": state} for name in limits]
    events = events_of(document)
    assert [event.job_key for event in events] == ["job/0/a", "job/0/b"]
    assert len({event.place for event in events}) == 2


def test_a_pod_that_is_seen_again_tells_nothing_new(facts):
    running, over = pod({"running": {"startedAt": clock(3)}}), pod(ended(3, 9, 0))
    once = job_result(facts(), events_of(over))
    assert job_result(facts(), [*events_of(running, SEEN + 1), *events_of(over), *events_of(over, SEEN + 9)]) == once
    assert (once.jct_s, once.queueing_delay_s, once.outcome) == (9, 3, "finished")
    assert once.notes == ("times of train-u1 are Kubernetes' own, in whole seconds: no manager reported them",)


def test_where_a_manager_tells_more_kubernetes_is_only_the_cross_check(teller, facts):
    node = teller("n1")
    node.tell("attached", 3.25, pod="train-u1")
    node.tell("finished", 8.5, 10, pod="train-u1")
    result = job_result(facts(steps=10), [*node.events, *events_of(pod(ended(3, 9, 0)))])
    assert (result.jct_s, result.queueing_delay_s, len(result.runs), result.notes) == (8.5, 3.25, 1, ())
    assert result.check == CrossCheck(T0 + 3 * S, T0 + 9 * S)


def test_a_pod_that_kubernetes_has_forgotten_contradicts_nothing(teller, facts):
    node = teller("n1")
    node.tell("attached", 3, pod="train-u0")
    node.tell("released", 8, 5, pod="train-u0")
    node.tell("attached", 21, pod="train-u1")
    node.tell("progress", 24, 9, pod="train-u1")
    newer = events_of(pod({"running": {"startedAt": clock(20)}}))
    assert job_result(facts(steps=10), [*node.events, *newer]).notes == ()
    node.tell("gone", 25, 9, pod="train-u1")
    node.tell("attached", 31, pod="train-u2")
    node.tell("finished", 40, 10, pod="train-u2")
    assert job_result(facts(steps=10), [*node.events, *events_of(pod(ended(20, 26, 137)))]).notes == ()
    early = events_of(pod(ended(32, 41, 0), uid="u2"))
    (note,) = job_result(facts(steps=10), [*node.events, *early]).notes
    assert note.startswith("its first run begins 1.000 s before Kubernetes started a container")


@pytest.mark.parametrize(
    ("went_on_at", "pods"), [(5, ["train-u0", "train-u2"]), (7, ["train-u0", "train-u1", "train-u2"])]
)
def test_a_pod_that_was_taken_away_before_it_had_a_device_had_no_run(teller, facts, went_on_at, pods):
    """Nobody told of it but Kubernetes; where steps are missing, they may have been its own."""
    node = teller("n1")
    node.tell("attached", 3, pod="train-u0")
    node.tell("released", 8, 5, pod="train-u0")
    node.tell("attached", 31, went_on_at, from_step=went_on_at, pod="train-u2")
    node.tell("finished", 40, 10, pod="train-u2", from_step=went_on_at)
    result = job_result(facts(steps=10), [*node.events, *events_of(pod(ended(12, 20, 143)))])
    assert [run.pod for run in result.runs] == pods
    assert (result.notes == ()) is (len(pods) == 2)
    assert (result.jct_s, result.steps_missing) == (40, went_on_at - 5)


def test_an_end_that_only_kubernetes_tells_is_taken_and_said_to_be_its(teller, facts):
    node = teller("n1")
    node.tell("attached", 3.25, pod="train-u1")
    node.tell("progress", 8, 9, pod="train-u1")
    result = job_result(facts(steps=10), [*node.events, *events_of(pod(ended(3, 9, 0)))])
    assert (result.told_by, result.jct_s, result.runs[0].ended, result.interruptions) == (
        "Kubernetes",
        9,
        "finished",
        0,
    )


def test_while_the_newest_pod_runs_its_predecessors_end_is_no_cross_check(facts):
    newer = events_of(pod({"running": {"startedAt": clock(20)}}, uid="u2"))
    check = job_result(facts(), [*events_of(pod(ended(3, 9, 143))), *newer]).check
    assert ((check.started_ns - T0) / S, check.finished_ns) == (3, None)
    over = events_of(pod(ended(20, 25, 0), uid="u2"))
    check = job_result(facts(), [*events_of(pod(ended(3, 9, 143))), *over]).check
    assert (check.finished_ns - T0) / S == 25
