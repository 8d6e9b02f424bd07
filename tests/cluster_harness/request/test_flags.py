"""Flags become a specification once; each mistake names its flag and what would be right."""

from __future__ import annotations

import pytest

from cluster_harness.request.flags import REAL, plan, with_emulated_resources
from cluster_harness.request.spec import ClusterSpec, PoolSpec, differences
from emulator_runtime.domain.errors import InputError
from emulator_runtime.profiles.catalogue import gpu_spec


def make(**changes: object) -> ClusterSpec:
    return plan("emugpu", **changes)  # type: ignore[arg-type]


def test_no_flags_are_two_nodes_with_eight_gpus() -> None:
    spec = make()
    assert spec.pools == (PoolSpec("default", 2, 8, "NVIDIA-A100-SXM4-80GB"),)
    assert (spec.workers, spec.gpus) == (2, 16)


def test_pools_of_all_kinds_add_up() -> None:
    spec = make(nodes=1, gpus=2, pools=["old=4xV100:2"], node_gpus=["4x1xA100"], cpu_nodes=8)
    assert [(p.name, p.nodes, p.gpus) for p in spec.pools] == [
        ("old", 2, 4),
        ("gpus-1", 4, 1),
        ("default", 1, 2),
        ("cpu", 8, 0),
    ]
    assert (spec.workers, spec.gpus) == (15, 14)
    assert [p.name for p in spec.offering_pools] == ["old", "gpus-1", "default"]


def test_an_alias_becomes_the_canonical_type() -> None:
    (pool,) = make(node_gpus=["1x1xV100"]).pools
    assert pool.gpu_type == gpu_spec("V100", "test").gpu_type != "V100"


def test_cpu_nodes_alone_make_no_gpu_nodes() -> None:
    assert make(cpu_nodes=3).pools == (PoolSpec("cpu", 3, 0, ""),)


def test_a_specification_survives_being_written_down() -> None:
    spec = with_emulated_resources(make(pools=["old=4xV100:2"], cpu_nodes=1), "24", "")
    assert ClusterSpec.from_json(spec.to_json()) == spec


def test_a_specification_from_before_there_were_emulated_amounts() -> None:
    text = '{"name": "dev", "pools": [{"name": "cpu", "nodes": 1, "gpus": 0, "gpu_type": ""}]}'
    assert ClusterSpec.from_json(text).pools == (PoolSpec("cpu", 1, 0, ""),)


def emulated(spec: ClusterSpec) -> dict[str, tuple[str, str]]:
    return {pool.name: (pool.emulated_cpus, pool.emulated_memory) for pool in spec.pools}


def test_a_node_emulates_a_machine_that_suits_its_gpus() -> None:
    spec = with_emulated_resources(make(nodes=2, gpus=8, pools=["old=1xV100:1"], cpu_nodes=2), "", "")
    assert emulated(spec) == {"old": ("8", "64Gi"), "default": ("64", "512Gi"), "cpu": ("", "")}
    assert [pool.name for pool in spec.offering_pools] == ["old", "default"], "CPU nodes keep what they have"


def test_flags_override_what_nodes_emulate() -> None:
    shape = make(nodes=1, gpus=4, cpu_nodes=2)
    assert emulated(with_emulated_resources(shape, "24", "500Gi")) == dict.fromkeys(("default", "cpu"), ("24", "500Gi"))
    assert emulated(with_emulated_resources(shape, "24", "")) == {"default": ("24", "256Gi"), "cpu": ("24", "")}
    assert emulated(with_emulated_resources(shape, REAL, REAL)) == dict.fromkeys(("default", "cpu"), ("", ""))
    assert emulated(with_emulated_resources(shape, REAL, "")) == {"default": ("", "256Gi"), "cpu": ("", "")}


def test_other_emulated_amounts_are_another_shape() -> None:
    one = make(nodes=1, gpus=2, gpu_type="A100")
    (difference,) = differences(one, with_emulated_resources(one, "24", "500Gi"))
    assert difference.endswith(f"asked for 1 node with 2 x {A100} each, each emulates 24 CPUs and 500Gi of memory")


