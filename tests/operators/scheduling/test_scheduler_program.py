"""A scheduler program before it has a cluster: its probes, its names, and where its lease is."""

from __future__ import annotations

import asyncio
import json
import signal
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from emulator_runtime.domain.errors import InputError
from emulator_runtime.domain.job import Configuration, JobSpec, TimedWork
from operators.controllers.status_server import loop_alive
from operators.kube.documents import Key
from operators.objects.emujob import EmuJob
from operators.scheduling import program
from operators.scheduling.options import Options
from operators.scheduling.predict.prediction_thread import MAX_WAITING
from operators.scheduling.program import Program
from operators.scheduling.track.tracked_jobs import Until
from scheduler_sims.clusters.open import PresentJob
from scheduler_sims.inputs.cluster_file import ClusterSpec
from scheduler_sims.interface.view import JobView, Phase
from scheduler_sims.loop.checks import PlanRefusedError, PolicyFailedError
from scheduler_sims.loop.strategies import Decision
from tests.support.fake_api import FakeApi


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Path:
    """Nobody is there, and nobody is asked."""
    path = tmp_path / "config"
    context = {"name": "c", "context": {"cluster": "c", "user": "u", "namespace": "mine"}}
    clusters = [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}]
    document = {
        "current-context": "c",
        "contexts": [context],
        "clusters": clusters,
        "users": [{"name": "u", "user": {}}],
    }
    path.write_text(yaml.safe_dump(document))
    return path


@pytest.fixture
def made(kubeconfig: Path) -> Callable[..., Program]:
    def make(policy: str = "fifo", **more: object) -> Program:
        return Program(Options(policy, kubeconfig=kubeconfig, **more), print, print)  # type: ignore[arg-type]

    return make


def get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_a_program_whose_event_loop_hangs_is_not_healthy(
    made: Callable[..., Program], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "loop_alive", partial(loop_alive, within_s=1.0))
    one, hang = made(), threading.Event()
    loop = one._cluster.event_loop
    working = threading.Thread(target=loop.run_forever)
    working.start()
    server = one.status_server(0)
    server.start()
    try:
        assert get(server.port, "/healthz") == (200, "ok\n")
        loop.call_soon_threadsafe(hang.wait)
        assert get(server.port, "/healthz") == (503, "the event loop did not answer within 1 s\n")
        assert get(server.port, "/readyz") == (503, "the API server has not been contacted yet\n")
    finally:
        server.close()
        hang.set()
        asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop).result(5)  # what was asked before is answered too
        loop.call_soon_threadsafe(loop.stop)
        working.join()
        loop.close()


def test_a_policy_whose_name_can_be_no_schedulers_needs_one(made: Callable[..., Program], tmp_path: Path) -> None:
    path = tmp_path / "own.py"
    names = ("My_Policy", "Überholer", "_Own", "P" * 41)
    text = "".join(f"class {name}:\n    needs_estimates = False\n    def plan(self, view): ...\n" for name in names)
    path.write_text(text)
    one = made(f"{path}:My_Policy")
    assert one.name == "my-policy"
    one._cluster.close()
    for name in names[1:]:
        with pytest.raises(InputError, match="give the scheduler a name with --name"):
            made(f"{path}:{name}")
        one = made(f"{path}:{name}", name="mine")
        assert one.name == "mine"
        one._cluster.close()


class Books:
    """Those of a loop with one job that waits; how often they were read is counted."""

    def __init__(self, spec: JobSpec) -> None:
        self.specs, self.read = {spec.job_id: spec}, 0
        view = JobView(spec.job_id, "user", 0.0, 0, 1.0, Phase.QUEUED, spec.configurations, 100)
        self._views = {spec.job_id: view}

    @property
    def views(self) -> dict[str, JobView]:
        self.read += 1
        return self._views


def job(name: str) -> JobSpec:
    return JobSpec(name, "user", 0.0, 100, (Configuration("cpu", 0, 1000),), {"cpu": TimedWork(10.0)}, 0)


