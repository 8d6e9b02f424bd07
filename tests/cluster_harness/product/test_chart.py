"""The chart's values, the assignment of nodes to pools, and messages for numbers that don't fit."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from cluster_harness.nodes.kubectl import Kubectl, Node
from cluster_harness.product.chart import (
    NAMESPACE,
    POOL_LABEL,
    Chart,
    assign_pools,
    label_nodes,
    namespace,
    unlabel_nodes,
    values,
)
from cluster_harness.product.readiness import gpus_of, missing_gpus
from cluster_harness.request.flags import plan, with_emulated_resources
from cluster_harness.request.spec import ClusterSpec, PoolSpec
from cluster_harness.shell import Done
from emulator_runtime.domain.errors import ClusterError
from emulator_runtime.timing.host import wall_ns
from operators.objects.pool import parse_spec

SPEC = ClusterSpec("dev", (PoolSpec("old", 2, 4, "V100"), PoolSpec("new", 1, 8, "A100"), PoolSpec("cpu", 1, 0, "")))


def node(name: str, pool: str = "", gpus: int = 0, *, control_plane: bool = False) -> Node:
    labels = ({POOL_LABEL: pool} if pool else {}) | (
        {"node-role.kubernetes.io/control-plane": ""} if control_plane else {}
    )
    allocatable = {"emugpu.dev/emuGPU": gpus} if gpus else {}
    return Node(name, "", labels, control_plane=control_plane, allocatable=allocatable)


NODES = [node("dev-control-plane", control_plane=True), *(node(f"dev-worker{n}") for n in ("", "2", "3", "10"))]


def test_each_gpu_pool_selects_by_our_label() -> None:
    found = values(SPEC, {"emugpu": "lab.example:5000/emugpu:1", "emugpu-redis": "emugpu-redis:2"})
    assert found["pools"] == [
        {"name": "old", "nodeSelector": {"matchLabels": {POOL_LABEL: "old"}}, "gpus": [{"type": "V100", "count": 4}]},
        {"name": "new", "nodeSelector": {"matchLabels": {POOL_LABEL: "new"}}, "gpus": [{"type": "A100", "count": 8}]},
    ]
    assert found["image"] == {"repository": "lab.example:5000/emugpu", "tag": "1", "pullPolicy": "IfNotPresent"}
    assert found["redis"]["image"]["repository"] == "emugpu-redis"
    assert set(values(SPEC, {})) == {"pools"}


def test_every_pool_gets_the_emulated_amounts_and_nodes_without_gpus_become_a_pool() -> None:
    spec = with_emulated_resources(plan("dev", nodes=1, gpus=4, gpu_type="V100", cpu_nodes=2), "24", "500Gi")
    emulated = {"cpu": "24", "memory": "500Gi"}
    default, cpu = values(spec, {})["pools"]
    assert (default["emulated"], default["gpus"][0]["count"]) == (emulated, 4)
    assert cpu == {
        "name": "cpu",
        "nodeSelector": {"matchLabels": {POOL_LABEL: "cpu"}},
        "gpus": [],
        "emulated": emulated,
    }
    for pool in (default, cpu):
        parse_spec(pool["name"], {name: value for name, value in pool.items() if name != "name"})
    half = with_emulated_resources(plan("dev", cpu_nodes=1), "500m", "")
    assert values(half, {})["pools"][0]["emulated"] == {"cpu": "500m"}


def test_values_are_values_of_the_chart() -> None:
    defaults = yaml.safe_load((Path(__file__).parents[3] / "charts/emugpu/values.yaml").read_text(encoding="utf-8"))
    given = values(SPEC, {"emugpu": "emugpu:1", "emugpu-redis": "emugpu-redis:2"})
    assert set(given) <= set(defaults)
    assert set(given["image"]) <= set(defaults["image"])
    assert set(given["redis"]["image"]) <= set(defaults["redis"]["image"])


def test_pools_are_filled_in_order_of_the_nodes() -> None:
    assert assign_pools(SPEC, NODES) == {
        "dev-worker": "old",
        "dev-worker2": "old",
        "dev-worker3": "new",
        "dev-worker10": "cpu",
    }


def test_nodes_keep_the_pool_that_they_have() -> None:
    nodes = [node("a"), node("b", "new"), node("c", "cpu"), node("d", "gone")]
    assert assign_pools(SPEC, nodes) == {"a": "old", "b": "new", "c": "cpu", "d": "old"}


def test_too_few_nodes_are_counted_without_the_control_plane() -> None:
    with pytest.raises(ClusterError, match="want 4 nodes, the cluster has 3"):
        assign_pools(SPEC, NODES[:4])


def pools_of(machine) -> dict[str, str]:  # type: ignore[no-untyped-def]
    return {name: node.labels.get(POOL_LABEL, "") for name, node in machine.nodes.items()}


def fill(machine, make_node, pools: dict[str, str]) -> None:  # type: ignore[no-untyped-def]
    machine.add_nodes(*(make_node(name, {POOL_LABEL: pool} if pool else {}) for name, pool in pools.items()))


def test_only_nodes_of_another_pool_are_labelled(machine, kubectl, make_node) -> None:  # type: ignore[no-untyped-def]
    right = {"a": "old", "b": "old", "c": "new", "d": "cpu"}
    fill(machine, make_node, right)
    label_nodes(kubectl, SPEC)
    assert machine.operations["kubectl label"] == 0
    fill(machine, make_node, right | {"a": "", "b": "", "e": "gone"})
    label_nodes(kubectl, SPEC)
    assert pools_of(machine) == right | {"e": ""}
    assert machine.operations["kubectl label"] == 2, "one change for each label"


def test_our_labels_are_removed(machine, kubectl, make_node) -> None:  # type: ignore[no-untyped-def]
    fill(machine, make_node, {"a": "old", "b": ""})
    for _ in range(2):
        unlabel_nodes(kubectl)
    assert pools_of(machine) == {"a": "", "b": ""}
    assert machine.operations["kubectl label"] == 1


@pytest.fixture
def chart(tmp_path: Path, shell) -> Chart:  # type: ignore[no-untyped-def]
    (tmp_path / "Chart.yaml").write_text("")
    return Chart(shell, Path("helm"), Kubectl(shell, Path("kubectl"), Path("k"), "lab"), tmp_path)


def test_the_release_has_our_values_in_a_namespace_of_ours(chart: Chart, machine) -> None:  # type: ignore[no-untyped-def]
    uid = chart.make_namespace()
    assert machine.namespaces[NAMESPACE]["uid"] == uid != ""
    assert machine.namespaces[NAMESPACE]["labels"]["pod-security.kubernetes.io/enforce"] == "privileged"
    assert not chart.is_installed()
    chart.install({"pools": []}, ("--set", "a=b"), wait=True)
    release = machine.releases["emugpu"]
    assert (release.values, release.settings, release.waited) == ({"pools": []}, ["a=b"], True)
    assert chart.is_installed()
    chart.install({"pools": []}, wait=False)
    assert not machine.releases["emugpu"].waited
    assert machine.contexts == {"lab"}


def record(age_s: float) -> dict[str, Any]:
    created = datetime.fromtimestamp(wall_ns() / 1e9 - age_s, UTC)
    return {"metadata": {"name": f"v{age_s}", "creationTimestamp": created.strftime("%Y-%m-%dT%H:%M:%SZ")}}


def test_an_interrupted_operation_of_helm_is_no_obstacle(chart: Chart, machine) -> None:  # type: ignore[no-untyped-def]
    machine.helm_records = [record(400), record(100_000)]
    chart.install({"pools": []}, wait=False)
    assert chart.is_installed() and machine.helm_records == []


def test_an_operation_of_helm_that_may_be_going_on_is_waited_for(chart: Chart, machine) -> None:  # type: ignore[no-untyped-def]
    machine.helm_records = [record(100)]
    with pytest.raises(ClusterError, match=r"began 10\d s ago; wait .* repeat this command in (19|20)\d s"):
        chart.install({"pools": []}, wait=False)
    assert machine.helm_records and machine.releases == {}


def test_another_failure_of_helm_is_passed_on(chart: Chart, machine) -> None:  # type: ignore[no-untyped-def]
    machine.failures["helm upgrade"] = Done(1, "", "Error: no space")
    with pytest.raises(ClusterError, match="no space"):
        chart.install({"pools": []}, wait=False)


def test_an_existing_namespace_gets_the_labels_and_is_not_ours(chart: Chart, machine) -> None:  # type: ignore[no-untyped-def]
    machine.namespaces[NAMESPACE] = {"uid": "somebody's", "labels": {}}
    assert chart.make_namespace() == ""
    assert machine.namespaces[NAMESPACE] == {"uid": "somebody's", "labels": namespace()["metadata"]["labels"]}


@pytest.mark.parametrize(
    ("existing", "created", "stays", "gone"),
    [
        ("u1", "u1", False, True),
        ("u1", "", True, False),
        ("u2", "u1", True, False),
        ("", "u1", False, True),
        ("", "", False, True),
    ],
)
def test_only_the_namespace_that_we_created_is_deleted(  # type: ignore[no-untyped-def]
    chart: Chart, machine, existing: str, created: str, *, stays: bool, gone: bool
) -> None:
    chart.install({"pools": []}, wait=False)
    if existing:
        machine.namespaces[NAMESPACE] = {"uid": existing, "labels": {}}
    assert chart.uninstall(created) is gone
    assert machine.releases == {}
    assert (NAMESPACE in machine.namespaces) is stays


def test_no_chart_says_where_one_is_expected(tmp_path: Path, shell, kubectl, machine) -> None:  # type: ignore[no-untyped-def]
    chart = Chart(shell, Path("helm"), kubectl, tmp_path)
    for act in (chart.make_namespace, lambda: chart.install({}, wait=False)):
        with pytest.raises(ClusterError, match=f"{tmp_path}: has no chart"):
            act()
    assert machine.namespaces == machine.releases == {}


def test_gpus_that_are_missing_are_named() -> None:
    others = [node("c", "cpu"), node("d")]
    assert missing_gpus(SPEC, [node("a", "old", 4), node("b", "old", 5), node("e", "new", 8), *others]) is None
    assert missing_gpus(SPEC, [node("a", "old", 3), node("b", "new"), node("c", "old", 4)]) == (
        "a has 3 of 4 GPUs, b has 0 of 8 GPUs"
    )
    assert missing_gpus(SPEC, [node("a", "old", 4), *others]) == "1 of 3 nodes have a pool's label"
    assert str(missing_gpus(SPEC, [node(f"n{i}", "old") for i in range(5)])).endswith("and 2 more")


def test_nodes_of_a_pool_without_gpus_are_waited_for_until_they_offer_places() -> None:
    spec = with_emulated_resources(plan("dev", cpu_nodes=2), "24", "")
    nodes = [node("a", "cpu"), node("b", "cpu")]
    nodes[0].allocatable["emugpu.dev/host"] = 110
    assert missing_gpus(spec, nodes) == "b doesn't offer emugpu.dev/host"
    nodes[1].allocatable["emugpu.dev/host"] = 110
    assert missing_gpus(spec, nodes) is None
    assert gpus_of(nodes[1]) == {}


def test_emulated_cpus_and_memory_are_no_devices() -> None:
    labelled = node("a", "old", 4)
    labelled.allocatable.update({"emugpu.dev/cpu": 64, "emugpu.dev/memory": 1, "emugpu.dev/b.shared": 2})
    assert gpus_of(labelled) == {"emugpu.dev/b.shared": 2, "emugpu.dev/emuGPU": 4}
