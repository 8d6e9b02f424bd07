"""What a user sees of one job: kubectl's output, conditions and events while it waits, runs, is preempted, resumes and ends.

The output is kept in out/e2e/. The scheduler is killed after it has preempted the job, and another one takes over.
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
from e2e.cases.emujobs.test_emujobs import at_s, check_runs, reported_end, status, wait_phase
from e2e.cases.emujobs.test_emujobs import emujob as plain
from e2e.cases.emujobs.test_scheduler import STEP_S, check_steps, emujob, scheduler, wait_all_done
from e2e.cases.kube import Kubectl, Node, Object, eventually
from e2e.cases.ledger import Ledger
from emugpu.kubectl.output import duration

OUT = ROOT / "out" / "e2e"
STORY_S, URGENT_S = 20.0, 3.0


@dataclass(frozen=True)
class Snapshots:
    """The output of three commands about one job, at several moments, written to a file."""

    kubectl: Kubectl
    job: str
    path: Path

    @classmethod
    def new(cls, kubectl: Kubectl, job: str) -> Snapshots:
        OUT.mkdir(parents=True, exist_ok=True)
        path = OUT / f"{job}.txt"
        path.write_text("", encoding="utf-8")
        return cls(kubectl, job, path)

    def take(self, title: str) -> str:
        """Run the three commands and append their output to the file; returns that of `explain`."""
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
    """The output of `kubectl emugpu explain`; the plugin is the program beside this Python."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    environ = os.environ | {"PATH": path, "PYTHONPATH": str(ROOT), "KUBECONFIG": str(kubectl.kubeconfig)}
    command = [kubectl.program, "emugpu", "explain", job, "--namespace", kubectl.namespace]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environ, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def conditions(kubectl: Kubectl, name: str) -> dict[str, tuple[str, str]]:
    """Type of each condition -> its status and reason."""
    found = kubectl.get("emujob", name)["status"]["conditions"]
    assert all(condition["observedGeneration"] == 1 for condition in found)
    return {condition["type"]: (condition["status"], condition["reason"]) for condition in found}


def reasons(kubectl: Kubectl, name: str) -> list[str]:
    """The reasons of the job's events, oldest first."""
    events = sorted(kubectl.events_of("EmuJob", name), key=lambda event: int(event["metadata"]["resourceVersion"]))
    return [event["reason"] for event in events]


def row_of(kubectl: Kubectl, name: str) -> str:
    """The job's line in `kubectl get ej`."""
    (row,) = [line for line in kubectl("get", "ej").splitlines() if line.split()[0] == name]
    return row


@pytest.fixture
def one_node(admin: Kubectl, workers: list[Node]) -> Iterator[None]:
    """Cordon all other nodes, so that two jobs that need a whole node can't run at once."""
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
    log, snapshots = tmp_path / "log", Snapshots.new(kubectl, "story")
    kubectl.create(job("story", STORY_S, 0))
    it_waits(snapshots)
    with scheduler(kubectl, "srtf", log):
        it_runs(snapshots)
        kubectl.create(job("urgent", URGENT_S, 1))
        wait_phase(kubectl, "story", "Preempted")
    it_waits_again(snapshots)  # its scheduler was killed; another one takes over
    with scheduler(kubectl, "srtf", log):
        it_goes_on(snapshots)
        done = wait_all_done(kubectl, 2, log)
        end = reported_end(kubectl, "story")
    it_has_ended(snapshots, end)
    assert done["urgent"]["preemptions"] == 0
    assert at_s(done["urgent"]["finishedAt"]) < at_s(end["runs"][1]["from"])
    check_steps(kubectl, ledger, {"story": round(STORY_S / STEP_S), "urgent": round(URGENT_S / STEP_S)})


