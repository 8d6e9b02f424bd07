"""The feed from the store's file to the API: pages of changes, over HTTP, for the API's account alone."""

from __future__ import annotations

import asyncio
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from emulator_runtime.domain.errors import ClusterError, InputError
from emulator_runtime.http_server import HttpServer, Request
from emulator_runtime.timing.host import monotonic_ns
from operators.api.sources.stored_results import StoredResults
from operators.kube.api import ApiAwayError
from operators.results.facts_and_result import JobFacts
from operators.results.predicted import Prediction
from operators.results.reading import ResultReader
from operators.results.store import Batch, ResultStore
from operators.results_feed import feed as feed_module
from operators.results_feed.client import HttpFeed
from operators.results_feed.feed import BEGINNING, StoreFeed
from operators.results_feed.server import AUDIENCE, TokenCheck, feed_pages, is_reader
from tests.support.event_streams import EventStream

S = 10**9
API = "system:serviceaccount:emugpu:emugpu-api"


def facts(number: int) -> JobFacts:
    return JobFacts(f"uid-{number}", "lab", f"job-{number}", number * S, steps=100, gpus=1)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "results.db"


@pytest.fixture
def store(path: Path) -> Iterator[ResultStore]:
    found = ResultStore(path)
    yield found
    found.close()


def events_of(number: int) -> Batch:
    node = EventStream("w1", namespace="lab")
    node.tell("attached", 0, key=f"uid-{number}/0")
    node.tell("progress", 5, 40, key=f"uid-{number}/0")
    return Batch(tuple(node.events))


# --- pages of changes -------------------------------------------------------------------------------------------------------


def test_changes_come_in_pages_and_only_once(store: ResultStore, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed_module, "PAGE", 3)
    for number in range(8):
        store.note_job(facts(number))
    feed, since, seen, more = StoreFeed(path), BEGINNING, list[str](), True
    while more:
        page = feed.changes(since)
        assert len(page.results) <= 3
        seen += [result.facts.uid for result, _ in page.results]
        since, more = page.version, page.more
    assert seen == [f"uid-{number}" for number in range(8)]
    assert feed.changes(since).results == ()
    store.note_prediction("uid-5", Prediction(12.0, "srtf", S))
    ((result, prediction),) = feed.changes(since).results
    assert (result.facts.uid, prediction) == ("uid-5", Prediction(12.0, "srtf", S))


def test_jobs_that_changed_together_are_on_one_page(store: ResultStore, path: Path) -> None:
    for number in range(5):
        store.note_job(facts(number))
    version = StoreFeed(path).changes(BEGINNING).version
    store.write(Batch(tuple(event for number in range(5) for event in events_of(number).events)))
    with closing(ResultReader.open(path)) as reader:
        _, uids, more = reader.changes_page(version, 2)
    assert (sorted(uids), more) == ([f"uid-{number}" for number in range(5)], True)


def test_a_result_that_was_forgotten_is_gone(store: ResultStore, path: Path) -> None:
    results = StoredResults(StoreFeed(path))
    for number in (1, 2):
        store.note_job(replace(facts(number), failed_ns=(number + 1) * S))
    done = store.jobs()
    store.archive(done)
    assert results.refresh() and len(results.jobs) == 2
    assert store.forget(0, most=1) == ["uid-1"]
    assert results.refresh()
    assert list(results.jobs) == ["uid-2"]


def test_another_store_is_read_from_its_beginning(tmp_path: Path) -> None:
    """Also where its version is the larger one, and the file has the same name."""
    path = tmp_path / "results.db"
    with closing(ResultStore(path)) as first:
        first.note_job(facts(1))
    results = StoredResults(StoreFeed(path))
    assert results.refresh() and list(results.jobs) == ["uid-1"]
    path.rename(tmp_path / "away.db")
    with closing(ResultStore(path)) as second:
        for number in range(2, 9):
            second.note_job(facts(number))
    assert results.refresh()
    assert list(results.jobs) == [f"uid-{number}" for number in range(2, 9)]


