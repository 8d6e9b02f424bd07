"""Nodes that are drained, deleted and registered again, or rebooted: Jobs resume and finish, devices keep their UUIDs."""

from __future__ import annotations

import json

import pytest

from e2e.cases.conftest import GPUS_PER_NODE, allocatable
from e2e.cases.kube import Kubectl, Node, eventually, train_job
from e2e.cases.ledger import Ledger, check_every_step_once

pytestmark = pytest.mark.alone

STEPS = 160


def uuids_of(node: Node) -> list[str]:
    inventory = json.loads(node.sh("cat /var/lib/emugpu/inventory.json"))
    return [(r["name"], d["index"]) for r in inventory["resources"] for d in r["devices"]]


def start_on(kubectl: Kubectl, node: Node) -> str:
    """Start a job on this node that may continue on others; returns its UID."""
    prefer = {
        "nodeAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {
                    "weight": 100,
                    "preference": {
                        "matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node.name]}]
                    },
                }
            ]
        }
    }
    args = ("--step-time-s", "0.1", "--memory", "1GiB", "--steps", str(STEPS))
    kubectl.create(train_job("moving", *args, affinity=prefer))
    uid: str = kubectl.get("job", "moving")["metadata"]["uid"]
    return uid


def wait_progress(ledger: Ledger, uid: str, steps: int) -> None:
    eventually(f"{steps} steps", lambda: max((e.steps_done for e in ledger.of(uid)), default=0) >= steps, within_s=60)


def finish(kubectl: Kubectl, ledger: Ledger, uid: str, within_s: float = 240) -> None:
    kubectl.wait_jobs(["moving"], within_s=within_s)
    eventually("the end is reported", lambda: any(e.kind == "finished" for e in ledger.of(uid)))
    check_every_step_once(ledger.of(uid), STEPS)


def test_a_drained_node(kubectl: Kubectl, admin: Kubectl, workers: list[Node], ledger: Ledger) -> None:
    uid = start_on(kubectl, workers[1])
    wait_progress(ledger, uid, 30)
    try:
        admin("drain", workers[1].name, "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=60s")
        finish(kubectl, ledger, uid)
    finally:
        admin("uncordon", workers[1].name)
    nodes = {e.node for e in ledger.of(uid)}
    assert len(nodes) == 2, f"the job did not move: {nodes}"


@pytest.mark.long
def test_a_deleted_node_comes_back(kubectl: Kubectl, admin: Kubectl, workers: list[Node], ledger: Ledger) -> None:
    before = uuids_of(workers[1])
    uid = start_on(kubectl, workers[1])
    wait_progress(ledger, uid, 30)
    admin("delete", "node", workers[1].name)
    workers[1].sh("systemctl restart kubelet")  # it registers the node again
    eventually("the node is back", lambda: admin.exists("node", workers[1].name), within_s=120)
    finish(kubectl, ledger, uid)
    eventually("its devices too", lambda: allocatable(admin, workers[1].name) == GPUS_PER_NODE, within_s=120)
    assert uuids_of(workers[1]) == before


@pytest.mark.long
def test_a_rebooted_node(kubectl: Kubectl, admin: Kubectl, workers: list[Node], ledger: Ledger) -> None:
    before = uuids_of(workers[1])
    uid = start_on(kubectl, workers[1])
    wait_progress(ledger, uid, 30)
    workers[1].restart()
    finish(kubectl, ledger, uid, within_s=480)
    eventually("its devices are back", lambda: allocatable(admin, workers[1].name) == GPUS_PER_NODE, within_s=180)
    assert uuids_of(workers[1]) == before