def test_of_jobs_that_come_together_one_picture_is_made_and_only_so_many_are_asked_about(
    made: Callable[..., Program], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the loop's thread that makes it, and a decision is waiting."""
    one, books = made(), Books(job("old"))
    one._loop = SimpleNamespace(books=books, cluster_spec=ClusterSpec(()), state=None)  # type: ignore[assignment]
    emujobs = {f"j{n}": EmuJob(Key("lab", f"j{n}", f"u{n}")) for n in range(MAX_WAITING + 3)}
    monkeypatch.setattr(one._cluster, "emujob_of", emujobs.get)
    monkeypatch.setattr(one._cluster, "keep", lambda *_: None)
    monkeypatch.setattr(one._cluster, "uid_of", lambda _: "")
    for name in emujobs:
        one._submitted(PresentJob(job(name)))
    asked = one._predictions._thread._requests
    assert books.read == 1
    assert [question.key for question in asked] == [f"u{n}" for n in range(MAX_WAITING)]
    assert [[each.spec.job_id for each in question.present] for question in asked][:3] == [
        ["old"],
        ["old", "j0"],
        ["old", "j0", "j1"],
    ]
    one._noted()
    asked.clear()
    one._submitted(PresentJob(job("j0")))
    assert [each.spec.job_id for each in asked[0].present] == ["old"]
    one._cluster.close()


@pytest.mark.parametrize("asking", [True, False])
def test_a_signal_while_the_policy_is_at_work_is_answered(
    made: Callable[..., Program], asking: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    one = made()
    one._loop = SimpleNamespace(asking=asking)  # type: ignore[assignment]
    with one._signals():
        signal.raise_signal(signal.SIGINT)
        line = "ending after the policy's answer; a second Ctrl-C or SIGTERM ends at once\n"
        assert capsys.readouterr().out == (line if asking else "")
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)
    one._cluster.close()


def test_a_signal_that_comes_while_something_is_printed_ends_it_all_the_same(made: Callable[..., Program]) -> None:
    def busy(_text: str) -> None:
        raise RuntimeError("reentrant call inside <_io.BufferedWriter name='<stderr>'>")

    one = made()
    one._say = busy
    one._loop = SimpleNamespace(asking=True)  # type: ignore[assignment]
    with one._signals():
        signal.raise_signal(signal.SIGINT)
    assert one._over()
    one._cluster.close()


@pytest.mark.parametrize(
    ("options", "namespace"),
    [
        ({}, "emugpu-system"),
        ({"namespace": "lab"}, "lab"),
        ({"lease_namespace": "gpus"}, "gpus"),
        ({"namespace": "lab", "lease_namespace": "gpus"}, "gpus"),
    ],
)
def test_the_lease_is_at_one_place_whatever_the_kubeconfig_says(
    made: Callable[..., Program], options: dict[str, str], namespace: str
) -> None:
    """Else one on a laptop and the chart's would both act."""
    one = made(**options)
    connection = one._cluster._connection
    candidate = connection.leader(FakeApi())._candidate
    assert (connection.namespace, candidate.namespace, candidate.lease) == (*[namespace] * 2, "emugpu-scheduler-fifo")
    assert one._scope_text().endswith(f"; its lease is {namespace}/emugpu-scheduler-fifo")
    one._cluster.close()


# --- complaints -----------------------------------------------------------------------------------------------------------


class Notes:
    """In place of the cluster: the annotations that were written, and one EmuJob."""

    def __init__(self, one: Program, monkeypatch: pytest.MonkeyPatch) -> None:
        self.written: list[tuple[str, str, str | None]] = []
        self.emujob = EmuJob(Key("lab", "a", "uid-a"))
        monkeypatch.setattr(one._cluster, "annotate", lambda *note: self.written.append(note))
        monkeypatch.setattr(one._cluster, "uid_of", lambda job_id: f"uid-{job_id}" if job_id else "")
        monkeypatch.setattr(one._cluster, "emujob_of", lambda _job_id: self.emujob)
        monkeypatch.setattr(one._cluster, "keep", lambda *_: None)
        books = SimpleNamespace(views={})
        one._loop = SimpleNamespace(books=books, state=None)  # type: ignore[assignment]


def test_a_refused_plan_reaches_the_person_and_the_emujob_at_once_and_only_once(
    kubeconfig: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines, said = list[str](), list[str]()
    one = Program(Options("fifo", kubeconfig=kubeconfig, json=True), lines.append, said.append)
    notes, error = (
        Notes(one, monkeypatch),
        PlanRefusedError("a", "the plan places job 'a' ...: it needs 8 CPUs", never=True),
    )
    assert all(one._failed(error) for _ in range(50))
    (line,) = [json.loads(line) for line in lines]
    assert (line["kind"], line["job"], line["retry"], line["count"]) == ("plan-refused", "a", False, 1)
    assert said == [line["complaint"]] == ["policy fifo: the plan places job 'a' ...: it needs 8 CPUs"]
    ((uid, name, text),) = notes.written
    assert (uid, name) == ("uid-a", "emugpu.dev/scheduling-problem") and text is not None
    assert json.loads(text) | {"at": ""} == {"reason": "PlanRefused", "message": line["complaint"], "at": ""}
    one._cluster.close()


def test_what_the_emujob_says_is_taken_back_once_a_plan_is_carried_out(
    made: Callable[..., Program], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = made()
    notes = Notes(one, monkeypatch)
    one._failed(PlanRefusedError("a", "no"))
    one._decided(Decision(1.0, ("submitted",)))  # what the refused plan did before it was refused
    assert len(notes.written) == 1
    one._decided(Decision(2.0, ("submitted",)))
    assert notes.written[1:] == [("uid-a", "emugpu.dev/scheduling-problem", None)]
    one._decided(Decision(3.0, ("submitted",)))
    assert len(notes.written) == 2
    one._cluster.close()


def test_a_job_that_can_be_scheduled_after_all_loses_the_problem_of_a_former_program(
    made: Callable[..., Program], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = made(predictions=False)
    notes = Notes(one, monkeypatch)
    one._submitted(PresentJob(job("a")))
    assert notes.written == []
    notes.emujob = replace(notes.emujob, annotations={"emugpu.dev/scheduling-problem": "..."})
    one._submitted(PresentJob(job("a")))
    assert notes.written == [("uid-a", "emugpu.dev/scheduling-problem", None)]
    one._cluster.close()


def test_in_an_experiment_the_complaint_comes_before_the_end(
    made: Callable[..., Program], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    one = made(until=Until("l", "v", 1), json=True)
    Notes(one, monkeypatch)
    assert not one._failed(PolicyFailedError("the policy failed at 1.000 s: KeyError", "the policy failed: KeyError"))
    assert (
        json.loads(capsys.readouterr().out.splitlines()[0])["complaint"] == "policy fifo: the policy failed: KeyError"
    )
    one._cluster.close()


def test_a_supervisor_gives_the_identity_by_which_a_successor_takes_over_at_once(made: Callable[..., Program]) -> None:
    one, other = made(identity="supervisor-1"), made()
    assert one._cluster._connection.leader(FakeApi())._candidate.identity == "supervisor-1"
    identities = {other._cluster._connection.leader(FakeApi())._candidate.identity for _ in range(2)}
    assert len(identities) == 2
    for each in (one, other):
        each._cluster.close()