# --- over HTTP --------------------------------------------------------------------------------------------------------------


class Served:
    """A feed on loopback whose token is "good"."""

    def __init__(self, path: Path, directory: Path) -> None:
        self.leads = True
        self.feed: StoreFeed | None = StoreFeed(path)
        pages = feed_pages(lambda: self.feed, lambda token: token == "good", lambda: self.leads)
        self.server = HttpServer(0, pages, monotonic_ns)
        self.server.start()
        self.token = directory / "token"
        self.token.write_text("good\n")
        self.client = HttpFeed(f"http://127.0.0.1:{self.server.port}", self.token)

    def status(self, path: str, **headers: str) -> int:
        request = urllib.request.Request(f"http://127.0.0.1:{self.server.port}{path}", headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=20) as reply:
                return int(reply.status)
        except urllib.error.HTTPError as error:
            with error:
                assert json.loads(error.read())["problem"]
                return error.code


@pytest.fixture
def served(path: Path, tmp_path: Path) -> Iterator[Served]:
    found = Served(path, tmp_path)
    yield found
    found.server.close()


def test_what_the_client_reads_is_what_the_store_has(store: ResultStore, path: Path, served: Served) -> None:
    for number in (1, 2):
        store.note_job(facts(number))
    store.write(events_of(1))
    store.note_prediction("uid-1", Prediction(12.5, "allox", S))
    here = StoreFeed(path)
    assert served.client.changes(BEGINNING) == here.changes(BEGINNING)
    assert served.client.history("uid-1") == here.history("uid-1")
    assert len(here.history("uid-1").events) == 2
    assert served.client.history("uid-unknown").result is None
    results = StoredResults(served.client)
    assert results.refresh()
    assert sorted(results.jobs) == ["uid-1", "uid-2"]
    found, progress = results.history("uid-1")
    assert found is not None and [(each.from_step, each.to_step) for each in progress] == [(0, 40)]


@pytest.mark.parametrize("target", ["/changes?since=-1", "/history?uid=uid-1", "/", "/metrics"])
@pytest.mark.parametrize("authorization", ["", "Bearer", "Bearer ", "Bearer bad", "Basic good", "good", "bearer good"])
def test_without_the_apis_token_nothing_is_read(
    store: ResultStore, served: Served, target: str, authorization: str
) -> None:
    store.note_job(facts(1))
    headers = {"Authorization": authorization} if authorization else {}
    assert served.status(target, **headers) == 401


@pytest.mark.parametrize(
    "target",
    [
        *("/", "/metrics", "/changes", "/changes?since=", "/changes?since=x", "/changes?since=1e5", "/history"),
        *("/history?uid=", "/history?uid=../../etc", "/changes?since=9999999999999999999", "/changes/?since=1"),
    ],
)
def test_other_requests_are_refused(store: ResultStore, served: Served, target: str) -> None:
    assert served.status(target, Authorization="Bearer good") == 404


def test_a_replica_that_does_not_lead_says_so(store: ResultStore, served: Served) -> None:
    served.leads = False
    with pytest.raises(ClusterError, match="does not lead, another one has the store; does the jobs controller run"):
        served.client.changes(0)
    served.leads, served.feed = True, None
    with pytest.raises(ClusterError, match="does not lead"):
        served.client.changes(0)