def it_waits(snapshots: Snapshots) -> None:
    wait_phase(snapshots.kubectl, "story", "Queued")
    assert conditions(snapshots.kubectl, "story") == {
        "Accepted": ("True", "Accepted"),
        "Scheduled": ("False", "WaitingForScheduler"),
        "Progressing": ("False", "Queued"),
        "Complete": ("False", "NotFinished"),
        "Failed": ("False", "NotFailed"),
    }
    assert "scheduler case has not allocated anything" in snapshots.take("queued: its scheduler has not come yet")


def it_runs(snapshots: Snapshots) -> None:
    running = wait_phase(snapshots.kubectl, "story", "Running")
    seen = conditions(snapshots.kubectl, "story")
    assert (seen["Scheduled"], seen["Progressing"]) == (("True", "PodsBound"), ("True", "Running"))
    assert running["node"] in row_of(snapshots.kubectl, "story")
    eventually("some steps are done", lambda: status(snapshots.kubectl, "story").get("stepsDone", 0) >= 10)
    assert "run 1 begins at step 0 on " in snapshots.take("running")


def it_waits_again(snapshots: Snapshots) -> None:
    def released() -> Object | None:
        found = status(snapshots.kubectl, "story")
        return found if [run.get("ended") for run in found.get("runs", ())] == ["released"] else None

    waiting = eventually("its first run is reported as ended", released)
    assert (waiting["phase"], waiting["preemptions"]) == ("Preempted", 1)
    assert conditions(snapshots.kubectl, "story")["Progressing"] == ("False", "Preempted")
    explained = snapshots.take("preempted: a shorter job gets its place")
    kept = waiting["runs"][0]["toStep"]
    assert 10 <= kept < STORY_S / STEP_S
    assert f"its GPUs were taken away, 1 time so far; the {kept} steps that are done are kept" in explained
    assert f"at step {kept}: released" in explained


def it_goes_on(snapshots: Snapshots) -> None:
    wait_phase(snapshots.kubectl, "story", "Running", within_s=90)
    eventually("its second run is reported", lambda: len(status(snapshots.kubectl, "story")["runs"]) == 2, within_s=15)
    kept = status(snapshots.kubectl, "story")["runs"][0]["toStep"]
    assert f"run 2 begins at step {kept} on " in snapshots.take("running again, where it stopped")


def it_has_ended(snapshots: Snapshots, end: Object) -> None:
    steps = round(STORY_S / STEP_S)
    check_runs(end, steps, 2)
    assert [run["ended"] for run in end["runs"]] == ["released", "finished"]
    assert (end["preemptions"], end["failures"], end["rejections"]) == (1, 0, 0)
    assert end["predictedJCTSeconds"]["by"] == "srtf"
    seen = conditions(snapshots.kubectl, "story")
    assert (seen["Complete"], seen["Progressing"]) == (("True", "AllStepsDone"), ("False", "Finished"))
    assert seen["Measured"] == ("True", "EventLog")
    assert f"{steps}/{steps}" in row_of(snapshots.kubectl, "story")
    assert reasons(snapshots.kubectl, "story") == ["Running", "Preempted", "Running", "Complete"]
    explained = snapshots.take("finished")
    assert f"at step {steps}: finished" in explained
    assert f"{duration(end['predictedJCTSeconds']['value'])} were predicted" in explained


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
    snapshots = Snapshots.new(kubectl, name)
    kubectl.apply(plain(name, **spec))
    rejected = wait_phase(kubectl, name, "Rejected")
    (accepted,) = [c for c in rejected["conditions"] if c["type"] == "Accepted"]
    assert (accepted["status"], accepted["reason"]) == ("False", "NoNodeFits")
    assert accepted["message"].startswith(problem)
    (event,) = eventually("an event", lambda: kubectl.events_of("EmuJob", name))
    assert (event["type"], event["reason"], event["message"]) == ("Warning", "NoNodeFits", accepted["message"])
    assert f"it can't run here: {problem}" in snapshots.take("refused")
    assert not kubectl.exists("job", name)
    assert not kubectl.list("pods")
