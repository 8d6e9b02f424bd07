from __future__ import annotations

import pytest

from emulator_runtime.domain.errors import ManagerUnavailableError, RefusedError
from sharing_manager.grants.identity import PodIdentity
from sharing_manager.kubernetes import objects, pods
from sharing_manager.kubernetes.api_server import ApiServerError
from sharing_manager.kubernetes.cgroup import PodCgroup
from sharing_manager.kubernetes.pods import PodDirectory, list_pods
from tests.support.fake_node_api import pod_object

POD_UID = "2c48913c-b29f-11e7-9350-020968147796"
OTHER_UID = "72f7f152-440c-66ac-9084-e0fc1d8a910c"
CID = "9bca8d63d5fa610783847915bcff0ecac1273e5b4bed3f6fa1b07350e0135961"
CID2 = "b2a102854b4969b2ce98dc329c86b4fb2b06e4ad2cc8da9d8a7578c9cd2004a2"
S = 1_000_000_000
JOB = {"batch.kubernetes.io/controller-uid": "job-1", "batch.kubernetes.io/job-completion-index": "3"}


class Soon(list):
    """A poller whose thread is the test's."""

    call_soon = list.append

    def run(self) -> None:
        while self:
            self.pop(0)()


@pytest.fixture
def clock(monkeypatch):
    """Host time that stands still until the test moves it."""
    now = [100 * S]
    monkeypatch.setattr(pods, "monotonic_ns", lambda: now[0])
    return now


@pytest.fixture
def directory(api, proc, pod_path, clock):
    """A directory whose answers are in `.answers`; process 7 is in the pod, `step` runs the thread's work."""
    soon, answers, woken = Soon(), [], []
    directory = PodDirectory(api, "n1", soon, lambda: woken.append(1), proc(7, pod_path))
    directory.answers, directory.woken = answers, woken
    directory.ask = lambda pid=7: (directory.identify(pid, answers.append), soon.run())

    def turn():
        due = directory.step(clock[0])
        soon.run()
        return due

    directory.turn = turn
    return directory


def test_a_jobs_pod_is_known_by_job_and_index_and_listed_once(fake, directory) -> None:
    fake.pods = [
        pod_object("train-3", POD_UID, "n1", {"main": CID}, JOB),
        pod_object("x", OTHER_UID, "n2", {"main": ""}),
    ]
    directory.ask()
    assert directory.woken and not directory.answers
    assert directory.turn() is None
    expected = PodIdentity(POD_UID, CID, "default", "train-3", "main", "default/job-1/3")
    assert directory.answers == [expected]
    directory.ask()
    assert directory.answers == [expected, expected] and len(fake.requests) == 1
    query = {"fieldSelector": "spec.nodeName=n1", "limit": "50", "resourceVersion": "0"}
    assert fake.requests[0] == ("/api/v1/pods", query)


def test_those_who_come_together_share_one_list(fake, directory, clock) -> None:
    fake.pods = [pod_object("train", POD_UID, "n1", {"main": CID})]
    directory.ask()
    directory.ask()
    directory.turn()
    assert len(directory.answers) == 2 and len(fake.requests) == 1


def test_a_new_pod_within_a_moment_waits_for_the_next_list(fake, directory, clock, proc) -> None:
    proc(8, f"/../../pod{OTHER_UID}/{CID2}")
    fake.pods = [pod_object("train", POD_UID, "n1", {"main": CID})]
    directory.ask()
    directory.turn()
    fake.pods.append(pod_object("next", OTHER_UID, "n1", {"main": CID2}))
    directory.ask(8)
    due = directory.turn()
    assert due == clock[0] + S // 4 and len(fake.requests) == 1
    clock[0] = due
    assert directory.turn() is None and directory.answers[1].pod == "next"


def test_all_pages_are_read(fake, api) -> None:
    fake.page = 2
    fake.pods = [pod_object(f"p{n}", f"u{n}", "n1", {"c": ""}) for n in range(5)]
    assert [pod.name for pod in list_pods(api, "n1")] == ["p0", "p1", "p2", "p3", "p4"]
    assert len(fake.requests) == 3


def test_the_pages_of_what_is_in_memory_have_their_own_version(fake, api) -> None:
    fake.page = 2
    fake.pods = [pod_object(f"p{n}", f"u{n}", "n1", {"c": ""}) for n in range(3)]
    assert len(list_pods(api, "n1", cached=True)) == 3
    assert [query.get("resourceVersion") for _, query in fake.requests] == ["0", None]


