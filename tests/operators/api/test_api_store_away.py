"""A store that is missing, damaged or not ours: the API stays ready, and tells what Kubernetes says, and what is wrong."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from emulator_runtime.domain.errors import ClusterError
from operators.api.application import application
from operators.api.model.changes import Changes
from operators.api.services import Services
from operators.api.sources.cluster import ClusterSource, Naming
from operators.api.sources.stored_results import StoredResults
from operators.kube.api import EMUJOB, NODE, POOL
from operators.kube.informer import Pauses
from operators.results.facts_and_result import JobFacts
from operators.results.schema import VERSION
from operators.results.store import ResultStore
from operators.results_feed.feed import StoreFeed
from tests.support.fake_api import FakeApi

MakeServices = Callable[..., Services]
ROOT = {"Authorization": "Bearer root-token"}
S = 1_000_000_000
FROM_KUBERNETES = (
    *("/clusters", "/nodes", "/devices", "/jobs", "/jobs/uid-a", "/queue", "/occupancy", "/metrics-summary"),
    *("/experiments", "/policies"),
)
EMPTY_FILE, NO_DATABASE, OTHERS, NEWER, NOTHING = "empty", "no database", "somebody else's", "newer", "nothing"
RESTART = "Restart it where the file was taken away meanwhile"
MOVE_AWAY = "move it away and restart the controller of EmuJobs, which begins anew"


def spoilt(path: Path, how: str) -> None:
    """Put something there that is no store of ours."""
    if how == NO_DATABASE:
        path.write_bytes(b"not a database" * 1000)
    elif how == EMPTY_FILE:
        path.touch()
    elif how in (OTHERS, NEWER):
        with sqlite3.connect(path) as db:
            db.execute("create table changes (uid, number)" if how == NEWER else "create table other (x)")
            db.execute(f"pragma user_version = {VERSION + (how == NEWER)}")
        db.close()


def facts(uid: str) -> JobFacts:
    return JobFacts(uid, "lab", uid, 1_767_225_600 * S, steps=100, gpus=1)


@contextmanager
def serving(make_services: MakeServices, path: Path) -> Iterator[TestClient]:
    """The API over a cluster that has one EmuJob, a, with the store at `path`."""
    api = FakeApi()
    metadata = {"name": "a", "namespace": "lab", "uid": "uid-a", "creationTimestamp": "2026-01-01T00:00:00Z"}
    api.put(EMUJOB, {"metadata": metadata, "spec": {"steps": 100}, "status": {"phase": "Running", "stepsDone": 4}})
    api.put(NODE, {"metadata": {"name": "w1", "uid": "w1"}})
    api.put(POOL, {"metadata": {"name": "p", "uid": "p"}, "spec": {"nodeSelector": {}, "gpus": []}})
    pauses = Pauses(settle=0.0, first=0.01, longest=0.02)
    source = ClusterSource(
        api, Changes("e"), lambda: 1_767_225_660 * S, Naming("t"), StoredResults(StoreFeed(path)), pauses
    )
    with TestClient(application(make_services(source=source))) as client:
        until(lambda: client.get("/readyz").status_code == 200)
        yield client


def until(condition: Callable[[], Any]) -> None:
    give_up = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(0.01)


def problem(client: TestClient) -> str:
    found: str = client.get("/api/v1/clusters", headers=ROOT).json()["items"][0]["cluster"]["problem"]
    return found


@pytest.fixture(autouse=True)
def _looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("operators.api.sources.cluster.READ_S", 0.01)


@pytest.mark.parametrize(
    ("how", "wrong", "fix"),
    [
        (NOTHING, "unable to open database file", RESTART),
        (EMPTY_FILE, "no such table: changes", RESTART),
        (OTHERS, "no such table: changes", RESTART),
        (NO_DATABASE, "file is not a database", MOVE_AWAY),
        (NEWER, f"is of version {VERSION + 1}, not {VERSION}", "read it with the emugpu that wrote it"),
    ],
)
def test_what_is_in_the_store_alone_is_a_503_and_all_else_goes_on(
    make_services: MakeServices, tmp_path: Path, how: str, wrong: str, fix: str
) -> None:
    path = tmp_path / "results.db"
    spoilt(path, how)
    with serving(make_services, path) as client:
        until(lambda: str(path) in problem(client))
        for name in ("/readyz", "/healthz"):
            assert client.get(name).status_code == 200
        for name in FROM_KUBERNETES:
            assert client.get(f"/api/v1{name}", headers=ROOT).status_code == 200, name
        for name in ("/jobs/uid-a/steps", "/jobs/uid-plain", "/jobs/uid-plain/steps"):
            reply = client.get(f"/api/v1{name}", headers=ROOT)
            told = reply.json()
            assert (reply.status_code, told["status"], told["code"]) == (503, 503, "store-away"), name
            assert reply.headers["retry-after"]
            assert f"{path}: " in told["message"]
            assert wrong in told["message"] and fix in told["message"]
        story = client.get("/api/v1/jobs/uid-a", headers=ROOT).json()
        assert (story["job"]["phase"], story["job"]["steps_done"]) == ("Running", 4)
        assert story["notes"] == [f"only the data of Kubernetes: {problem(client)}"]
        suspended = client.post("/api/v1/jobs/uid-a/suspend", headers=ROOT)
        assert suspended.status_code == 200, suspended.text


def test_a_store_that_comes_goes_and_comes_again_is_followed(make_services: MakeServices, tmp_path: Path) -> None:
    """An open file that was moved away would tell the same for ever."""
    path = tmp_path / "results.db"

    def uids(client: TestClient) -> set[str]:
        return {job["uid"] for job in client.get("/api/v1/jobs", headers=ROOT).json()["items"]}

    def steps(client: TestClient) -> int:
        return client.get("/api/v1/jobs/uid-a/steps", headers=ROOT).status_code

    with serving(make_services, path) as client:
        first = ResultStore(path)
        first.note_job(facts("uid-old"))
        until(lambda: uids(client) == {"uid-a", "uid-old"} and steps(client) == 200 and not problem(client))
        first.close()
        path.rename(tmp_path / "away.db")
        until(lambda: "unable to open database file" in problem(client))
        assert uids(client) == {"uid-a", "uid-old"}  # what it said is known still
        until(lambda: steps(client) == 503)
        second = ResultStore(path)
        second.note_job(facts("uid-new"))
        until(lambda: uids(client) == {"uid-a", "uid-new"} and steps(client) == 200 and not problem(client))
        second.close()


def test_who_asks_when_the_store_has_just_gone_is_told_so(tmp_path: Path) -> None:
    """And not that the job has no steps."""
    path = tmp_path / "results.db"
    ResultStore(path).close()
    results = StoredResults(StoreFeed(path))
    assert results.refresh() and results.history("uid-a") == (None, [])
    path.rename(tmp_path / "away.db")
    with pytest.raises(ClusterError, match="unable to open database file"):
        results.history("uid-a")
    assert results.refresh() and "unable to open database file" in results.problem


def test_damage_inside_of_a_store_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "results.db"
    store, results = ResultStore(path), StoredResults(StoreFeed(path))
    store.note_job(facts("uid-b"))
    store.close()
    with sqlite3.connect(path) as db:
        db.execute("insert into results values ('uid-x', 1, '{\"facts\": 5}')")
        db.execute("insert into changes values ('uid-x', 99)")
    db.close()
    assert results.problem == f"{path}: the results store has not been read yet; try again"
    assert results.refresh()
    assert results.problem == (
        f"{path}: left out, as what is archived of them is damaged: job uid-x; "
        "they go in their time, or now by `delete from results where uid in ('uid-x')`"
    )
    assert list(results.jobs) == ["uid-b"] and not results.refresh()
    found, progress = results.history("uid-b")
    assert found is not None and (found.facts.uid, progress) == ("uid-b", [])
    with pytest.raises(ClusterError, match=r"left out, .* job uid-x;"):
        results.history("uid-x")
    with sqlite3.connect(path) as db:
        db.execute("delete from results where uid in ('uid-x')")
    db.close()
    assert results.refresh()
    assert (results.problem, list(results.jobs)) == ("", ["uid-b"])
