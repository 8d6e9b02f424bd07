"""Which node gets which devices: winners, losers, what a wrong pool keeps; never a matter of order."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from emulator_runtime.node.inventory import Inventory
from operators.objects.node import Node
from operators.objects.pool import Pool
from operators.pools.assign import assign
from operators.pools.labels import label_value, labels_of
from operators.pools.status import PoolNode, PoolSeen, pool_status

A100 = {"type": "A100-SXM4-80GB", "count": 8}
ON_GPU_NODES = {"matchLabels": {"gpu": "yes"}}


def pool(name: str, created: str = "2026-01-01T00:00:00Z", **spec: Any) -> Pool:
    return Pool(name, f"uid-{name}", created, spec_json={"gpus": [A100], **spec})


def node(name: str, **facts: Any) -> Node:
    return Node(name, f"uid-{name}", **facts)


def test_devices_of_a_node() -> None:
    gpus = [{"type": "A100-SXM4-80GB", "count": 4, "linkGroupSize": 2, "numaNodes": 2}, {"type": "T4", "count": 2}]
    chosen = assign([pool("p", gpus=gpus, unhealthy=[{"node": "w1", "index": 5, "reason": "broken"}])], [node("w1")])
    inventory = chosen.claims["w1"].inventory
    assert inventory is not None
    (resource,) = inventory.resources
    assert [entry.device.index for entry in resource.devices] == [0, 1, 2, 3, 4, 5]
    assert [entry.numa_node for entry in resource.devices] == [0, 0, 1, 1, 0, 0]
    assert [entry.link_group for entry in resource.devices] == [0, 0, 1, 1, 2, 3]  # T4s have no NVLink
    assert [entry.reason for entry in resource.devices] == ["", "", "", "", "", "broken"]
    assert [entry.healthy for entry in resource.devices] == [True] * 5 + [False]
    assert inventory.pool == "p" and inventory.node == "w1"


def test_resource_names_group_devices() -> None:
    gpus = [A100, {"type": "T4", "count": 2, "resourceName": "emugpu.dev/t4"}, {"type": "L4", "count": 1}]
    inventory = assign([pool("p", gpus=gpus)], [node("w1")]).claims["w1"].inventory
    assert inventory is not None
    assert [(r.name, len(r.devices)) for r in inventory.resources] == [("emugpu.dev/emuGPU", 9), ("emugpu.dev/t4", 2)]


def test_an_empty_selector_leaves_the_control_plane_out() -> None:
    nodes = [node("w1"), node("cp", control_plane=True)]
    assert set(assign([pool("p")], nodes).claims) == {"w1"}
    by_name = pool("p", nodeSelector={"matchLabels": {"gpu": "yes"}})
    assert set(assign([by_name], [node("cp", control_plane=True, labels={"gpu": "yes"})]).claims) == {"cp"}


def test_the_older_pool_wins_then_the_name() -> None:
    old, new = pool("z", "2026-01-01T00:00:00Z"), pool("a", "2026-01-02T00:00:00Z")
    chosen = assign([new, old], [node("w1")])
    assert chosen.claims["w1"].pool == "z"
    assert chosen.lost == {"a": {"w1": "z"}}
    assert assign([pool("z"), pool("a")], [node("w1")]).claims["w1"].pool == "a"


def test_a_pool_that_is_being_deleted_has_no_nodes() -> None:
    assert assign([replace(pool("p"), deleting=True)], [node("w1")]).claims == {}


def test_a_wrong_pool_keeps_its_nodes_and_takes_no_more() -> None:
    before = assign([pool("p")], [node("w1")]).claims["w1"].inventory
    assert before is not None
    labels = labels_of(before, nvidia=False)
    held = node("w1", labels=labels, annotations={"emugpu.dev/inventory": before.to_json()})
    wrong = pool("p", gpus=[{"type": "A10O", "count": 8}])
    chosen = assign([wrong, pool("q", "2026-02-01T00:00:00Z")], [held, node("w2")])
    assert chosen.claims["w1"].kept and chosen.claims["w1"].inventory == before
    assert chosen.claims["w2"].pool == "q"
    assert str(chosen.errors["p"]).startswith("EmuGPUPool p: spec.gpus[0].type: unknown GPU type")
    unreadable = replace(held, annotations={"emugpu.dev/inventory": "{"})
    assert assign([wrong], [unreadable]).claims["w1"].inventory is None


def test_sharing_that_fails_leaves_all_nodes_of_the_pool_as_they_are() -> None:
    sharing = {"timeSlicing": {"resources": [{"name": "emugpu.dev/emuGPU", "replicas": 4, "devices": 3}]}}
    chosen = assign([pool("p", sharing=sharing)], [node("w1"), node("w2", labels={"emugpu.dev/pool": "p"})])
    assert "spec.sharing: timeSlicing.resources[0]" in str(chosen.errors["p"])
    assert "w1" not in chosen.claims
    assert chosen.claims["w2"].kept


def test_time_slicing_multiplies() -> None:
    sharing = {"timeSlicing": {"renameByDefault": True, "resources": [{"name": "nvidia.com/gpu", "replicas": 4}]}}
    inventory = assign([pool("p", sharing=sharing)], [node("w1")]).claims["w1"].inventory
    assert inventory is not None
    assert [(r.name, r.replicas) for r in inventory.resources] == [("emugpu.dev/emuGPU.shared", 4)]


def cut(strategy: str, *configs: dict[str, Any], **spec: Any) -> Inventory:
    gpus = spec.pop("gpus", [{"type": "A100", "count": 2, "numaNodes": 2}])
    mig = {"strategy": strategy, "configs": list(configs)}
    inventory = assign([pool("p", gpus=gpus, mig=mig, **spec)], [node("w1")]).claims["w1"].inventory
    assert inventory is not None
    assert Inventory.from_json(inventory.to_json(), "annotation") == inventory
    return inventory


def test_single_offers_instances_as_the_pools_gpus() -> None:
    inventory = cut(
        "single", {"migDevices": {"3g.20gb": 2}}, unhealthy=[{"node": "w1", "index": 1, "reason": "XID 79"}]
    )
    (resource,) = inventory.resources
    assert (resource.name, resource.replicas, resource.sharing) == ("emugpu.dev/emuGPU", 1, "exclusive")
    devices = [entry.device for entry in resource.devices]
    assert [(d.index, d.gpu_index) for d in devices] == [(2, 0), (3, 0), (9, 1), (10, 1)]
    assert {d.gpu_type for d in devices} == {"NVIDIA_A100-SXM4-40GB-MIG-3g.20gb"}
    assert [entry.reason for entry in resource.devices] == ["", "", "XID 79", "XID 79"]  # all instances of GPU 1
    assert [entry.numa_node for entry in resource.devices] == [0, 0, 1, 1]
    assert len({entry.link_group for entry in resource.devices}) == 4
    labels = labels_of(inventory, nvidia=True)
    assert labels["emugpu.dev/gpu.product"] == "NVIDIA_A100-SXM4-40GB-MIG-3g.20gb"
    wanted = {
        "gpu.product": "NVIDIA-A100-SXM4-40GB-MIG-3g.20gb",
        "gpu.count": "4",
        "gpu.memory": "20268",
        "gpu.slices.gi": "3",
        "gpu.slices.ci": "3",
        "mig.capable": "true",
        "mig.strategy": "single",
    }
    assert {name: labels[f"nvidia.com/{name}"] for name in wanted} == wanted


def test_mixed_offers_instances_beside_whole_gpus() -> None:
    configs = {"devices": [1], "migDevices": {"4g.20gb": 1, "1g.5gb": 2}}
    inventory = cut("mixed", configs, resourceName="nvidia.com/gpu", unhealthy=[{"node": "w1", "index": 11}])
    assert [(r.name, [e.device.index for e in r.devices]) for r in inventory.resources] == [
        ("nvidia.com/gpu", [0]),
        ("nvidia.com/mig-4g.20gb", [9]),
        ("nvidia.com/mig-1g.5gb", [10, 11]),
    ]
    assert [entry.healthy for entry in inventory.entries()] == [True, True, True, False]
    labels = labels_of(inventory, nvidia=True)
    wanted = {
        "gpu.product": "NVIDIA-A100-SXM4-40GB",
        "gpu.count": "2",
        "gpu.memory": "40536",
        "mig.strategy": "mixed",
        "mig-4g.20gb.product": "NVIDIA-A100-SXM4-40GB-MIG-4g.20gb",
        "mig-4g.20gb.count": "1",
        "mig-1g.5gb.count": "2",
        "mig-1g.5gb.memory": "5067",
        "mig-1g.5gb.slices.gi": "1",
    }
    assert {name: labels[f"nvidia.com/{name}"] for name in wanted} == wanted
    assert "nvidia.com/gpu.slices.gi" not in labels


def test_the_status_knows_gpus_that_are_cut() -> None:
    inventory = cut("mixed", {"devices": [1], "migDevices": {"4g.20gb": 1}})
    assert PoolNode(node("w1"), inventory).indexes == [0, 1, 9]
    marked = [("w1", index) for index in (1, 9, 2)]
    status = pool_status(pool("p"), PoolSeen([PoolNode(node("w1"), inventory)], {}, marked=marked), "now")
    (condition,) = (c for c in status["conditions"] if c["type"] == "UnhealthyApplied")
    assert condition["message"] == (
        "spec.unhealthy: node w1 has no device with index 2, only 0, 1, 9; the other entries hold"
    )


def test_another_cut_of_one_gpu_leaves_the_other_as_it_is() -> None:
    others = {"devices": [1], "migDevices": {"7g.40gb": 1}}
    before, after = (
        {e.device for e in cut("mixed", {"devices": [0], "migDevices": first}, others).entries()}
        for first in ({"3g.20gb": 2}, {"1g.5gb": 7})
    )
    (kept,) = before & after
    assert kept.gpu_type.endswith("7g.40gb")


POOLS = st.builds(
    pool,
    st.sampled_from("abcd"),
    st.sampled_from(["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"]),
    gpus=st.sampled_from([[A100], [{"type": "T4", "count": 2}], [{"type": "nonsense", "count": 1}], []]),
    nodeSelector=st.sampled_from(
        [{}, ON_GPU_NODES, {"matchExpressions": [{"key": "gpu", "operator": "DoesNotExist"}]}]
    ),
)
NODES = st.builds(
    node,
    st.sampled_from(["w1", "w2", "w3"]),
    labels=st.sampled_from([{}, {"gpu": "yes"}, {"emugpu.dev/pool": "a"}]),
    control_plane=st.booleans(),
)


@given(
    st.lists(POOLS, max_size=4, unique_by=lambda p: p.name),
    st.lists(NODES, max_size=3, unique_by=lambda n: n.name),
    st.randoms(),
)
def test_order_is_of_no_importance(pools: list[Pool], nodes: list[Node], chance: random.Random) -> None:
    expected = assign(pools, nodes)
    shuffled_pools, shuffled_nodes = chance.sample(pools, len(pools)), chance.sample(nodes, len(nodes))
    found = assign(shuffled_pools, shuffled_nodes)
    assert (found.claims, found.lost) == (expected.claims, expected.lost)
    assert {name: str(error) for name, error in found.errors.items()} == {n: str(e) for n, e in expected.errors.items()}
    for name, claim in expected.claims.items():
        assert name not in expected.lost.get(claim.pool, {})
        assert claim.kept or (claim.inventory is not None and claim.inventory.node == name)


def test_labels_say_what_the_node_has() -> None:
    gpus = [{"type": "T4", "count": 1}, {"type": "A100-SXM4-80GB", "count": 2, "memory": "40Gi"}]
    inventory = assign([pool("p", gpus=gpus)], [node("w1")]).claims["w1"].inventory
    assert inventory is not None
    assert labels_of(inventory, nvidia=False) == {
        "emugpu.dev/pool": "p",
        "emugpu.dev/gpu.present": "true",
        "emugpu.dev/gpu.product": "NVIDIA-A100-SXM4-80GB",
        "emugpu.dev/gpu.count": "3",
        "emugpu.dev/gpu.memory": "40960",
        "emugpu.dev/gpu.family": "ampere",
        "emugpu.dev/gpu.compute.major": "8",
        "emugpu.dev/gpu.compute.minor": "0",
        "emugpu.dev/gpu.replicas": "1",
        "emugpu.dev/gpu.sharing-strategy": "none",
    }


def test_nvidia_labels_are_there_on_request_and_tell_sharing() -> None:
    for rename, product in ((False, "NVIDIA-A100-SXM4-80GB-SHARED"), (True, "NVIDIA-A100-SXM4-80GB")):
        slicing = {"renameByDefault": rename, "resources": [{"name": "nvidia.com/gpu", "replicas": 4}]}
        inventory = assign([pool("p", sharing={"timeSlicing": slicing})], [node("w1")]).claims["w1"].inventory
        assert inventory is not None
        labels = labels_of(inventory, nvidia=True)
        assert labels["nvidia.com/gpu.product"] == product
        assert labels["emugpu.dev/gpu.product"] == "NVIDIA-A100-SXM4-80GB"
        assert (labels["nvidia.com/gpu.replicas"], labels["nvidia.com/gpu.sharing-strategy"]) == ("4", "time-slicing")
        assert labels["nvidia.com/gpu.machine"] == "emugpu"
        assert "nvidia.com/pool" not in labels


def test_a_pool_may_share_as_mps_or_by_a_mode_of_emugpu() -> None:
    resources = {"resources": [{"name": "emugpu.dev/emuGPU", "replicas": 4}]}
    for sharing, mode, strategy in (
        ({"mps": resources}, "mps", "mps"),
        ({"timeSlicing": resources, "mode": "fair"}, "fair", "time-slicing"),
    ):
        inventory = assign([pool("p", sharing=sharing)], [node("w1")]).claims["w1"].inventory
        assert inventory is not None
        assert [(r.replicas, r.sharing) for r in inventory.resources] == [(4, mode)]
        assert labels_of(inventory, nvidia=True)["nvidia.com/gpu.sharing-strategy"] == strategy


@given(st.text(max_size=100))
def test_any_text_becomes_a_valid_label_value(text: str) -> None:
    value = label_value(text)
    assert len(value) <= 63
    assert all(c.isascii() and (c.isalnum() or c in "-_.") for c in value)
    assert value == "" or (value[0].isalnum() and value[-1].isalnum())
