"""A source that tells what a test says, and an application over it, with everything that has a clock under the test's hand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient
from starlette.types import Message, Receive, Scope, Send

from operators.api.application import application
from operators.api.authentication.access import Principal
from operators.api.authentication.sessions import Sessions
from operators.api.model.changes import Changes
from operators.api.model.snapshot import (
    Cluster,
    Condition,
    Device,
    Experiment,
    Job,
    JobRun,
    Node,
    Progress,
    Run,
    Snapshot,
    Timeline,
)
from operators.api.replies.policies import bundled_policies
from operators.api.services import Services, Streams

RUNS = (Run("e.1", "e", "fifo", "simulated"), Run("e.2", "e", "fifo", "local", 1))


def job(number: int, **members: Any) -> Job:
    known: dict[str, Any] = {"uid": f"u{number}", "name": f"job-{number}", "run": "", "submitted_s": float(number)}
    return Job(**(known | members))


def sample(jobs: tuple[Job, ...] = (), **members: Any) -> Snapshot:
    """Two nodes, three devices, an experiment; u1 of namespace lab runs on w1/0, u2 of namespace other waits."""
    jobs = jobs or (
        job(
            1, namespace="lab", phase="Running", policy="allox", gpus=1, devices=("w1/0",), nodes=("w1",), started_s=2.0
        ),
        job(2, namespace="other", phase="Queued", reason="no room", tenant="ann"),
        job(
            3,
            namespace="lab",
            phase="Succeeded",
            jct_s=4.0,
            finished_s=7.0,
            predicted_jct_s=5.0,
            error=0.25,
            experiment="e",
        ),
    )
    known: dict[str, Any] = {
        "version": 7,
        "cluster": Cluster("kubernetes", "kubernetes", "wall", "test", writable=True),
        "now": lambda: 10.0,
        "jobs": jobs,
        "runs": {
            "u1": (JobRun("w1", ("w1/0",), 2.0, from_step=0, to_step=5),),
            "u3": (JobRun("w2", ("w2/0",), 4.0, 7.0, 0, 9, "finished"),),
        },
        "nodes": (Node("w2", devices=1), Node("w1", devices=2, held=1)),
        "devices": (
            Device("w1/0", "w1", 0, "GPU-1", holders=("u1",), held=True),
            Device("w1/1", "w1", 1, "GPU-2", healthy=False, reason="marked"),
            Device("w2/0", "w2", 0, "GPU-3"),
        ),
        "experiments": (Experiment("e", RUNS, {"seed": "0"}),),
    }
    return Snapshot(**(known | members))


@dataclass
class Told:
    """A Source in memory."""

    now: Snapshot = field(default_factory=sample)
    changes: Changes = field(default_factory=lambda: Changes("ab"))
    asked: list[tuple[str, bool]] = field(default_factory=list)
    refusal: Exception | None = None
    missing: str = ""
    store: str = ""

    def snapshot(self) -> Snapshot:
        return self.now

    def waits_for(self) -> str:
        return self.missing

    async def timeline(self, uid: str) -> Timeline | None:
        found = self.now.job(uid)
        if found is None:
            return None
        if self.store:
            return Timeline(found, self.now.runs_of(uid), missing=self.store)
        progress = (Progress(2.0, 4.0, 0, 5, "w1"),) if uid == "u1" else ()
        return Timeline(
            found, self.now.runs_of(uid), progress, (Condition("Accepted", "True", since_s=1.0),), ("a note",)
        )

    async def suspend(self, uid: str, *, suspended: bool) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.asked.append((uid, suspended))

    async def run(self) -> None:
        return

    def change(self, uid: str, **members: Any) -> None:
        """The job is different now."""
        jobs = tuple(replace(each, **members) if each.uid == uid else each for each in self.now.jobs)
        self.now = replace(self.now, jobs=jobs, version=self.now.version + 1)
        found = self.now.job(uid)
        self.changes.add("job", uid, found.namespace if found is not None else "")


class Rights:
    """An Access in memory: `tokens` says whose a token is, `rights` holds (user, verb, namespace)."""

    def __init__(self) -> None:
        self.tokens = {
            "root-token": Principal("root"),
            "ann-token": Principal("ann"),
            "bob-token": Principal("bob"),
            "ed-token": Principal("ed"),
        }
        self.rights = {
            *(("root", verb, namespace) for verb in ("get", "list", "patch") for namespace in ("", "lab", "other")),
            *(("ann", verb, "lab") for verb in ("get", "patch")),
            ("ed", "get", "lab"),
        }
        self.failure: Exception | None = None

    async def exchange(self, token: str) -> str | None:
        return token if token in self.tokens else None

    async def authenticate(self, token: str) -> Principal | None:
        if self.failure is not None:
            raise self.failure
        return self.tokens.get(token)

    async def may(self, who: Principal, verb: str, namespace: str) -> bool:
        return (who.user, verb, namespace) in self.rights


def services_of(
    source: Told, access: Rights, now_ns: Callable[[], int], stream_s: float = 3600.0, heartbeat_s: float = 0.05
) -> Services:
    sessions = Sessions(b"a key of the tests", now_ns, lasts_s=3600, most=4, most_each=3)
    streams = Streams(stream_s, heartbeat_s=heartbeat_s, gather_s=0.01, most=4, most_each=3)
    return Services(source, access, sessions, bundled_policies(), frozenset(), streams)


class HangsUp:
    """The application for callers who hang up when a stream of events has told all that there was: then it says that it is
    still there. So no test depends on how far a stream comes in a time."""

    def __init__(self, app: FastAPI) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked, told_all = False, asyncio.Event()

        async def hears(message: Message) -> None:
            await send(message)
            if b": still here" in message.get("body", b""):
                told_all.set()

        async def says() -> Message:
            nonlocal asked
            if asked:
                await told_all.wait()
                return {"type": "http.disconnect"}
            asked = True
            return await receive()

        if scope["type"] == "http" and scope["path"].endswith("/events"):
            await self.app(scope, says, hears)
        else:
            await self.app(scope, receive, send)


@dataclass
class Place:
    """The application with what it works on. `now_ns` is its monotonic clock."""

    client: TestClient
    source: Told = field(default_factory=Told)
    access: Rights = field(default_factory=Rights)
    now_ns: int = 0

    def __post_init__(self) -> None:
        self.app.state.services = services_of(self.source, self.access, lambda: self.now_ns)

    @property
    def app(self) -> FastAPI:
        """Shared by all tests; what it works on is this test's."""
        found: Any = self.client.app
        assert isinstance(found, HangsUp)
        return found.app

    def get(self, path: str, token: str = "root-token", **parameters: Any) -> Any:
        """The JSON of a reply that must be 200."""
        reply = self.client.get(f"/api/v1{path}", headers={"Authorization": f"Bearer {token}"}, params=parameters)
        assert reply.status_code == 200, reply.text
        return reply.json()

    def status(self, path: str, token: str = "root-token", method: str = "GET", **parameters: Any) -> tuple[int, str]:
        """Status and the problem's code."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        reply = self.client.request(method, f"/api/v1{path}", headers=headers, params=parameters)
        return reply.status_code, reply.json().get("code", "") if reply.content else ""


@pytest.fixture(scope="session")
def client() -> Iterator[TestClient]:
    services = services_of(Told(), Rights(), lambda: 0)
    with TestClient(HangsUp(application(services)), base_url="http://127.0.0.1:8765") as found:
        yield found


@pytest.fixture
def place(client: TestClient) -> Iterator[Place]:
    found = Place(client)
    yield found
    client.cookies.clear()


@pytest.fixture(scope="session")
def make_services() -> Callable[..., Services]:
    return lambda source=None, **options: services_of(source or Told(), Rights(), lambda: 0, **options)


@pytest.fixture(scope="session")
def make_told() -> Callable[[], Told]:
    return Told


@pytest.fixture(scope="session")
def make_job() -> Any:
    return job


@pytest.fixture(scope="session")
def make_snapshot() -> Any:
    return sample
