"""What status shows: devices in use, programs that aren't ready, and whether all is well."""

from __future__ import annotations

import json
from pathlib import Path

from cluster_harness.kubectl import Kubectl
from cluster_harness.product.chart import NAMESPACE, POOL_LABEL
from cluster_harness.product.status import ClusterReport, devices_in_use, report
from cluster_harness.request.spec import ClusterSpec, PoolSpec
from cluster_harness.state import KIND, ClusterState

STATE = ClusterState(ClusterSpec("dev", (PoolSpec("default", 1, 8, "V100"),)), KIND, kubeconfig="/k", complete=True)


def pod(
    phase: str, gpus: int = 0, *, node: str = "n1", namespace: str = "default", ready: bool = True
) -> dict[str, object]:
    limits = {"emugpu.dev/emuGPU": str(gpus), "cpu": "1"} if gpus else {}
    spec = {"containers": [{"resources": {"limits": limits}}, {}]} | ({"nodeName": node} if node else {})
    status = {"phase": phase, "containerStatuses": [{"ready": True}, {"ready": ready}]}
    return {"metadata": {"name": f"{phase}-{gpus}", "namespace": namespace}, "spec": spec, "status": status}


def ask(make_shell, pods: list[dict[str, object]], gpus: int = 8, *, ready: bool = True) -> ClusterReport:  # type: ignore[no-untyped-def]
    node = {
        "metadata": {"name": "n1", "labels": {POOL_LABEL: "default"}},
        "status": {
            "conditions": [{"type": "Ready", "status": "True" if ready else "Unknown"}],
            "allocatable": {"emugpu.dev/emuGPU": str(gpus)},
        },
    }
    shell = make_shell({"get nodes": json.dumps({"items": [node]}), "get pods": json.dumps({"items": pods})})
    return report(STATE, Kubectl(shell, Path("kubectl"), Path("k")))


def test_devices_of_pods_that_hold_them() -> None:
    pods = [pod("Running", 4), pod("Pending", 2), pod("Succeeded", 1), pod("Failed", 1), pod("Pending", 8, node="")]
    assert devices_in_use(pods) == {"n1": {"emugpu.dev/emuGPU": 6}}
    placed = pod("Running", 1)
    placed["spec"]["containers"][0]["resources"]["limits"] |= {"emugpu.dev/host": "1"}  # type: ignore[index]
    assert devices_in_use([placed]) == {"n1": {"emugpu.dev/emuGPU": 1}}


def test_all_is_well(make_shell) -> None:  # type: ignore[no-untyped-def]
    found = ask(
        make_shell, [pod("Running", 4), pod("Running", namespace=NAMESPACE), pod("Succeeded", namespace=NAMESPACE)]
    )
    assert found.healthy
    (node,) = found.nodes
    assert (node.pool, node.gpus, node.used) == ("default", {"emugpu.dev/emuGPU": 8}, {"emugpu.dev/emuGPU": 4})
    assert found.programs == {"Running-0": (2, 2)}


def test_each_thing_that_is_missing_counts(make_shell) -> None:  # type: ignore[no-untyped-def]
    assert not ask(make_shell, [], ready=False).healthy
    short = ask(make_shell, [], gpus=7)
    assert (short.healthy, short.missing) == (False, "n1 has 7 of 8 GPUs")
    unready = ask(make_shell, [pod("Running", namespace=NAMESPACE, ready=False)])
    assert (unready.healthy, unready.programs) == (False, {"Running-0": (1, 2)})