@pytest.fixture
def in_memory(fake, monkeypatch):
    """What the API server has in its memory: these pods, whatever `fake.pods` says."""
    held, up_to_date = [], fake.list_pods

    def listed(node, start, label):
        if "resourceVersion" not in fake.requests[-1][1]:
            return up_to_date(node, start, label)
        return {"metadata": {"resourceVersion": "1"}, "items": list(held)}

    monkeypatch.setattr(fake, "list_pods", listed)
    return held


def test_a_pod_that_is_not_in_the_api_servers_memory_yet_is_asked_for_at_once(fake, in_memory, directory) -> None:
    in_memory.append(pod_object("other", OTHER_UID, "n1", {"main": CID2}))
    fake.pods = [pod_object("train", POD_UID, "n1", {"main": CID})]
    directory.ask()
    assert directory.turn() is None and directory.answers[0].pod == "train"
    assert [query.get("resourceVersion") for _, query in fake.requests] == ["0", None]


def test_a_new_pod_that_is_not_in_memory_yet_can_not_pass_for_one_that_is(fake, in_memory, directory, proc) -> None:
    proc(9, f"/../../pod{OTHER_UID}/{CID2}/kubepods/pod{POD_UID}/{CID}")
    victim = pod_object("victim", POD_UID, "n1", {"main": CID})
    in_memory.append(victim)
    fake.pods = [victim, pod_object("liar", OTHER_UID, "n1", {"main": CID2})]
    directory.ask(9)
    directory.turn()
    assert directory.answers[0].pod == "liar"


def test_a_new_pod_can_not_pass_for_one_that_was_identified_before(fake, directory, clock, proc) -> None:
    proc(9, f"/../../pod{OTHER_UID}/{CID2}/kubepods/pod{POD_UID}/{CID}")
    fake.pods = [pod_object("victim", POD_UID, "n1", {"main": CID})]
    directory.ask()
    directory.turn()
    fake.fail(500, times=2)
    fake.pods.append(pod_object("liar", OTHER_UID, "n1", {"main": CID2}))
    directory.ask(9)
    while (due := directory.turn()) is not None:
        assert due > clock[0]
        clock[0] = due
    assert [answer.pod for answer in directory.answers] == ["victim", "liar"]


@pytest.mark.parametrize(
    ("labels", "annotations", "key"),
    [
        ({}, {}, POD_UID),
        ({"batch.kubernetes.io/controller-uid": "j"}, {}, "default/j/0"),
        ({"batch.kubernetes.io/controller-uid": "j", "emugpu.dev/job-uid": "emujob"}, {}, "default/emujob/0"),
        (JOB, {}, "default/job-1/3"),
        ({"controller-uid": "old"}, {"batch.kubernetes.io/job-completion-index": "2"}, "default/old/2"),
    ],
)
def test_job_key(labels, annotations, key) -> None:
    item = pod_object("p", POD_UID, "n1", {"main": CID}, labels)
    item["metadata"]["annotations"] = annotations
    assert objects.pod(item).job_key == key


def test_the_job_that_controls_a_pod_counts_more_than_the_label_of_its_uid() -> None:
    item = pod_object("p", POD_UID, "n1", {"main": CID}, JOB)
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "owner", "controller": True}
    other = {**owner, "uid": "other", "controller": False}
    item["metadata"]["ownerReferences"] = [other, owner]
    assert objects.pod(item).job_key == "default/owner/3"
    owner["apiVersion"] = "batch.volcano.sh/v1alpha1"
    assert objects.pod(item).job_key == "default/job-1/3"
    owner["apiVersion"] = "batch/v1"
    item["metadata"]["labels"]["emugpu.dev/job-uid"] = "emujob"
    assert objects.pod(item).job_key == "default/emujob/3"


def test_containers_by_their_ids_init_and_sidecar_ones_too() -> None:
    item = pod_object("p", POD_UID, "n1", {"main": CID})
    item["spec"]["initContainers"] = [{"name": "setup"}, {"name": "proxy", "restartPolicy": "Always"}]
    ids = {"setup": "1" * 64, "proxy": "2" * 64}
    item["status"]["initContainerStatuses"] = [{"name": k, "containerID": f"cri-o://{v}"} for k, v in ids.items()]
    pod = objects.pod(item)
    found = {id_: pod.identity(PodCgroup(POD_UID, id_)) for id_ in (CID, *ids.values())}
    assert [(f.container, f.init_container) for f in found.values()] == [
        ("main", False),
        ("setup", True),
        ("proxy", False),
    ]


def test_a_static_pod_is_found_by_the_name_of_its_cgroup(fake, directory, proc) -> None:
    proc(9, f"/../../pod{'b1' * 16}/{CID}")
    item = pod_object("static-n1", POD_UID, "n1", {"main": CID})
    item["metadata"]["annotations"] = {"kubernetes.io/config.mirror": "b1" * 16}
    fake.pods = [item]
    directory.ask(9)
    directory.turn()
    assert directory.answers[0].pod_uid == POD_UID


