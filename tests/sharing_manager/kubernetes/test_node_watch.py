from __future__ import annotations

import threading
from random import Random

import pytest

from emulator_runtime.retrying import Backoff
from sharing_manager.kubernetes import watching
from sharing_manager.kubernetes.api_server import FIRST_PAUSE_S
from sharing_manager.kubernetes.node_watch import NodeWatch
from tests.support.fake_node_api import DROP, GARBAGE, HANG


@pytest.fixture
def first_wait_s() -> float:
    """After a failure; the real one is 0.2 s."""
    return 0.02


@pytest.fixture
def watch(api, first_wait_s, monkeypatch):
    """The inventories that a watch of n1 has seen, in order."""
    monkeypatch.setattr(
        watching, "request_backoff", lambda name: Backoff(Random(name), first_s=first_wait_s, longest_s=10.0)
    )
    seen: list[str | None] = []
    stopping = threading.Event()
    thread = threading.Thread(
        target=NodeWatch(api, "n1", lambda node: seen.append(node.inventory)).run, args=(stopping,)
    )
    watch = type("Watch", (), {"seen": seen, "start": thread.start, "thread": thread})
    yield watch
    stopping.set()
    api.close()
    thread.join(3)
    assert not thread.is_alive()


def watches(fake) -> list[dict[str, str]]:
    return [query for path, query in fake.requests if query.get("watch") == "1"]


def lists(fake) -> int:
    return sum(path == "/api/v1/nodes" and "watch" not in query for path, query in fake.requests)


def test_the_node_and_its_changes_are_seen_and_no_other_node(fake, watch, eventually) -> None:
    fake.set_node("n1", "a")
    fake.set_node("n2", "other")
    watch.start()
    eventually(lambda: watch.seen == ["a"])
    fake.set_node("n2", "still other")
    fake.set_node("n1", "b")
    fake.set_node("n1", None)
    eventually(lambda: watch.seen == ["a", "b", None])
    assert watches(fake)[0]["fieldSelector"] == "metadata.name=n1"
    assert watches(fake)[0]["allowWatchBookmarks"] == "true"


def test_a_node_that_comes_later_is_seen(fake, watch, eventually, caplog) -> None:
    watch.start()
    eventually(lambda: watches(fake))
    assert "the API server has no such Node (yet); is EMUGPU_MANAGER_NODE right?" in caplog.text
    fake.set_node("n1", "a")
    eventually(lambda: watch.seen == ["a"])


def test_a_deleted_node_changes_nothing_until_it_is_back(fake, watch, eventually) -> None:
    fake.set_node("n1", "a")
    watch.start()
    eventually(lambda: watches(fake))
    fake.delete_node("n1")
    fake.set_node("n1", "b")
    eventually(lambda: watch.seen == ["a", "b"])


def test_after_the_end_of_a_watch_the_next_begins_where_it_ended(fake, watch, eventually) -> None:
    fake.set_node("n1", "a")
    watch.start()
    eventually(lambda: watches(fake))
    fake.bookmark()

    def another() -> bool:
        fake.cut_watches()  # again and again: a request may have been noted before there is a watch to cut
        return len(watches(fake)) > 1

    eventually(another)
    before, after = (int(query["resourceVersion"]) for query in watches(fake)[:2])
    assert after in (before, before + 1)  # with or without the bookmark: it may be cut off
    fake.set_node("n1", "b")
    eventually(lambda: watch.seen == ["a", "b"])
    assert lists(fake) == 1


def test_a_bookmark_moves_the_version_on(fake, watch, eventually) -> None:
    fake.set_node("n1", "a")
    watch.start()
    eventually(lambda: watches(fake))
    fake.bookmark()
    fake.set_node("n1", "b")
    eventually(lambda: watch.seen == ["a", "b"])
    fake.bookmark()
    version = fake._version

    def moved_on() -> bool:
        fake.cut_watches()
        return any(int(query["resourceVersion"]) == version for query in watches(fake))

    eventually(moved_on)
    assert lists(fake) == 1


def test_410_leads_to_a_new_list_without_a_complaint(fake, watch, eventually, caplog) -> None:
    fake.set_node("n1", "a")
    watch.start()
    eventually(lambda: watches(fake))
    fake.forget_history()
    eventually(lambda: lists(fake) == 2)
    fake.set_node("n1", "b")
    eventually(lambda: watch.seen[-1] == "b")
    assert not caplog.records


@pytest.mark.parametrize("fault", [401, 403, 410, 500, DROP, GARBAGE, HANG])
@pytest.mark.parametrize("request_kind", ["nodes", "watch"])
def test_every_failure_is_retried(fake, watch, eventually, fault, request_kind) -> None:
    fake.set_node("n1", "a")
    fake.fail(fault, request_kind, times=2)
    watch.start()
    eventually(lambda: not any(f.times for f in fake.faults))
    fake.release()
    fake.set_node("n1", "b")
    eventually(lambda: watch.seen and watch.seen[-1] == "b")


@pytest.mark.parametrize("first_wait_s", [FIRST_PAUSE_S])
def test_a_server_that_refuses_each_watch_is_not_asked_without_end(fake, watch, eventually) -> None:
    """The list works, the watch doesn't: the waits must grow all the same."""
    fake.set_node("n1", "a")
    fake.fail(403, "watch")
    watch.start()
    eventually(lambda: len(watches(fake)) >= 3)
    watch.thread.join(0.5)
    assert lists(fake) <= 5  # at 0, 0.2, 0.6, 1.4 s; without growing waits there would be more within a moment


def test_a_restarted_api_server_is_found_again(fake, watch, eventually, caplog) -> None:
    fake.set_node("n1", "a")
    watch.start()
    eventually(lambda: watches(fake))
    port = fake.port
    fake.stop()
    eventually(lambda: "Connection refused" in caplog.text)
    fake.start(port)
    fake.set_node("n1", "b")
    eventually(lambda: watch.seen[-1] == "b")


def test_a_hung_network_is_noticed_in_mid_watch(fake, watch, eventually) -> None:
    """Nothing comes, not even the end of the connection: after the quiet time there is a new list."""
    fake.set_node("n1", "a")
    watch.start()
    eventually(lambda: lists(fake) == 2)
    assert watching._WATCH_S < 150  # of a healthy server the end of the watch comes first
