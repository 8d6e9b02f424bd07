"""Devices are counted like real ones: allocatable on nodes, used by pods, free when a pod has ended."""

from __future__ import annotations

import pytest

from e2e.cases.conftest import GPUS_PER_NODE
from e2e.cases.kube import RESOURCE, Kubectl, Node, eventually, train_pod


def test_a_node_describes_its_devices(admin: Kubectl, workers: list[Node]) -> None:
    text = admin("describe", "node", workers[0].name)
    for section in ("Capacity:", "Allocatable:"):
        lines = text[text.index(section) :].splitlines()
        line = next(line for line in lines if line.strip().startswith(RESOURCE))
        assert line.split() == [f"{RESOURCE}:", str(GPUS_PER_NODE)]
    labels = admin.get("node", workers[0].name)["metadata"]["labels"]
    assert labels["emugpu.dev/gpu.product"] == "Tesla_V100-PCIE-32GB"
    assert labels["emugpu.dev/gpu.count"] == str(GPUS_PER_NODE)


@pytest.mark.alone  # needs all devices of a node
def test_two_pods_fill_a_node_and_the_third_waits(kubectl: Kubectl, workers: list[Node]) -> None:
    node = {"kubernetes.io/hostname": workers[0].name}
    endless = ("--step-time-s", "0.5", "--memory", "1GiB", "--steps", "100000")
    for name in ("first", "second"):
        kubectl.apply(train_pod(name, *endless, gpus=4, nodeSelector=node))
    for name in ("first", "second"):
        kubectl.wait_phase(name, "Running")
    kubectl.apply(train_pod("third", *endless, gpus=4, nodeSelector=node))

    def waits() -> str | None:
        notes = [e["message"] for e in kubectl.events_of("Pod", "third") if e["reason"] == "FailedScheduling"]
        return next((note for note in notes if f"Insufficient {RESOURCE}" in note), None)

    eventually("the scheduler's usual event", waits)
    assert kubectl.phase("third") == "Pending"
    kubectl("delete", "pod", "first")
    kubectl.wait_phase("third", "Running")
    uuids = [visible_devices(kubectl, pod) for pod in ("second", "third")]
    assert [len(found) for found in uuids] == [4, 4]
    assert not uuids[0] & uuids[1]


def visible_devices(kubectl: Kubectl, pod: str) -> set[str]:
    return set(kubectl.inside(pod, "sh", "-c", "echo $EMUGPU_VISIBLE_DEVICES").strip().split(","))