@pytest.mark.parametrize("cgroup_uid", [POD_UID, "b1" * 16])
def test_a_pod_that_only_claims_to_be_the_mirror_of_another_is_not_taken_for_it(
    fake, directory, proc, cgroup_uid
) -> None:
    """Every user with the right to create pods may set the annotation, but only the kubelet reports container ids."""
    proc(9, f"/../../pod{cgroup_uid}/{CID}")
    mirror = {"kubernetes.io/config.mirror": "b1" * 16}
    victim = pod_object("train", POD_UID, "n1", {"main": CID}, annotations=mirror if cgroup_uid != POD_UID else {})
    claim = {"kubernetes.io/config.mirror": cgroup_uid}
    fake.pods = [victim, pod_object("zzz", OTHER_UID, "n1", {"main": ""}, JOB, namespace="evil", annotations=claim)]
    directory.ask(9)
    directory.turn()
    (answer,) = directory.answers
    assert (answer.pod_uid, answer.namespace) == (POD_UID, "default")


def test_a_pod_inside_a_pod_of_another_cluster_is_the_inner_one(fake, directory, proc) -> None:
    proc(9, f"/kubepods/pod{OTHER_UID}/{CID2}/kubelet/kubepods/pod{POD_UID}/{CID}")
    fake.pods = [pod_object("train", POD_UID, "n1", {"main": CID})]
    directory.ask(9)
    directory.turn()
    assert directory.answers[0].pod == "train"


def test_who_makes_another_pods_cgroup_below_its_own_stays_who_it_is(fake, directory, proc) -> None:
    proc(9, f"/../../pod{OTHER_UID}/{CID2}/kubepods/pod{POD_UID}/{CID}")
    fake.pods = [
        pod_object("victim", POD_UID, "n1", {"main": CID}),
        pod_object("liar", OTHER_UID, "n1", {"main": CID2}),
    ]
    directory.ask(9)
    directory.turn()
    assert directory.answers[0].pod == "liar"


def test_one_containers_name_needs_no_report_of_the_kubelet(fake, directory) -> None:
    fake.pods = [pod_object("train", POD_UID, "n1", {"main": ""})]
    directory.ask()
    directory.turn()
    assert directory.answers[0].container == "main"


def test_of_several_containers_the_name_is_waited_for(fake, directory, clock) -> None:
    fake.pods = [pod_object("train", POD_UID, "n1", {"main": "", "side": CID2})]
    directory.ask()
    clock[0] = directory.turn()
    assert not directory.answers
    fake.pods = [pod_object("train", POD_UID, "n1", {"main": CID, "side": CID2})]
    assert directory.turn() is None and directory.answers[0].container == "main"


def test_a_name_that_does_not_come_leaves_the_pod(fake, directory, clock) -> None:
    fake.pods = [pod_object("train", POD_UID, "n1", {"main": "", "side": CID2})]
    directory.ask()
    began = clock[0]
    while (due := directory.turn()) is not None:
        assert due > clock[0]
        clock[0] = due
    assert clock[0] - began == 2 * S
    assert directory.answers == [PodIdentity(POD_UID, CID, "default", "train", "", POD_UID)]


def test_while_the_api_server_is_away_they_wait_and_then_go_on(fake, directory, clock) -> None:
    fake.pods = [pod_object("train", POD_UID, "n1", {"main": CID})]
    fake.fail(500, times=3)
    directory.ask()
    for _ in range(3):
        clock[0] = directory.turn()
        assert not directory.answers
    assert directory.turn() is None and directory.answers[0].pod == "train"


@pytest.mark.parametrize("fault", [403, 500, "drop"])
def test_after_a_minute_they_are_told_to_try_again(fake, directory, clock, fault) -> None:
    fake.fail(fault)
    directory.ask()
    began, turns = clock[0], 0
    while (due := directory.turn()) is not None:
        clock[0] = due
        turns += 1
    assert clock[0] - began == 60 * S and turns < 20
    (answer,) = directory.answers
    assert isinstance(answer, ManagerUnavailableError) and answer.retry_helps
    assert "can't tell which pod process 7 belongs to: API server" in str(answer)


def test_what_is_remembered_needs_no_api_server(fake, directory) -> None:
    fake.fail(500)
    identity = PodIdentity(POD_UID, CID, "default", "train", "main", "job-1/3")
    directory.remember(identity)
    directory.ask()
    assert directory.answers == [identity] and not fake.requests


