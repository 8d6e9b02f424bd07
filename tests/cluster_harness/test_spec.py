"""Flags become a specification once; each mistake names its flag and what would be right."""

from __future__ import annotations

import pytest

from cluster_harness.spec import ClusterSpec, PoolSpec, plan
from emulator_runtime.domain.errors import InputError, UnknownNameError
from emulator_runtime.profiles.catalogue import gpu_spec


def make(**changes: object) -> ClusterSpec:
    flags = {"nodes": None, "gpus": 8, "gpu_type": "A100-SXM4-80GB"} | changes
    return plan("emugpu", **flags)  # type: ignore[arg-type]


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
    assert [p.name for p in spec.gpu_pools] == ["old", "gpus-1", "default"]


def test_an_alias_becomes_the_canonical_type() -> None:
    (pool,) = make(node_gpus=["1x1xV100"]).pools
    assert pool.gpu_type == gpu_spec("V100", "test").gpu_type != "V100"


def test_cpu_nodes_alone_make_no_gpu_nodes() -> None:
    assert make(cpu_nodes=3).pools == (PoolSpec("cpu", 3, 0, ""),)


def test_a_specification_survives_being_written_down() -> None:
    spec = make(pools=["old=4xV100:2"], cpu_nodes=1)
    assert ClusterSpec.from_json(spec.to_json()) == spec


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        ({"pools": ["old=4xV100"]}, ["--pool", "NAME=4xV100:2"]),
        ({"pools": ["Old=4xV100:2"]}, ["--pool", "'Old'"]),
        ({"pools": ["a=1xV100:1", "a=1xV100:1"]}, ["--pool", "'a'", "twice"]),
        ({"pools": ["cpu=1xV100:1"], "cpu_nodes": 1}, ["--cpu-nodes", "'cpu'", "twice"]),
        ({"pools": ["a=0xV100:1"]}, ["--pool", "from 1 to 64", "got 0"]),
        ({"pools": ["a=1xV100:0"]}, ["--pool", "at least one node", "got 0"]),
        ({"node_gpus": ["4xV100"]}, ["--node-gpus", "4x1xV100"]),
        ({"nodes": 2, "gpus": 65}, ["--nodes", "got 65"]),
        ({"nodes": -1}, ["--nodes", "got -1"]),
        ({"nodes": 65}, ["--nodes", "from 1 to 64", "65"]),
        ({"nodes": 0}, ["--nodes", "0"]),
    ],
)
def test_a_mistake_names_its_flag(flags: dict[str, object], words: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        make(**flags)
    assert all(word in str(caught.value) for word in words), str(caught.value)


@pytest.mark.parametrize("name", ["", "Emugpu", "1st", "a-", "x" * 31, "a b"])
def test_a_name_that_no_container_can_have(name: str) -> None:
    with pytest.raises(InputError, match="--name"):
        plan(name, nodes=1, gpus=1, gpu_type="V100")


def test_an_unknown_type_names_what_comes_near() -> None:
    with pytest.raises(UnknownNameError, match=r"--gpu|--nodes.*H100"):
        make(gpu_type="H1000")
