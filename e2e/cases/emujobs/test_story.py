"""What a person sees of one job: kubectl's output, conditions and events while it waits, runs, is preempted, goes on and ends.

What was seen is left in out/e2e/, to be read. The scheduler is killed when it has preempted the job, and another one takes over.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from e2e.cases.conftest import GPUS_PER_NODE, ROOT
from e2e.cases.emujobs.test_emujobs import at_s, check_runs, status, told_to_its_end, wait_phase
from e2e.cases.emujobs.test_emujobs import emujob as plain
from e2e.cases.emujobs.test_scheduler import STEP_S, check_steps, emujob, scheduler, wait_all_done
from e2e.cases.kube import Kubectl, Node, Object, eventually
from e2e.cases.ledger import Ledger
from emugpu.kubectl.output import duration

OUT = ROOT / "out" / "e2e"
STORY_S, URGENT_S = 20.0, 3.0


@dataclass(frozen=True)
class Album:
    """One job's pictures: what three commands print of it, one after the other in a file."""

    kubectl: Kubectl
    job: str
    path: Path

    @classmethod
    def new(cls, kubectl: Kubectl, job: str) -> Album:
        OUT.mkdir(parents=True, exist_ok=True)
        path = OUT / f"{job}.txt"
        path.write_text("", encoding="utf-8")
        return cls(kubectl, job, path)

    def picture(self, title: str) -> str:
        """What `explain` says; all three go to the file."""
        listed, described = (self.kubectl(*words) for words in (("get", "ej", "-o", "wide"), self._describe))
        explained = explain(self.kubectl, self.job)
        commands = ("get ej -o wide", " ".join(self._describe), f"emugpu explain {self.job}")
        with self.path.open("a", encoding="utf-8") as out:
            out.write(f"{'=' * 20} {title}\n")
            for command, said in zip(commands, (listed, described, explained), strict=True):
                out.write(f"\n$ kubectl {command}\n{said}\n")
        return explained

    @property
    def _describe(self) -> tuple[str, str, str]:
        return "describe", "emujob", self.job


def explain(kubectl: Kubectl, job: str) -> str:
    """`kubectl emugpu explain`: kubectl finds the program beside this Python."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    environ = os.environ | {"PATH": path, "PYTHONPATH": str(ROOT), "KUBECONFIG": str(kubectl.kubeconfig)}
    command = [kubectl.program, "emugpu", "explain", job, "--namespace", kubectl.namespace]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environ, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def conditions(kubectl: Kubectl, name: str) -> dict[str, tuple[str, str]]:
    """Type -> status and reason."""
    found = kubectl.get("emujob", name)["status"]["conditions"]
    assert all(condition["observedGeneration"] == 1 for condition in found)
    return {condition["type"]: (condition["status"], condition["reason"]) for condition in found}


def reasons(kubectl: Kubectl, name: str) -> list[str]:
    """Of the events about it, oldest first."""
    events = sorted(kubectl.events_of("EmuJob", name), key=lambda event: int(event["metadata"]["resourceVersion"]))
    return [event["reason"] for event in events]


def row_of(kubectl: Kubectl, name: str) -> str:
    """Its line of `kubectl get ej`."""
    (row,) = [line for line in kubectl("get", "ej").splitlines() if line.split()[0] == name]
    return row


@pytest.fixture
def one_node(admin: Kubectl, workers: list[Node]) -> Iterator[None]:
    """All others are closed for new pods, so that two jobs of a whole node can't run at once."""
    others = [worker.name for worker in workers[1:]]
    try:
        if others:
            admin("cordon", *others)
        yield
    finally:
        if others:
            admin("uncordon", *others)


def job(name: str, seconds: float, row: int) -> Object:
    return emujob(name, seconds, row, "jobs")


@pytest.mark.alone
def test_the_story_of_one_job(one_node: None, kubectl: Kubectl, ledger: Ledger, tmp_path: Path) -> None:
    log, album = tmp_path / "log", Album.new(kubectl, "story")
    kubectl.create(job("story", STORY_S, 0))
    it_waits(album)
    with scheduler(kubectl, "srtf", log):
        it_runs(album)
        kubectl.create(job("urgent", URGENT_S, 1))
        wait_phase(kubectl, "story", "Preempted")
    it_waits_again(album)  # its scheduler is dead now, and another one takes over
    with scheduler(kubectl, "srtf", log):
        it_goes_on(album)
        done = wait_all_done(kubectl, 2, log)
        told = told_to_its_end(kubectl, "story")
    it_has_ended(album, told)
    assert done["urgent"]["preemptions"] == 0
    assert at_s(done["urgent"]["finishedAt"]) < at_s(told["runs"][1]["from"])
    check_steps(kubectl, ledger, {"story": round(STORY_S / STEP_S), "urgent": round(URGENT_S / STEP_S)})


