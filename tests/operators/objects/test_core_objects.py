"""Nodes, Pods and Jobs as the API server sends them, also where others have written odd things into them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.objects.job import BatchJob, Service
from operators.objects.node import Node
from operators.objects.pod import Demand, Pod, demand_of


def test_a_node_without_known_capacity_offers_none() -> None:
    node = Node.read({"metadata": {"name": "w1"}, "status": {"capacity": {"cpu": "many"}}})
    assert (node.cpu_milli, node.memory_bytes) == (0, 0)


LABELLED = {"labels": {"emugpu.dev/job": "j"}}


def test_which_pods_were_turned_away() -> None:
    def rejected(reason: str, phase: str = "Failed", **status: Any) -> bool:
        return Pod.read({"metadata": LABELLED, "status": {"phase": phase, "reason": reason, **status}}).rejected

    assert rejected("UnexpectedAdmissionError") and rejected("OutOfcpu") and rejected("OutOfemugpu.dev/emuGPU")
    assert not rejected("Evicted") and not rejected("") and not rejected("UnexpectedAdmissionError", "Running")
    disrupted = [{"type": "DisruptionTarget", "status": "True"}]
    assert not rejected("UnexpectedAdmissionError", conditions=disrupted)


def test_odd_objects_are_read_as_empty() -> None:
    job = BatchJob.read(
        {"metadata": {"ownerReferences": "x"}, "spec": None, "status": {"conditions": [1], "active": "2"}}
    )
    assert (job.owner, job.active, job.finished, job.run) == ("", 0, False, "")
    failed = BatchJob.read({"metadata": {}, "status": {"conditions": [{"type": "Failed", "status": "True"}]}})
    assert (failed.finished, failed.failure_reason) == (True, "Failed")
    states = [{"state": {"running": {"startedAt": "2"}}}, {"state": {"terminated": {"startedAt": "1"}}}]
    assert Pod.read({"metadata": LABELLED, "status": {"containerStatuses": states}}).started == "1"


def asking(**limits: Any) -> dict[str, Any]:
    return {"resources": {"limits": {f"emugpu.dev/{name}": amount for name, amount in limits.items()}}}


def test_a_host_slot_is_no_device() -> None:
    limits = {"emugpu.dev/emuGPU": "0", "emugpu.dev/host": "1"}
    assert demand_of({"containers": [{"name": "a", "resources": {"limits": limits}}]}) == Demand(("a",), 0)
    assert demand_of({"containers": [{"name": "a", "resources": {"limits": {"cpu": "1"}}}]}) == Demand((), 0)
    two = [{"name": "a", **asking(emuGPU="2")}, {"name": "b", **asking(emuGPU=1)}, {"name": "log"}]
    assert demand_of({"containers": two}) == Demand(("a", "b"), 3)


@pytest.mark.parametrize(
    ("beside", "before", "devices"),
    [
        ([], [], None),
        ([asking()], [asking(emuGPU="0")], None),
        ([asking(emuGPU="2"), asking(emuGPU=1), {}], [], 3),
        ([asking(emuGPU="2")], [asking(emuGPU="3"), asking(emuGPU="1")], 3),
        ([asking(emuGPU="2", host="1")], [asking(emuGPU="1")], 2),
        ([asking(**{"emuGPU.shared": "1"})], [], 1),
        ([asking(host="1")], [], 0),
        ([asking(emuGPU="-1")], [], None),
    ],
)
def test_how_many_devices_a_pod_holds(beside: list[Any], before: list[Any], devices: int | None) -> None:
    pod = Pod.read({"spec": {"containers": beside, "initContainers": before}})
    assert (pod.devices, pod.uses_emugpu) == (devices or 0, devices is not None)


def test_resources_of_other_domains_are_counted_too() -> None:
    limits = {"nvidia.com/gpu": "2", "cpu": "500m", "memory": "1Gi"}
    pod = Pod.read({"spec": {"containers": [{"resources": {"limits": limits}}]}})
    assert (pod.resources, pod.devices, pod.uses_emugpu) == ({"nvidia.com/gpu": 2}, 0, False)


MANAGER: dict[str, Any] = {
    "metadata": {
        "name": "emugpu-node-x",
        "namespace": "emugpu-system",
        "labels": {"app.kubernetes.io/part-of": "emugpu", "app.kubernetes.io/component": "node"},
        "ownerReferences": [{"kind": "DaemonSet", "uid": "d", "controller": True}],
    },
    "spec": {
        "nodeName": "w1",
        "serviceAccountName": "emugpu-node",
        "containers": [{"name": "manager", "ports": [{"name": "manager", "containerPort": 9400}]}],
    },
}


def test_what_a_managers_pod_looks_like() -> None:
    manager = Pod.read(MANAGER)
    assert manager.might_be_manager
    assert (manager.node, manager.ports) == ("w1", {"manager": 9400})


@pytest.mark.parametrize(
    ("part", "members"),
    [
        ("metadata", {"labels": {"app.kubernetes.io/name": "emugpu", "app.kubernetes.io/component": "node"}}),
        ("metadata", {"ownerReferences": []}),
        ("metadata", {"ownerReferences": [{"kind": "ReplicaSet", "uid": "d", "controller": True}]}),
        ("spec", {"serviceAccountName": "default"}),
        ("spec", {"nodeName": ""}),
        ("spec", {"containers": [{"name": "manager"}]}),
    ],
)
def test_other_pods_are_no_managers(part: str, members: dict[str, Any]) -> None:
    assert not Pod.read({**MANAGER, part: {**MANAGER[part], **members}}).might_be_manager


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
MEMBERS = (
    *(
        "name",
        "uid",
        "labels",
        "annotations",
        "ownerReferences",
        "managedFields",
        "taints",
        "containers",
        "initContainers",
    ),
    *("resources", "limits", "ports", "template", "conditions", "containerStatuses", "state", "running", "allocatable"),
)
NAMED = st.recursive(
    JSON,
    lambda inner: st.dictionaries(st.sampled_from(MEMBERS), inner, max_size=4) | st.lists(inner, max_size=2),
    max_leaves=12,
)


@given(st.fixed_dictionaries({"metadata": NAMED, "spec": NAMED, "status": NAMED}))
def test_whatever_is_in_an_object_it_can_be_read(document: dict[str, Any]) -> None:
    for kind in (Node, Pod, BatchJob, Service):
        kind.read(document)