@pytest.mark.parametrize(
    ("cpus", "memory", "message"),
    [
        ("many", "", "--emulated-cpus: 'many' is no quantity"),
        ("0", "", "--emulated-cpus: must be a quantity above 0 that Kubernetes can count, such as 24, or real, not 0"),
        (
            "1e999",
            "",
            "--emulated-cpus: must be a quantity above 0 that Kubernetes can count, such as 24, or real, not 1e999",
        ),
        ("1n", "", "--emulated-cpus: must be a quantity above 0 that"),
        (
            "4",
            "-1Gi",
            "--emulated-memory: must be a quantity above 0 that Kubernetes can count, such as 500Gi, or real, not -1Gi",
        ),
        ("4", "8Ei", "--emulated-memory: must be a quantity above 0 that"),
    ],
)
def test_amounts_that_no_node_can_pretend_to_have(cpus: str, memory: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        with_emulated_resources(make(), cpus, memory)
    assert str(caught.value).startswith(message)


REAL_MACHINE = "with the CPUs and memory of this machine"
V100, A100 = gpu_spec("V100", "test").gpu_type, gpu_spec("A100", "test").gpu_type


def words(**changes: object) -> list[str]:
    before = make(pools=["old=4xV100:2", "new=1xA100:1"], cpu_nodes=2)
    flags: dict[str, object] = {"pools": ["old=4xV100:2", "new=1xA100:1"], "cpu_nodes": 2}
    return differences(before, make(**(flags | changes)))


def test_the_same_shape_in_another_order_or_by_another_name_of_the_type() -> None:
    assert words() == []
    assert words(pools=[f"new=1x{A100}:1", f"old=4x{V100}:2"]) == []


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"pools": ["old=8xV100:2", "new=1xA100:1"]},
            f"pool old has 2 nodes with 4 x {V100} each, {REAL_MACHINE}, asked for 2 nodes with 8 x {V100} each, {REAL_MACHINE}",
        ),
        (
            {"pools": ["old=4xA100:1", "new=1xA100:1"]},
            f"pool old has 2 nodes with 4 x {V100} each, {REAL_MACHINE}, asked for 1 node with 4 x {A100} each, {REAL_MACHINE}",
        ),
        ({"cpu_nodes": 0}, f"pool cpu has 2 nodes without GPUs, {REAL_MACHINE}, asked for no nodes"),
        (
            {"nodes": 1, "gpus": 2, "gpu_type": "V100"},
            f"pool default has no nodes, asked for 1 node with 2 x {V100} each, {REAL_MACHINE}",
        ),
    ],
)
def test_another_shape_is_reported_by_pool(changes: dict[str, object], expected: str) -> None:
    assert words(**changes) == [expected]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ({"pools": ["old=4xV100"]}, "--pool: 'old=4xV100' is not of the form NAME=4xV100:2"),
        ({"pools": ["Old=4xV100:2"]}, "--pool Old=4xV100:2: 'Old' must be lower-case letters"),
        ({"pools": ["a=1xV100:1", "a=2xV100:1"]}, "--pool a=1xV100:1: --pool a=2xV100:1 makes a pool 'a' too"),
        ({"pools": ["cpu=1xV100:1"], "cpu_nodes": 1}, "--pool cpu=1xV100:1: --cpu-nodes makes a pool 'cpu' too"),
        ({"pools": ["default=1xV100:1"], "nodes": 1}, "--pool default=1xV100:1: --nodes makes a pool 'default' too"),
        ({"pools": ["a=0xV100:1"]}, "--pool a=0xV100:1: a node has from 1 to 64 GPUs, not 0"),
        ({"pools": ["a=1xV100:0"]}, "--pool a=1xV100:0: must be from 1 to 64 nodes, not 0"),
        ({"pools": ["a=1xV100:1", "b=1xV1000:1"]}, "--pool b=1xV1000:1: unknown GPU type 'V1000'"),
        ({"node_gpus": ["4xV100"]}, "--node-gpus: '4xV100' is not of the form 4x1xV100"),
        ({"node_gpus": ["4x65xV100"]}, "--node-gpus 4x65xV100: a node has from 1 to 64 GPUs, not 65"),
        ({"node_gpus": ["1x1xV1000"]}, "--node-gpus 1x1xV1000: unknown GPU type 'V1000'"),
        ({"nodes": 2, "gpus": 65}, "--gpus: a node has from 1 to 64 GPUs, not 65"),
        ({"gpus": 0}, "--gpus: a node has from 1 to 64 GPUs, not 0 (see also --cpu-nodes)"),
        ({"nodes": 2, "gpu_type": "H1000"}, "--gpu-type: unknown GPU type 'H1000'; known: NVIDIA-A100"),
        ({"gpu_type": ""}, "--gpu-type: unknown GPU type ''"),
        ({"gpu_type": "A100-MIG-3g.20gb"}, "--gpu-type: A100-MIG-3g.20gb is a MIG instance; name the whole GPU's type"),
        ({"nodes": -1}, "--nodes: must be from 0 to 64 nodes, not -1"),
        ({"nodes": 65}, "--nodes: must be from 0 to 64 nodes, not 65"),
        ({"nodes": 0}, "--nodes: a cluster has from 1 to 64 worker nodes, not 0"),
        ({"cpu_nodes": -1}, "--cpu-nodes: must be from 0 to 64 nodes, not -1"),
        (
            {"pools": ["a=1xV100:64"], "cpu_nodes": 1},
            "--pool, --cpu-nodes: a cluster has from 1 to 64 worker nodes, not 65",
        ),
        ({"gpus": 4, "cpu_nodes": 2}, "--gpus: describes the nodes of --nodes, of which there are none"),
        ({"gpu_type": "V100", "pools": ["a=1xA100:1"]}, "--gpu-type: describes the nodes of --nodes, of which there "),
    ],
)
def test_a_mistake_names_its_flag(flags: dict[str, object], message: str) -> None:
    with pytest.raises(InputError) as caught:
        make(**flags)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize("name", ["", "Emugpu", "1st", "a-", "x" * 31, "a b"])
def test_a_name_that_no_container_can_have(name: str) -> None:
    with pytest.raises(InputError, match="--name"):
        plan(name, nodes=1, gpus=1, gpu_type="V100")