def it_waits(album: Album) -> None:
    wait_phase(album.kubectl, "story", "Queued")
    assert conditions(album.kubectl, "story") == {
        "Accepted": ("True", "Accepted"),
        "Scheduled": ("False", "WaitingForScheduler"),
        "Progressing": ("False", "Queued"),
        "Complete": ("False", "NotFinished"),
        "Failed": ("False", "NotFailed"),
    }
    assert "scheduler case has not allocated anything" in album.picture("queued: its scheduler has not come yet")


def it_runs(album: Album) -> None:
    running = wait_phase(album.kubectl, "story", "Running")
    seen = conditions(album.kubectl, "story")
    assert (seen["Scheduled"], seen["Progressing"]) == (("True", "PodsBound"), ("True", "Running"))
    assert running["node"] in row_of(album.kubectl, "story")
    eventually("some steps are done", lambda: status(album.kubectl, "story").get("stepsDone", 0) >= 10)
    assert "run 1 begins at step 0 on " in album.picture("running")


def it_waits_again(album: Album) -> None:
    def released() -> Object | None:
        found = status(album.kubectl, "story")
        return found if [run.get("ended") for run in found.get("runs", ())] == ["released"] else None

    waiting = eventually("the end of its first run is told", released)
    assert (waiting["phase"], waiting["preemptions"]) == ("Preempted", 1)
    assert conditions(album.kubectl, "story")["Progressing"] == ("False", "Preempted")
    explained = album.picture("preempted: a shorter job gets its place")
    kept = waiting["runs"][0]["toStep"]
    assert 10 <= kept < STORY_S / STEP_S
    assert f"its GPUs were taken away, 1 time so far; the {kept} steps that are done are kept" in explained
    assert f"at step {kept}: released" in explained


def it_goes_on(album: Album) -> None:
    wait_phase(album.kubectl, "story", "Running", within_s=90)
    eventually("its second run is told of", lambda: len(status(album.kubectl, "story")["runs"]) == 2, within_s=15)
    kept = status(album.kubectl, "story")["runs"][0]["toStep"]
    assert f"run 2 begins at step {kept} on " in album.picture("running again, where it stopped")


def it_has_ended(album: Album, told: Object) -> None:
    steps = round(STORY_S / STEP_S)
    check_runs(told, steps, 2)
    assert [run["ended"] for run in told["runs"]] == ["released", "finished"]
    assert (told["preemptions"], told["failures"], told["rejections"]) == (1, 0, 0)
    assert told["predictedJCTSeconds"]["by"] == "srtf"
    seen = conditions(album.kubectl, "story")
    assert (seen["Complete"], seen["Progressing"]) == (("True", "AllStepsDone"), ("False", "Finished"))
    assert seen["Measured"] == ("True", "EventLog")
    assert f"{steps}/{steps}" in row_of(album.kubectl, "story")
    assert reasons(album.kubectl, "story") == ["Running", "Preempted", "Running", "Complete"]
    explained = album.picture("finished")
    assert f"at step {steps}: finished" in explained
    assert f"{duration(told['predictedJCTSeconds']['value'])} were predicted" in explained


IMPOSSIBLE: dict[str, tuple[Object, str]] = {
    "too-many": (
        {"resources": {"emuGPU": GPUS_PER_NODE + 1}},
        f"needs {GPUS_PER_NODE + 1} GPUs on a node, a node has ",
    ),
    "wrong-type": ({"gpuType": "A100-80GB"}, "needs NVIDIA-A100-SXM4-80GB; the pools offer "),
}


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_an_impossible_job_is_refused_with_the_reason(kubectl: Kubectl, name: str) -> None:
    spec, problem = IMPOSSIBLE[name]
    album = Album.new(kubectl, name)
    kubectl.apply(plain(name, **spec))
    rejected = wait_phase(kubectl, name, "Rejected")
    (accepted,) = [c for c in rejected["conditions"] if c["type"] == "Accepted"]
    assert (accepted["status"], accepted["reason"]) == ("False", "NoNodeFits")
    assert accepted["message"].startswith(problem)
    (event,) = eventually("an event", lambda: kubectl.events_of("EmuJob", name))
    assert (event["type"], event["reason"], event["message"]) == ("Warning", "NoNodeFits", accepted["message"])
    assert f"it can't run here: {problem}" in album.picture("refused")
    assert not kubectl.exists("job", name)
    assert not kubectl.list("pods")
