"""`emugpu scheduler` on a real cluster: jobs wait, run and are preempted as the policy decides, also when programs are killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from e2e.cases.conftest import GPUS_PER_NODE, ROOT
from e2e.cases.kube import Kubectl, Node, Object, eventually
from e2e.cases.ledger import Ledger, check_every_step_once

STEP_S = 0.1
EXPERIMENT = {"emugpu.dev/experiment": "case"}
pytestmark = pytest.mark.alone  # each job takes all GPUs of a node


def emujob(name: str, seconds: float, row: int, actuator: str, **spec: Any) -> Object:
    scheduler = {"actuator": actuator, "name": "case"} | ({"schedulerName": "case"} if actuator == "binding" else {})
    work = {"steps": round(seconds / STEP_S), "stepTime": f"{STEP_S}s", "memory": "1Gi"}
    return {
        "apiVersion": "emugpu.dev/v1alpha1",
        "kind": "EmuJob",
        "metadata": {"name": name, "labels": EXPERIMENT, "annotations": {"emugpu.dev/row": str(row)}},
        "spec": {**work, "resources": {"emuGPU": GPUS_PER_NODE}, "scheduler": scheduler, **spec},
    }


@contextmanager
def scheduler(kubectl: Kubectl, policy: str, log: Path, *more: str) -> Iterator[subprocess.Popen[str]]:
    """Runs the scheduler program until the end of the block."""
    command = [sys.executable, "-m", "emugpu", "scheduler", "--policy", policy, "--name", "case", *more]
    where = ["--kubeconfig", str(kubectl.kubeconfig), "--namespace", kubectl.namespace]
    environ = os.environ | {"PYTHONPATH": str(ROOT)}
    with log.open("a", encoding="utf-8") as out:
        program = subprocess.Popen([*command, *where], stdout=out, stderr=out, text=True, env=environ)
        try:
            yield program
        finally:
            program.kill()
            program.wait()


def statuses(kubectl: Kubectl) -> dict[str, Object]:
    return {found["metadata"]["name"]: found.get("status", {}) for found in kubectl.list("emujobs")}


def all_done(kubectl: Kubectl, count: int) -> dict[str, Object] | None:
    found = statuses(kubectl)
    failed = [name for name, status in found.items() if status.get("phase") == "Failed"]
    assert not failed, f"{failed}\n{kubectl('describe', 'pods')}"
    return found if sum(status.get("phase") == "Succeeded" for status in found.values()) == count else None


def wait_all_done(kubectl: Kubectl, count: int, log: Path, within_s: float = 240.0) -> dict[str, Object]:
    try:
        done: dict[str, Object] = eventually("all jobs end", lambda: all_done(kubectl, count), within_s=within_s)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{log.read_text(encoding='utf-8')}\n{kubectl('get', 'ej,jobs,pods')}") from None
    return done


def check_steps(kubectl: Kubectl, ledger: Ledger, steps: dict[str, int]) -> None:
    """Checks that each step of each job was done once."""
    for name, wanted in steps.items():
        uid = kubectl.get("emujob", name)["metadata"]["uid"]

        def finished(uid: str = uid) -> Any:
            events = ledger.of(uid)
            return events if any(event.kind == "finished" for event in events) else None

        check_every_step_once(eventually(f"all steps of {name} are reported", finished), wanted)


def began(found: dict[str, Object]) -> list[str]:
    return sorted(found, key=lambda name: str(found[name]["startedAt"]))


def test_jobs_run_in_order_of_submission(kubectl: Kubectl, ledger: Ledger, workers: list[Node], tmp_path: Path) -> None:
    """Six jobs under FIFO, each on a whole node; the program ends when all are done and prints a summary."""
    seconds = {f"j{row}": length for row, length in enumerate((6, 4, 5, 3, 2, 2))}
    kubectl.create(*(emujob(name, length, row, "jobs") for row, (name, length) in enumerate(seconds.items())))
    log = tmp_path / "log"
    with scheduler(kubectl, "fifo", log, "--until-done", "emugpu.dev/experiment=case", "--jobs", "6") as program:
        found = wait_all_done(kubectl, 6, log)
        assert program.wait(20) == 0
    at_once = len(workers)
    assert set(began(found)[:at_once]) == set(list(seconds)[:at_once])
    assert all(status["preemptions"] == 0 and status["rejections"] == 0 for status in found.values())
    assert any("predictedJCTSeconds" in status for status in found.values())
    assert log.read_text(encoding="utf-8").count("; start ") + log.read_text(encoding="utf-8").count("  start ") >= 3
    check_steps(kubectl, ledger, {name: round(length / STEP_S) for name, length in seconds.items()})


@pytest.mark.long  # test_story.py covers one preempted job
@pytest.mark.parametrize("actuator", ["jobs", "gated", "binding"])
def test_short_jobs_go_first_and_a_killed_scheduler_goes_on(
    kubectl: Kubectl, ledger: Ledger, tmp_path: Path, actuator: str
) -> None:
    """Short jobs preempt long ones (SRTF). The scheduler is killed in between, and another one takes over the running jobs."""
    seconds = {"long0": 25.0, "long1": 22.0, "short0": 3.0, "short1": 2.0, "short2": 4.0, "short3": 3.0}
    jobs = [emujob(name, length, row, actuator) for row, (name, length) in enumerate(seconds.items())]
    log = tmp_path / "log"
    kubectl.create(*jobs[:2])
    with scheduler(kubectl, "srtf", log) as program:
        eventually(
            "both run", lambda: [s.get("phase") for s in statuses(kubectl).values()] == ["Running"] * 2, within_s=60
        )
        time.sleep(3)
        kubectl.create(*jobs[2:])
        eventually(
            "a short one runs",
            lambda: any(n.startswith("short") and s.get("phase") == "Running" for n, s in statuses(kubectl).items()),
        )
        program.send_signal(signal.SIGKILL)
    with scheduler(kubectl, "srtf", log) as program:
        found = wait_all_done(kubectl, 6, log)
        program.terminate()
        assert program.wait(20) == 0
    ended = sorted(found, key=lambda name: str(found[name]["finishedAt"]))
    assert set(ended[-2:]) == {"long0", "long1"}, ended
    assert all(status["failures"] == 0 and status["rejections"] == 0 for status in found.values())
    check_steps(kubectl, ledger, {name: round(length / STEP_S) for name, length in seconds.items()})


def test_a_job_that_fits_on_cpus_alone_runs_there(kubectl: Kubectl, ledger: Ledger, tmp_path: Path) -> None:
    """While both nodes' GPUs are taken, a job whose only configuration has no GPU runs beside them."""
    jobs = [emujob(f"j{row}", 12, row, "jobs") for row in range(2)]
    on_cpu = {
        "configurations": [{"name": "cpu", "resources": {"emuGPU": 0, "cpu": 1}, "profile": {"stepTime": "0.1s"}}]
    }
    beside = emujob("beside", 2, 2, "jobs", **on_cpu)
    for name in ("resources", "stepTime", "memory"):
        del beside["spec"][name]
    log = tmp_path / "log"
    kubectl.create(*jobs, beside)
    with scheduler(kubectl, "fifo", log):
        found = wait_all_done(kubectl, 3, log)
    assert found["beside"]["finishedAt"] < min(found["j0"]["finishedAt"], found["j1"]["finishedAt"])
    assert (found["beside"]["gpus"], found["beside"]["allocation"]["configuration"]) == (0, "cpu")
    check_steps(kubectl, ledger, {"beside": 20})
