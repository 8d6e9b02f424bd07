from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from emulator_runtime.domain.errors import InputError
from operators.experiments.cluster_state import match
from scheduler_sims.inputs.cluster_file import ClusterSpec, NodeSpec

Nodes = Callable[..., NodeSpec]


def spec(*nodes: NodeSpec) -> ClusterSpec:
    return ClusterSpec(nodes)


def test_nodes_are_matched_by_what_they_are_whatever_their_order_and_names(node_spec: Nodes) -> None:
    wanted = spec(node_spec("g-1"), node_spec("g-2"), node_spec("c", gpus=0))
    there = spec(node_spec("w1", gpus=0), node_spec("w2"), node_spec("w3"))
    assert match(wanted, there, "c.yaml") == {"g-1": "w2", "g-2": "w3", "c": "w1"}


def test_no_memory_in_the_file_means_any_but_who_says_some_goes_first(node_spec: Nodes) -> None:
    wanted = spec(node_spec("any"), node_spec("large", memory_gib=500))
    there = spec(node_spec("w1", memory_gib=500), node_spec("w2", memory_gib=64))
    assert match(wanted, there, "c.yaml") == {"any": "w2", "large": "w1"}


@pytest.mark.parametrize(
    ("there", "has"),
    [
        ([{"name": "w1"}], "have 1 nodes with 1 Tesla_V100-PCIE-32GB, 96 CPUs;"),
        ([], "the cluster's pools have no node;"),
        ([{"name": "w1"}, {"name": "w2"}, {"name": "w3"}], "have 3 nodes with 1 Tesla_V100"),
        ([{"name": "w1"}, {"name": "w2", "cpus": 8}], "and 1 nodes with 1 Tesla_V100-PCIE-32GB, 8 CPUs;"),
        ([{"name": "w1"}, {"name": "w2", "gpu_type": "Tesla-T4"}], "and 1 nodes with 1 Tesla-T4, 96 CPUs;"),
        ([{"name": "w1"}, {"name": "w2", "gpus": 0}], "and 1 nodes with no GPU, 96 CPUs;"),
    ],
)
def test_another_cluster_is_refused_with_both_and_the_command(
    node_spec: Nodes, there: list[dict[str, object]], has: str
) -> None:
    with pytest.raises(InputError) as caught:
        match(spec(node_spec("a"), node_spec("b")), spec(*(node_spec(**node) for node in there)), "c.yaml")
    text = str(caught.value)
    assert text.startswith("c.yaml: describes 2 nodes with 1 Tesla_V100-PCIE-32GB, 96 CPUs; the cluster's pools have")
    assert has in text
    assert text.endswith("`emugpu cluster up --node-gpus 2x1xV100 --emulated-cpus 96` makes such a cluster")


def test_memory_that_the_file_names_must_be_there(node_spec: Nodes) -> None:
    wanted = spec(node_spec("a", memory_gib=500), node_spec("c", gpus=0, memory_gib=500))
    with pytest.raises(InputError) as caught:
        match(wanted, spec(node_spec("w1", memory_gib=64), node_spec("w2", gpus=0, memory_gib=500)), "c.yaml")
    assert "--node-gpus 1x1xV100 --cpu-nodes 1 --emulated-cpus 96 --emulated-memory 500Gi" in str(caught.value)


def test_unlike_nodes_have_no_one_command(node_spec: Nodes) -> None:
    with pytest.raises(InputError, match="kubectl edit emugpupools"):
        match(spec(node_spec("a", cpus=8), node_spec("b", cpus=16)), spec(node_spec("w1")), "c.yaml")


def test_devices_must_be_shared_in_the_way_of_the_file(node_spec: Nodes) -> None:
    def sharing(name: str, mode: str, replicas: int = 0) -> ClusterSpec:
        return spec(replace(node_spec(name), sharing=mode, replicas=replicas))

    assert match(sharing("a", "mps"), sharing("w1", "mps", 4), "c.yaml") == {"a": "w1"}
    assert match(sharing("a", "mps", 4), sharing("w1", "mps", 4), "c.yaml") == {"a": "w1"}
    for wanted, there in (
        (sharing("a", "mps", 2), sharing("w1", "mps", 4)),
        (sharing("a", "mps"), sharing("w1", "weighted", 4)),
        (sharing("a", "exclusive"), sharing("w1", "mps", 4)),
    ):
        with pytest.raises(InputError, match=r"V100-PCIE-32GB shared by (mps|weighted) among 4, 96 CPUs"):
            match(wanted, there, "c.yaml")
    with pytest.raises(InputError, match=r"spec\.sharing"):
        match(sharing("a", "mps"), sharing("w1", "exclusive"), "c.yaml")
