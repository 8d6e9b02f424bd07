"""Values for the chart, which node belongs to which pool, and what is said when the numbers don't fit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from cluster_harness.kubectl import CONTROL_PLANE_LABEL, Kubectl, Node
from cluster_harness.product.chart import NAMESPACE, POOL_LABEL, Chart, assign_pools, label_nodes, unlabel_nodes, values
from cluster_harness.product.readiness import gpus_of, missing_gpus
from cluster_harness.request.flags import plan, with_emulated_resources
from cluster_harness.request.spec import ClusterSpec, PoolSpec
from emulator_runtime.domain.errors import ClusterError
from operators.objects.pool import parse_spec

SPEC = ClusterSpec("dev", (PoolSpec("old", 2, 4, "V100"), PoolSpec("new", 1, 8, "A100"), PoolSpec("cpu", 1, 0, "")))


def node(name: str, pool: str = "", gpus: int = 0, *, control_plane: bool = False) -> Node:
    labels = ({POOL_LABEL: pool} if pool else {}) | ({CONTROL_PLANE_LABEL: ""} if control_plane else {})
    return Node(name, "", "", True, control_plane, labels, {"emugpu.dev/emuGPU": str(gpus)} if gpus else {})


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


def kubectl(shell, nodes: list[Node]) -> Kubectl:  # type: ignore[no-untyped-def]
    items = [{"metadata": {"name": n.name, "labels": n.labels}} for n in nodes]
    shell.answers["get nodes"] = json.dumps({"items": items})
    return Kubectl(shell, Path("kubectl"), Path("k"))


def test_only_what_differs_is_labelled(make_shell) -> None:  # type: ignore[no-untyped-def]
    shell = make_shell()
    label_nodes(
        kubectl(shell, [node("a", "old"), node("b"), node("c", "new"), node("d", "cpu"), node("e", "old")]), SPEC
    )
    assert shell.count("label") == 0
    label_nodes(kubectl(shell, [node("a"), node("b"), node("c", "new"), node("d", "cpu"), node("e", "gone")]), SPEC)
    labelled = [line for line in shell.ran if " label " in line]
    assert any(line.endswith(f"a b {POOL_LABEL}=old") for line in labelled)
    assert any(line.endswith(f"e {POOL_LABEL}-") for line in labelled)
    assert len(labelled) == 2


def test_labels_go_with_us(make_shell) -> None:  # type: ignore[no-untyped-def]
    shell = make_shell()
    unlabel_nodes(kubectl(shell, [node("a", "old"), node("b")]))
    assert shell.ran[-1].endswith(f"label nodes a {POOL_LABEL}-")
    unlabel_nodes(kubectl(shell, [node("b")]))
    assert shell.count(" label ") == 1


def test_install_makes_the_namespace_first(tmp_path: Path, make_shell) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "Chart.yaml").write_text("")
    shell = make_shell()
    chart = Chart(shell, Path("helm"), Kubectl(shell, Path("kubectl"), Path("k"), "lab"), tmp_path)
    shell.answers["create"] = "uid-1"
    assert chart.make_namespace() == "uid-1"
    chart.install({"pools": []}, ("--set", "a=b"), wait=True)
    _asked, first, second = shell.ran
    assert (
        yaml.safe_load(shell.inputs[first])["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "privileged"
    )
    assert second.startswith("helm upgrade --install emugpu")
    assert "--wait" in second and "--set a=b" in second and f"--namespace {NAMESPACE}" in second
    assert "--kube-context lab" in second and "--context lab" in first
    chart.install({}, wait=False)
    assert "--wait" not in shell.ran[-1]


@pytest.fixture
def chart_of(tmp_path: Path):  # type: ignore[no-untyped-def]
    (tmp_path / "Chart.yaml").write_text("")
    return lambda shell: Chart(shell, Path("helm"), Kubectl(shell, Path("kubectl"), Path("k")), tmp_path)


def test_a_namespace_that_is_there_gets_the_labels_and_is_not_ours(chart_of, make_shell) -> None:  # type: ignore[no-untyped-def]
    shell = make_shell({"get namespace": "uid-of-somebody"})
    assert chart_of(shell).make_namespace() == ""
    assert "privileged" in shell.inputs[shell.ran[-1]]
    assert shell.count(" create ") == 0


@pytest.mark.parametrize(("listed", "there"), [("emugpu\n", True), ("", False)])
def test_whether_a_release_is_there(chart_of, make_shell, listed: str, *, there: bool) -> None:  # type: ignore[no-untyped-def]
    shell = make_shell({"helm list": listed})
    assert chart_of(shell).is_installed() is there
    assert f"--namespace {NAMESPACE}" in shell.ran[-1] and "--filter ^emugpu$" in shell.ran[-1]


@pytest.mark.parametrize(
    ("there", "made", "deleted", "gone"),
    [("u1", "u1", 1, True), ("u1", "", 0, False), ("u2", "u1", 0, False), ("", "u1", 0, True), ("", "", 0, True)],
)
def test_only_the_namespace_that_we_made_is_deleted(  # type: ignore[no-untyped-def]
    chart_of, make_shell, there: str, made: str, deleted: int, gone: bool
) -> None:
    shell = make_shell({"get namespace": there})
    assert chart_of(shell).uninstall(made) is gone
    assert shell.count("helm uninstall emugpu") == 1
    assert shell.count("delete namespace") == deleted


def test_no_chart_says_where_one_is_expected(tmp_path: Path, make_shell) -> None:  # type: ignore[no-untyped-def]
    chart = Chart(make_shell(), Path("helm"), Kubectl(make_shell(), Path("kubectl"), Path("k")), tmp_path)
    for act in (chart.make_namespace, lambda: chart.install({}, wait=False)):
        with pytest.raises(ClusterError, match=f"{tmp_path}: has no chart"):
            act()


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
    nodes[0].allocatable["emugpu.dev/host"] = "110"
    assert missing_gpus(spec, nodes) == "b doesn't offer emugpu.dev/host"
    nodes[1].allocatable["emugpu.dev/host"] = "110"
    assert missing_gpus(spec, nodes) is None
    assert gpus_of(nodes[1]) == {}


def test_emulated_cpus_and_memory_are_no_devices() -> None:
    labelled = node("a", "old", 4)
    labelled.allocatable.update(
        {"emugpu.dev/cpu": "64", "emugpu.dev/memory": "1", "cpu": "2", "emugpu.dev/b.shared": "2"}
    )
    assert gpus_of(labelled) == {"emugpu.dev/b.shared": 2, "emugpu.dev/emuGPU": 4}
