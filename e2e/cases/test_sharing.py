"""One device shared by three jobs (Salus, MLSys 2020): a third each, and memory for all or a refusal."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from e2e.cases.conftest import EXAMPLES, allocatable
from e2e.cases.kube import Kubectl, Node, eventually, train_pod
from e2e.cases.test_training import profiled_step_s

pytestmark = pytest.mark.alone


def test_three_jobs_and_one_too_many(
    kubectl: Kubectl, pools: Callable[[Path], None], admin: Kubectl, workers: list[Node]
) -> None:
    pools(EXAMPLES / "time-slicing/values.yaml")
    node = {"kubernetes.io/hostname": workers[0].name}
    eventually("4 replicas", lambda: allocatable(admin, workers[0].name) == 4)
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
    for summary in summaries:  # the median, because the first and the last steps have fewer neighbours
        assert summary["step_s"]["median"] == pytest.approx(3 * profiled_step_s(), rel=0.02)