def test_of_several_replicas_the_one_that_leads_answers(
    store: ResultStore, path: Path, tmp_path: Path, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.note_job(facts(1))
    import operators.results_feed.client as client

    port = served.server.port
    addresses = [(2, 1, 6, "", (address, port)) for address in ("127.0.0.99", "127.0.0.1")]
    monkeypatch.setattr(client.socket, "getaddrinfo", lambda *_args, **_options: addresses)
    asked: list[str] = []
    real = HttpFeed._asked

    def recorded(self: HttpFeed, address: str, *rest: Any) -> tuple[int, bytes]:
        asked.append(address)
        if address == "127.0.0.99":
            return 503, b'{"problem": "does not lead"}'
        return real(self, address, *rest)

    monkeypatch.setattr(HttpFeed, "_asked", recorded)
    assert len(served.client.changes(BEGINNING).results) == 1
    assert asked == ["127.0.0.99", "127.0.0.1"]


def test_a_store_that_is_away_is_reported_with_its_reason(served: Served, path: Path) -> None:
    with pytest.raises(ClusterError, match=rf"^results store at http://127.0.0.1:\d+: {path}: can't read this file"):
        served.client.changes(0)


def test_no_controller_is_reported(served: Served) -> None:
    served.server.close()
    with pytest.raises(ClusterError, match=r"Connection refused; does the jobs controller run\?$"):
        served.client.changes(0)
    served.token.unlink()
    with pytest.raises(ClusterError, match="No such file"):
        served.client.changes(0)


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"store": "s", "version": "x"}', b"<html>"])
def test_what_is_no_answer_is_reported(body: bytes, tmp_path: Path) -> None:
    server = HttpServer(0, lambda _request: (200, "application/json", body), monotonic_ns)
    server.start()
    (tmp_path / "token").write_text("good")
    client = HttpFeed(f"http://127.0.0.1:{server.port}", tmp_path / "token")
    try:
        for read in (lambda: client.changes(0), lambda: client.history("u")):
            with pytest.raises(ClusterError, match="run one version of both"):
                read()
    finally:
        server.close()


@pytest.mark.parametrize(
    "url", ["", "emugpu-jobs:9405", "https://a:1", "http://a", "http://a:x", "http://:1", "http://a:1/x"]
)
def test_a_wrong_url_is_refused(url: str) -> None:
    with pytest.raises(InputError, match="EMUGPU_API_RESULTS_URL: must be http://HOST:PORT"):
        HttpFeed(url, Path("token"))


# --- whose token it is --------------------------------------------------------------------------------------------------------


def review(user: str = API, audiences: Any = (AUDIENCE,), *, authenticated: Any = True) -> dict[str, Any]:
    return {"authenticated": authenticated, "audiences": list(audiences), "user": {"username": user}}


@pytest.mark.parametrize(
    ("status", "good"),
    [
        (review(), True),
        (review(audiences=("https://kubernetes.default.svc", AUDIENCE)), True),
        (review(audiences=("https://kubernetes.default.svc",)), False),
        (review(audiences=()), False),
        (review("system:serviceaccount:lab:emugpu-api"), False),
        (review("system:serviceaccount:emugpu:emugpu-jobs"), False),
        (review("admin"), False),
        (review(""), False),
        (review(authenticated=False), False),
        (review(authenticated="true"), False),
        ({"authenticated": True, "user": {"username": API}}, False),
        ({}, False),
    ],
)
def test_only_the_apis_account_with_the_feeds_audience_is_a_reader(status: dict[str, Any], good: bool) -> None:
    assert is_reader(status, frozenset({API})) is good


class Reviewer:
    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.failure: Exception | None = None

    async def create(self, _resource: Any, document: dict[str, Any], _manager: str = "") -> dict[str, Any]:
        self.asked.append(document)
        if self.failure is not None:
            raise self.failure
        return document | {"status": review(API if document["spec"]["token"] == "good" else "eve")}


def test_a_token_is_reviewed_once_a_minute_and_a_bad_one_each_time() -> None:
    reviewer, now, loop = Reviewer(), [0], asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        check = TokenCheck(reviewer, loop, frozenset({API}), lambda: now[0])  # type: ignore[arg-type]
        assert check("good") and check("good")
        assert [document["spec"] for document in reviewer.asked] == [{"token": "good", "audiences": [AUDIENCE]}]
        assert not check("bad") and not check("bad")
        assert len(reviewer.asked) == 3
        now[0] = 60 * S
        reviewer.failure = ApiAwayError("away")
        with pytest.raises(ApiAwayError):
            check("good")
        answer = feed_pages(lambda: None, check, lambda: True)(Request("/changes", "since=0", "Bearer good"))
        assert (answer[0], json.loads(answer[2])) == (503, {"problem": "away"})
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
