"""An unhealthy device: allocatable decreases, its job gets an error, and the device is offered again after it has recovered."""

from __future__ import annotations

import json

import pytest

from e2e.cases.conftest import GPUS_PER_NODE, allocatable
from e2e.cases.kube import Kubectl, Node, eventually, train_pod

pytestmark = pytest.mark.alone


def device_index(kubectl: Kubectl, pod: str) -> int:
    return int(kubectl.inside(pod, "ls", "/edev").split()[0])


def set_unhealthy(admin: Kubectl, *devices: dict[str, object]) -> None:
    admin("patch", "emugpupool", "default", "--type", "merge", "-p", json.dumps({"spec": {"unhealthy": list(devices)}}))


def test_an_unhealthy_device(kubectl: Kubectl, admin: Kubectl, workers: list[Node]) -> None:
    node = workers[2].name
    args = ("--step-time-s", "0.1", "--memory", "1GiB", "--steps", "100000")
    kubectl.apply(train_pod("victim", *args, nodeSelector={"kubernetes.io/hostname": node}))
    kubectl.wait_phase("victim", "Running")
    index = device_index(kubectl, "victim")
    try:
        set_unhealthy(admin, {"node": node, "index": index, "reason": "fell off the bus"})
        eventually("allocatable falls", lambda: allocatable(admin, node) == GPUS_PER_NODE - 1, within_s=20)
        kubectl.wait_phase("victim", "Failed", within_s=20)
        assert "fell off the bus" in kubectl.logs("victim")
        assert admin.get("node", node)["status"]["capacity"]["emugpu.dev/emuGPU"] == str(GPUS_PER_NODE)
    finally:
        set_unhealthy(admin)
    eventually("recovery returns it", lambda: allocatable(admin, node) == GPUS_PER_NODE, within_s=20)
