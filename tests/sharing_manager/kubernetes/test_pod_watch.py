"""The allocations that schedulers write on pods, from the API server to the host shares."""

from __future__ import annotations

import json
import threading

import pytest

from emulator_runtime.domain.sensitivity import HostShare
from sharing_manager.devices.host_shares import HostShares
from sharing_manager.kubernetes.border import KubernetesBorder
from sharing_manager.kubernetes.pod_watch import PodWatch
from tests.support.fake_node_api import pod_object

JOB = {"emugpu.dev/job": "j"}
NOTE = "emugpu.dev/allocation"
POD_UID = "2c48913c-b29f-11e7-9350-020968147796"
CID = "9bca8d63d5fa610783847915bcff0ecac1273e5b4bed3f6fa1b07350e0135961"


def pod(uid, cpu_milli=None, *, node="n1", labels=JOB, text=None):
    allocation = {"configuration": "c", "nodes": [node], "cpu_milli": cpu_milli, "memory_bytes": 7, "devices": []}
    note = json.dumps(allocation) if text is None else text
    notes = {} if cpu_milli is None and text is None else {NOTE: note}
    return pod_object(f"pod-{uid}", uid, node, {"main": CID}, labels, annotations=notes)


class Book(HostShares):
    """Notes what changes, in order."""

    def __init__(self):
        super().__init__()
        self.changes = []
        self.on_change = lambda uid, share: self.changes.append((uid, share.cpu_milli))


@pytest.fixture
def book():
    return Book()


@pytest.fixture
def watch(api, poller, book):
    stopping = threading.Event()
    thread = threading.Thread(target=PodWatch(api, "n1", poller, book).run, args=(stopping,))
    thread.start()
    yield thread
    stopping.set()
    api.close()
    thread.join(3)
    assert not thread.is_alive()


def test_pods_of_emujobs_of_this_node_and_their_changes(fake, book, request, eventually) -> None:
    for one in (pod("a", 1000), pod("b", 2000, node="n2"), pod("c", 3000, labels={}), pod("d")):
        fake.set_pod(one)
    request.getfixturevalue("watch")
    eventually(lambda: book.changes == [("a", 1000)])
    fake.set_pod(pod("a", 4000))
    fake.set_pod(pod("a", 4000))
    fake.set_pod(pod("b", 5000, node="n2"))
    fake.set_pod(pod("d", 6000))
    eventually(lambda: book.changes == [("a", 1000), ("a", 4000), ("d", 6000)])
    assert (book.of("a"), book.of("b")) == (HostShare(4000, 7), None)
    (query,) = [q for path, q in fake.requests if path == "/api/v1/pods" and q.get("watch") == "1"]
    assert (query["fieldSelector"], query["labelSelector"]) == ("spec.nodeName=n1", "emugpu.dev/job")
    fake.delete_pod("a")
    eventually(lambda: book.of("a") is None)


def test_an_annotation_that_is_wrong_or_gone_leaves_the_share_as_it_was(fake, book, watch, eventually, caplog) -> None:
    fake.set_pod(pod("a", 1000))
    eventually(lambda: book.changes)
    fake.set_pod(pod("a", text='{"cpu_milli": "many"}'))
    fake.set_pod(pod("a"))
    fake.set_pod(pod("b", 2000))
    eventually(lambda: len(book.changes) == 2)
    assert book.of("a") == HostShare(1000, 7)
    said = "pod default/pod-a: annotation emugpu.dev/allocation: cpu_milli: must be a whole number"
    assert said in caplog.text and "keeps its present share" in caplog.text


def test_what_was_missed_is_found_by_the_next_list(fake, book, watch, eventually) -> None:
    for uid in ("a", "b"):
        fake.set_pod(pod(uid, 1000))
    eventually(lambda: len(book.changes) == 2)
    fake.pods = [pod("a", 9000)]  # nobody is told of it
    fake.forget_history()
    eventually(lambda: book.of("a") == HostShare(9000, 7) and book.of("b") is None)
    assert book.changes[2:] == [("a", 9000)]


@pytest.mark.parametrize("fault", [403, 500])
def test_a_failure_is_reported_and_tried_again(fake, book, watch, eventually, caplog, fault) -> None:
    fake.fail(fault, "pods", "pod watch", times=2)
    fake.cut_watches()
    eventually(lambda: not any(f.times for f in fake.faults))
    fake.set_pod(pod("a", 1000))
    eventually(lambda: book.of("a"))
    assert "node n1: can't follow the allocations of its pods: API server: GET /api/v1/pods" in caplog.text


def test_a_pod_that_attaches_before_the_watch_brings_it_has_its_share(
    fake, api, poller, proc, pod_path, book, eventually
) -> None:
    """The list by which it is identified has the annotation too."""
    fake.fail(500, "pod watch")
    fake.pods = [pod(POD_UID, 5000)]
    border = KubernetesBorder("n1", poller, api, None, proc=proc(7, pod_path))
    border.start(None, None, book)
    seen = []
    border.identifier.identify(7, lambda who: seen.append((who.pod_uid, book.of(who.pod_uid))))
    eventually(lambda: seen)
    assert seen == [(POD_UID, HostShare(5000, 7))]
    border.stop()
