"""What status shows: devices in use, programs that aren't ready, and whether all is well."""

from __future__ import annotations

from collections.abc import Callable

import pytest

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


@pytest.fixture
def ask(machine, kubectl, make_node) -> Callable[..., ClusterReport]:  # type: ignore[no-untyped-def]
    def report_of(pods: list[dict[str, object]], gpus: int = 8, *, ready: bool = True) -> ClusterReport:
        allocatable = {"emugpu.dev/emuGPU": str(gpus)}
        machine.add_nodes(make_node("n1", {POOL_LABEL: "default"}, ready, allocatable=allocatable))
        machine.pods = pods
        return report(STATE, kubectl)

    return report_of


def test_devices_of_pods_that_hold_them() -> None:
    pods = [pod("Running", 4), pod("Pending", 2), pod("Succeeded", 1), pod("Failed", 1), pod("Pending", 8, node="")]
    assert devices_in_use(pods) == {"n1": {"emugpu.dev/emuGPU": 6}}
    placed = pod("Running", 1)
    placed["spec"]["containers"][0]["resources"]["limits"] |= {"emugpu.dev/host": "1"}  # type: ignore[index]
    assert devices_in_use([placed]) == {"n1": {"emugpu.dev/emuGPU": 1}}


def test_all_is_well(ask: Callable[..., ClusterReport]) -> None:
    found = ask([pod("Running", 4), pod("Running", namespace=NAMESPACE), pod("Succeeded", namespace=NAMESPACE)])
    assert found.healthy
    (node,) = found.nodes
    assert (node.pool, node.gpus, node.used) == ("default", {"emugpu.dev/emuGPU": 8}, {"emugpu.dev/emuGPU": 4})
    assert found.programs == {"Running-0": (2, 2)}


def test_each_thing_that_is_missing_counts(ask: Callable[..., ClusterReport]) -> None:
    assert not ask([], ready=False).healthy
    short = ask([], gpus=7)
    assert (short.healthy, short.missing) == (False, "n1 has 7 of 8 GPUs")
    unready = ask([pod("Running", namespace=NAMESPACE, ready=False)])
    assert (unready.healthy, unready.programs) == (False, {"Running-0": (1, 2)})
