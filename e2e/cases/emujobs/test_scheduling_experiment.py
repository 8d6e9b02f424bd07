"""A SchedulingExperiment waits for its turn, survives its runner, can be suspended and resumed, and leaves nothing behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from e2e.cases.conftest import CLUSTER, ROOT
from e2e.cases.emujobs.test_experiment import namespaces
from e2e.cases.kube import SYSTEM, Kubectl, Object, eventually

pytestmark = [pytest.mark.alone, pytest.mark.long]

LENGTHS_S = (20, 20, 5, 5)
NAMESPACES_S = 150.0
"""The longest time until an experiment's namespace is deleted: its pods end first."""


@pytest.fixture(scope="module", autouse=True)
def runner_image() -> None:
    """Loads the runner's image onto the nodes."""
    command = [sys.executable, "-m", "emugpu", "cluster", "load", "--name", CLUSTER, "emugpu-scheduler"]
    environ = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, env=environ, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def experiments(kubectl: Kubectl) -> Iterator[Kubectl]:
    """kubectl in a namespace; its experiments are deleted before the namespace."""
    try:
        yield kubectl
    finally:
        kubectl("delete", "schedulingexperiments", "--all", "--timeout=200s", timeout_s=220)


def experiment(name: str, **more: object) -> Object:
    rows = [f"job-{n},{'ab'[n % 2]},{n // 2},8,1,{length_s}" for n, length_s in enumerate(LENGTHS_S)]
    workload = "\n".join(["job_id,user,submit_s,num_gpus,cpus,gpu_duration_s", *rows]) + "\n"
    return {
        "apiVersion": "emugpu.dev/v1alpha1",
        "kind": "SchedulingExperiment",
        "metadata": {"name": name},
        "spec": {
            "workload": {"inline": workload},
            "policies": ["fifo", "srtf"],
            "costs": {"startSeconds": 2, "finishSeconds": 1, "coalesceSeconds": "0.3"},
            **more,
        },
    }


def status(kubectl: Kubectl, name: str) -> Object:
    found: Object = kubectl.get("schedulingexperiment", name).get("status", {})
    return found


def becomes(kubectl: Kubectl, name: str, phase: str, within_s: float = 120.0) -> Object:
    def seen() -> Object | None:
        now = status(kubectl, name)
        assert now.get("phase") != "Failed" or phase == "Failed", now
        return now if now.get("phase") == phase else None

    found: Object = eventually(f"experiment {name} is {phase}", seen, within_s=within_s, every_s=1.0)
    return found


def observing(kubectl: Kubectl, name: str) -> bool:
    """Whether the experiment has jobs on the cluster now."""
    progress = status(kubectl, name).get("progress", {})
    return bool(progress.get("stage") == "Observing" and progress.get("jobs") == len(LENGTHS_S))


def hold(kubectl: Kubectl, name: str, *, suspend: bool) -> None:
    patch = json.dumps({"spec": {"suspend": suspend}})
    kubectl("patch", "schedulingexperiment", name, "--type", "merge", "-p", patch)


def test_an_experiment_waits_outlives_its_runner_is_held_and_leaves_its_report(
    admin: Kubectl, experiments: Kubectl
) -> None:
    experiments.apply(experiment("first"))
    becomes(experiments, "first", "Running")
    experiments.apply(experiment("second"))
    assert becomes(experiments, "second", "Queued")["doing"] == "waits for its turn, 1 before it"

    eventually("the first is observed", lambda: observing(experiments, "first"), within_s=120)
    runner = f"job-name={status(experiments, 'first')['runner']}"
    admin.within(SYSTEM)("delete", "pods", "-l", runner, "--force", "--grace-period=0")
    eventually("another runner", lambda: status(experiments, "first").get("attempts") == 2, within_s=120)

    eventually("one policy is complete", lambda: status(experiments, "first").get("done") == 1, within_s=240)
    hold(experiments, "first", suspend=True)
    becomes(experiments, "first", "Suspended")
    becomes(experiments, "second", "Running", within_s=NAMESPACES_S)  # its turn: all objects of the first are deleted
    assert len(namespaces(admin)) <= 1

    eventually("the second is observed", lambda: observing(experiments, "second"), within_s=120)
    experiments("delete", "schedulingexperiment", "second", "--timeout=180s", timeout_s=200)
    assert namespaces(admin) == []  # deleted with everything in it

    hold(experiments, "first", suspend=False)
    done = becomes(experiments, "first", "Succeeded", within_s=400)
    check_results(done)
    report = experiments.get("configmap", done["report"]["configMap"])
    assert set(done["report"]["keys"]) == set(report.get("data", {})) | set(report.get("binaryData", {}))
    summary = json.loads(report["data"]["summary.json"])
    assert list(summary["policies"]) == ["fifo", "srtf"]
    assert namespaces(admin) == []

    experiments("delete", "schedulingexperiment", "first", "--timeout=60s")
    eventually("its report goes with it", lambda: not experiments.exists("configmap", report["metadata"]["name"]))


def check_results(done: Object) -> None:
    """Both policies complete with JCTs near the predicted ones. No measurement: starts have the costs of this machine."""
    least = min(done["results"], key=lambda each: float(each["observed"]["meanJCTSeconds"]))
    assert (done["policies"], done["done"], done["best"]) == (2, 2, least["name"])
    assert [(each["name"], each["kind"], each.get("failedJobs", 0)) for each in done["results"]] == [
        ("fifo", "Policy", 0),
        ("srtf", "Policy", 0),
    ]
    for each in done["results"]:
        observed_s, predicted_s = (float(each[kind]["meanJCTSeconds"]) for kind in ("observed", "predicted"))
        assert observed_s == pytest.approx(predicted_s, abs=5), done
        assert float(each["spearman"]) > 0.5


def test_an_experiment_that_can_not_be_says_why(experiments: Kubectl) -> None:
    experiments.apply(experiment("typo", policies=["fifi"]))
    failed = becomes(experiments, "typo", "Failed")
    (condition,) = [c for c in failed["conditions"] if c["type"] == "Failed"]
    assert condition["status"] == "True"
    assert "fifi" in condition["message"]