def test_a_restarted_container_of_a_remembered_pod_is_known_by_its_pod(fake, directory, clock, proc) -> None:
    proc(8, f"/../../pod{POD_UID}/{CID2}")
    fake.fail(500)
    directory.remember(PodIdentity(POD_UID, CID, "default", "train", "main", "job-1/3"))
    directory.remember(PodIdentity(POD_UID, "3" * 64, "default", "train", "side", "job-1/3"))
    directory.ask(7)
    directory.ask(8)
    began = clock[0]
    while (due := directory.turn()) is not None:
        clock[0] = due
    assert clock[0] - began == 2 * S
    assert [(a.container, a.container_id, a.job_key) for a in directory.answers] == [
        ("main", CID, "job-1/3"),
        ("", CID2, "job-1/3"),
    ]


def test_what_the_api_server_says_replaces_what_was_remembered(fake, directory, proc) -> None:
    proc(8, f"/../../pod{OTHER_UID}/{CID2}")
    directory.remember(PodIdentity(POD_UID, CID, "default", "gone", "main", "k"))
    fake.pods = [pod_object("train", OTHER_UID, "n1", {"main": CID2})]
    directory.ask(8)
    directory.turn()
    directory.ask(7)
    assert len(directory.answers) == 1  # it has to be looked up again


def test_a_pod_that_is_gone_is_refused(fake, directory) -> None:
    directory.ask()
    directory.turn()
    (answer,) = directory.answers
    assert isinstance(answer, RefusedError)
    assert str(answer) == f"process 7 runs in pod {POD_UID}, which node n1 doesn't have (any more)"


@pytest.mark.parametrize(
    ("pid", "path", "says"),
    [
        (
            0,
            None,
            "no process id for this connection, so no pod can be found: run the manager's pod with hostPID: true",
        ),
        (99, None, "process 99 has ended, or the manager's pod runs without hostPID: true"),
        (
            9,
            "/user.slice",
            "process 9 runs outside of all pods of this node, .*; start it in a pod that requests emulated GPUs",
        ),
    ],
)
def test_processes_of_no_pod_are_refused_without_a_request(fake, directory, proc, pid, path, says) -> None:
    if path:
        proc(pid, path)
    directory.ask(pid)
    (answer,) = directory.answers
    assert isinstance(answer, RefusedError) and not fake.requests
    with pytest.raises(RefusedError, match=says):
        raise answer


def test_a_process_that_may_not_be_read_is_refused(directory, proc, pod_path) -> None:
    file = proc(9, pod_path) / "9" / "cgroup"
    file.unlink()
    file.mkdir()  # root may read any file, but no directory as one
    directory.ask(9)
    with pytest.raises(RefusedError, match=r"/9/cgroup: can't be read .*; the manager's container must run as root"):
        raise directory.answers[0]


@pytest.mark.parametrize(
    "document",
    [None, [], {}, {"items": {}}, {"kind": "Status", "metadata": {}}, {"items": None, "metadata": {"continue": "x"}}],
)
def test_what_is_no_list_is_refused(document) -> None:
    with pytest.raises(ApiServerError, match="has no items"):
        objects.listing(document)


def test_an_empty_list_may_be_null() -> None:
    assert objects.listing({"items": None, "metadata": {"resourceVersion": "5"}}).items == ()


@pytest.mark.parametrize(
    ("document", "says"),
    [
        ({"type": "SOMETHING", "object": {}}, "has an unknown type: 'SOMETHING'"),
        ([], "has an unknown type"),
        ({"type": "ADDED", "object": {"metadata": {}}}, "has no metadata.resourceVersion"),
        ({"type": "ERROR", "object": {"message": "why", "code": "x"}}, "the watch ended: why"),
    ],
)
def test_what_is_no_change_is_refused(document, says) -> None:
    with pytest.raises(ApiServerError, match=says):
        objects.change(document)


@pytest.mark.parametrize("missing", ["name", "namespace", "uid"])
def test_a_pod_without_its_name_is_refused(missing) -> None:
    item = pod_object("p", "u", "n1", {})
    del item["metadata"][missing]
    with pytest.raises(ApiServerError, match=f"has no metadata.{missing}"):
        objects.pod(item)


def test_containers_that_both_ask_for_devices_have_work_of_their_own() -> None:
    item = pod_object("p", "u", "n", {"init": "1" * 64, "main": "2" * 64, "plain": "3" * 64})
    for spec in item["spec"]["containers"][:2]:
        spec["resources"] = {"limits": {"emugpu.dev/emuGPU": "1"}}
    facts = objects.pod(item)
    keys = [facts.identity(PodCgroup("u", digit * 64)).job_key for digit in "123"]
    assert keys == ["default/u/init", "default/u/main", "default/u/plain"]
    del item["spec"]["containers"][0]["resources"]
    assert objects.pod(item).identity(PodCgroup("u", "2" * 64)).job_key == "u"
