"""One device shared by three jobs (Salus, MLSys 2020): each gets a third of the time; a job whose memory doesn't fit is refused.

The example of time slicing runs beside it on another node, as it stands: each change of the pools takes its time.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from e2e.cases.conftest import EXAMPLES, allocatable
from e2e.cases.kube import Kubectl, Node, Object, eventually, train_pod
from e2e.cases.pods.test_training import profiled_step_s

pytestmark = pytest.mark.alone


def test_three_jobs_and_one_too_many(
    kubectl: Kubectl, pools: Callable[[Path], None], admin: Kubectl, workers: list[Node]
) -> None:
    pools(EXAMPLES / "time-slicing/values.yaml")
    for worker in workers:
        eventually(f"4 replicas on {worker.name}", lambda w=worker: allocatable(admin, w.name) == 4)
    taken = start_the_example(kubectl)
    node = {"kubernetes.io/hostname": next(worker.name for worker in workers if worker.name != taken)}
    args = ("--model", "resnet50", "--batch-size", "64", "--steps", "45")
    for number in range(3):
        kubectl.apply(train_pod(f"job{number}", *args, nodeSelector=node))
    for number in range(3):
        kubectl.wait_phase(f"job{number}", "Running")
    kubectl.apply(train_pod("too-big", "--step-time-s", "0.1", "--memory", "29GiB", "--steps", "10", nodeSelector=node))
    kubectl.wait_phase("too-big", "Failed")
    assert "CUDA out of memory" in kubectl.logs("too-big")
    event = eventually("an Event", lambda: [e for e in kubectl.events_of("Pod", "too-big") if "emory" in e["reason"]])
    assert event[0]["type"] == "Warning"
    for number in range(3):
        kubectl.wait_phase(f"job{number}", "Succeeded", within_s=240)
    summaries = [kubectl.summary(f"job{number}") for number in range(3)]
    for summary in summaries:  # the median: the first and last steps share the device with fewer jobs
        assert summary["step_s"]["median"] == pytest.approx(3 * profiled_step_s(), rel=0.02)
    kubectl.wait_jobs(["time-slicing"], within_s=240)
    for pod in kubectl.list("pods", "-l", "job-name=time-slicing"):
        assert "finished: 100 steps" in kubectl.logs(pod["metadata"]["name"])


def start_the_example(kubectl: Kubectl) -> str:
    """Create three pods that share one device; returns their node when all of them run."""
    kubectl("apply", "-f", str(EXAMPLES / "time-slicing/jobs.yaml"))

    def places() -> set[str] | None:
        pods = kubectl.list("pods", "-l", "job-name=time-slicing")
        return {pod["spec"]["nodeName"] for pod in pods} if running(pods) == 3 else None

    (node,) = eventually("the example's three pods run", places)
    return str(node)


def running(pods: list[Object]) -> int:
    return sum(pod["status"]["phase"] == "Running" for pod in pods)
