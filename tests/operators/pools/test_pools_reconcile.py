"""What must change, from what is seen: nothing twice, only our own things, and a status that says why."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.controllers.actions import RecordEvent, WriteStatus
from operators.controllers.events import Event
from operators.objects.node import Node
from operators.objects.pool import Pool
from operators.pools.reconcile import Action, PatchNode, reconcile
from operators.pools.status import PoolNode, PoolSeen, pool_status

NOW = "2026-03-01T00:00:00Z"
LATER = "2026-03-01T01:00:00Z"
RESOURCE = "emugpu.dev/emuGPU"


def pool(name: str = "p", created: str = "2026-01-01T00:00:00Z", **spec: Any) -> Pool:
    gpus = [{"type": "A100-SXM4-80GB", "count": 8}]
    return Pool(name, f"uid-{name}", created, spec_json={"gpus": gpus, **spec})


def node(name: str = "w1", **facts: Any) -> Node:
    return Node(name, f"uid-{name}", **facts)


def actions_of(pools: list[Pool], nodes: list[Node], now: str) -> list[Action]:
    return [action for plan in reconcile(pools, nodes, now) for action in plan.actions]


def carried_out(pools: list[Pool], nodes: list[Node], actions: list[Action]) -> tuple[list[Pool], list[Node]]:
    """The cluster after the actions, as the API server would have it."""
    for action in actions:
        match action:
            case PatchNode(name, uid, labels, annotations):
                nodes = [after(n, labels, annotations) if (n.name, n.uid) == (name, uid) else n for n in nodes]
            case WriteStatus(key, status, _):
                pools = [replace(p, status_json=status) if p.key == key else p for p in pools]
            case _:
                pass
    return pools, nodes


def after(found: Node, labels: Any, annotations: Any) -> Node:
    def merged(part: str, old: Any, new: Any) -> dict[str, str]:
        return {**{k: v for k, v in old.items() if f"{part}/{k}" not in found.owned}, **new}

    owned = frozenset([*(f"labels/{k}" for k in labels), *(f"annotations/{k}" for k in annotations)])
    new_labels, new_notes = (
        merged("labels", found.labels, labels),
        merged("annotations", found.annotations, annotations),
    )
    return replace(found, labels=new_labels, annotations=new_notes, owned=owned)


def ready(status: Any) -> Any:
    return next(c for c in status["conditions"] if c["type"] == "Ready")


def conflicted(status: Any) -> Any:
    return next(c for c in status["conditions"] if c["type"] == "Conflicted")


def status_of(pools: list[Pool], nodes: list[Node], name: str = "p", now: str = NOW) -> Any:
    pools, _ = carried_out(pools, nodes, actions_of(pools, nodes, now))
    return next(p.status_json for p in pools if p.name == name)


def test_a_node_gets_labels_and_the_inventory() -> None:
    (patch, status, event) = actions_of([pool()], [node()], NOW)
    assert isinstance(patch, PatchNode) and isinstance(status, WriteStatus) and isinstance(event, RecordEvent)
    assert (patch.name, patch.uid) == ("w1", "uid-w1")
    assert patch.labels["emugpu.dev/gpu.count"] == "8"
    assert json.loads(patch.annotations["emugpu.dev/inventory"])["node"] == "w1"
    assert (event.event.kind, event.event.reason) == ("Warning", "WaitingForNodes")


def test_what_is_so_already_asks_for_nothing() -> None:
    pools, nodes = [pool()], [node(), node("w2")]
    pools, nodes = carried_out(pools, nodes, actions_of(pools, nodes, NOW))
    assert actions_of(pools, nodes, LATER) == []


def test_only_the_node_that_changed_is_patched() -> None:
    pools, nodes = [pool()], [node(), node("w2"), node("w3")]
    pools, nodes = carried_out(pools, nodes, actions_of(pools, nodes, NOW))
    nodes[1] = replace(nodes[1], labels={k: v for k, v in nodes[1].labels.items() if k != "emugpu.dev/gpu.count"})
    assert [a.name for a in actions_of(pools, nodes, NOW) if isinstance(a, PatchNode)] == ["w2"]


def test_a_node_that_leaves_loses_what_is_ours_and_only_that() -> None:
    pools, nodes = [pool()], [node(labels={"zone": "a", "emugpu.dev/own": "user"}, annotations={})]
    pools, nodes = carried_out(pools, nodes, actions_of(pools, nodes, NOW))
    away = replace(pools[0], spec_json={**pools[0].spec_json, "nodeSelector": {"matchLabels": {"zone": "b"}}})
    actions = actions_of([away], nodes, NOW)
    assert actions[0] == PatchNode("w1", "uid-w1", {}, {})
    _, nodes = carried_out([away], nodes, actions)
    assert nodes[0].labels == {"zone": "a", "emugpu.dev/own": "user"}
    assert nodes[0].annotations == {}


def test_a_node_goes_from_pool_to_pool_in_one_write() -> None:
    """A moment without devices would take them from pods; the same node, type and index is the same device."""
    zones = {
        "a": pool("a", nodeSelector={"matchLabels": {"zone": "a"}}),
        "b": pool("b", nodeSelector={"matchLabels": {"zone": "b"}}),
    }
    pools, nodes = [*zones.values()], [node(labels={"zone": "a"})]
    pools, nodes = carried_out(pools, nodes, actions_of(pools, nodes, NOW))
    before = json.loads(nodes[0].annotations["emugpu.dev/inventory"])
    nodes = [replace(nodes[0], labels={**nodes[0].labels, "zone": "b"})]
    (patch,) = [action for action in actions_of(pools, nodes, NOW) if isinstance(action, PatchNode)]
    after_it = json.loads(patch.annotations["emugpu.dev/inventory"])
    assert (before.pop("pool"), after_it.pop("pool"), patch.labels["emugpu.dev/pool"]) == ("a", "b", "b")
    assert after_it == before
    _, nodes = carried_out(pools, nodes, [patch])
    assert [
        a for a in actions_of([zones["b"]], nodes, NOW) if isinstance(a, PatchNode)
    ] == []  # the old pool may go now


def test_a_node_made_anew_is_another_node() -> None:
    pools, nodes = [pool()], [node()]
    pools, nodes = carried_out(pools, nodes, actions_of(pools, nodes, NOW))
    again = Node("w1", "uid-new")
    assert [a.uid for a in actions_of(pools, [again], NOW) if isinstance(a, PatchNode)] == ["uid-new"]


def test_a_node_in_cleanup_is_left_alone_unless_a_pool_claims_it() -> None:
    text = json.dumps({"version": 1, "node": "w1", "resources": [], "cleanup": True})
    cleaning = node(annotations={"emugpu.dev/inventory": text}, owned=frozenset(["annotations/emugpu.dev/inventory"]))
    assert actions_of([], [cleaning], NOW) == []
    assert isinstance(actions_of([pool()], [cleaning], NOW)[0], PatchNode)
    garbled = replace(cleaning, annotations={"emugpu.dev/inventory": "{"})
    assert actions_of([], [garbled], NOW) == [PatchNode("w1", "uid-w1", {}, {})]


def test_ready_when_the_kubelets_offer_all() -> None:
    nodes = [node(allocatable={RESOURCE: 8}), node("w2", allocatable={RESOURCE: 8})]
    status = status_of([pool()], nodes)
    assert (status["nodes"], status["devices"], status["allocatable"], status["unhealthy"]) == (2, 16, 16, 0)
    assert ready(status) | {"observedGeneration": 0} == {
        "type": "Ready",
        "status": "True",
        "observedGeneration": 0,
        "lastTransitionTime": NOW,
        "reason": "NodesReady",
        "message": "2 nodes offer all 16",
    }
    assert status["nodeStatuses"][0] == {"name": "w1", "devices": 8, "allocatable": 8}
    assert conflicted(status)["status"] == "False"


CPU = {"gpus": [], "emulated": {"cpu": 90}}


def test_a_pool_without_gpus_labels_its_nodes_and_waits_for_their_places() -> None:
    pools, nodes = [pool(**CPU)], [node(), node("w2", allocatable={"emugpu.dev/host": 110})]
    (patch, *_) = actions = actions_of(pools, nodes, NOW)
    assert isinstance(patch, PatchNode)
    assert patch.labels == {"emugpu.dev/pool": "p"}
    inventory = json.loads(patch.annotations["emugpu.dev/inventory"])
    assert (inventory["pool"], inventory["resources"]) == ("p", [])
    pools, nodes = carried_out(pools, nodes, actions)
    assert ready(pools[0].status_json)["message"] == (
        "w1 doesn't offer emugpu.dev/host yet; its emugpu-node pod may be starting, or its kubelet hears of the change soon"
    )
    nodes[0] = replace(nodes[0], allocatable={"emugpu.dev/host": 110})
    status = status_of(pools, nodes)
    assert (ready(status)["status"], ready(status)["message"]) == ("True", "2 nodes offer places without GPUs")
    assert (status["devices"], status["allocatable"]) == (0, 0)  # places are no devices
    marked = status_of([pool(**CPU, unhealthy=[{"node": "w1", "index": 0}])], nodes)
    assert "node w1 has no device with index 0; the other" in unhealthy_applied(marked)["message"]


def test_places_are_no_matter_where_there_are_gpus() -> None:
    nodes = [node(allocatable={RESOURCE: 8}), node("w2", allocatable={RESOURCE: 8, "emugpu.dev/host": 110})]
    status = status_of([pool()], nodes)
    assert (ready(status)["status"], status["allocatable"]) == ("True", 16)


def test_a_node_that_gets_gpus_or_loses_them_is_labelled_anew() -> None:
    pools, nodes = [pool()], [node()]
    pools, nodes = carried_out(pools, nodes, actions_of(pools, nodes, NOW))
    pools, nodes = carried_out([pool(**CPU)], nodes, actions_of([pool(**CPU)], nodes, NOW))
    assert nodes[0].labels == {"emugpu.dev/pool": "p"}
    _, nodes = carried_out([pool()], nodes, actions_of([pool()], nodes, NOW))
    assert nodes[0].labels["emugpu.dev/gpu.count"] == "8"


def test_unhealthy_devices_are_not_expected() -> None:
    sick = pool(unhealthy=[{"node": "w1", "index": 0, "reason": "x"}])
    status = status_of([sick], [node(allocatable={RESOURCE: 7})])
    assert (ready(status)["status"], status["unhealthy"], status["devices"]) == ("True", 1, 8)


def unhealthy_applied(status: Any) -> Any:
    return next(c for c in status["conditions"] if c["type"] == "UnhealthyApplied")


def warnings(actions: list[Action]) -> list[tuple[str, str]]:
    return [(a.event.reason, a.event.note) for a in actions if isinstance(a, RecordEvent) and a.event.kind == "Warning"]


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        (("w9", 0), "node w9 (index 0) is not one of this pool's, which are w1, w2"),
        (("w1", 8), "node w1 has no device with index 8, only 0 to 7"),
        (("taken", 1), "node taken (index 1) belongs to the older pool old"),
    ],
)
def test_an_unhealthy_device_that_is_not_there_is_reported(entry: tuple[str, int], problem: str) -> None:
    old = pool("old", "2025-01-01T00:00:00Z", nodeSelector={"matchLabels": {"old": "yes"}})
    marked = [{"node": "w1", "index": 7}, {"node": entry[0], "index": entry[1]}]
    pools = [old, replace(pool(unhealthy=marked), generation=7)]
    nodes = [node("w1"), node("w2"), node("taken", labels={"old": "yes"})]
    actions = actions_of(pools, nodes, NOW)
    status = next(a.status for a in actions if isinstance(a, WriteStatus) and a.key.name == "p")
    condition = unhealthy_applied(status)
    assert (condition["status"], condition["reason"], condition["observedGeneration"]) == ("False", "NoSuchDevice", 7)
    assert condition["message"] == f"spec.unhealthy: {problem}; the other entries hold"
    assert status["unhealthy"] == 1
    assert ("NoSuchDevice", condition["message"]) in warnings(actions)


def test_an_unhealthy_device_of_a_node_that_cannot_be_read_is_reported() -> None:
    seen = PoolSeen([PoolNode(node(), None)], lost={}, marked=[("w1", 0)])
    condition = unhealthy_applied(pool_status(pool(), seen, NOW))
    told = "spec.unhealthy: node w1 (index 0) has an annotation that can't be read; the other entries hold"
    assert condition["message"] == told


def test_unhealthy_devices_of_a_pool_without_nodes() -> None:
    condition = unhealthy_applied(status_of([pool(unhealthy=[{"node": "w1", "index": 0}])], []))
    assert condition["message"].startswith("spec.unhealthy: node w1 (index 0) is not one of this pool's: it has none")


def test_an_unhealthy_device_that_is_mended_is_news_and_none_at_all_is_not() -> None:
    def reasons(pools: list[Pool]) -> list[str]:
        return [a.event.reason for a in actions_of(pools, nodes, NOW) if isinstance(a, RecordEvent)]

    pools, nodes = [pool(unhealthy=[{"node": "w9", "index": 0}])], [node(allocatable={RESOURCE: 8})]
    assert unhealthy_applied(status_of([pool()], nodes))["reason"] == "NoneMarked"
    assert reasons([pool()]) == ["NodesReady"]
    pools, nodes = carried_out(pools, nodes, actions_of(pools, nodes, NOW))
    assert reasons(pools) == []
    mended = replace(pools[0], spec_json=pool(unhealthy=[{"node": "w1", "index": 0}]).spec_json)
    nodes = [replace(nodes[0], allocatable={RESOURCE: 7})]
    assert reasons([mended]) == ["AllFound"]
    pools, nodes = carried_out([mended], nodes, actions_of([mended], nodes, NOW))
    assert reasons([replace(pools[0], spec_json=pool().spec_json)]) == ["WaitingForNodes"]


def test_of_a_wrong_specification_nothing_is_known_about_unhealthy_devices() -> None:
    wrong = pool(gpus=[{"type": "nonsense", "count": 1}], unhealthy=[{"node": "w9", "index": 0}])
    condition = unhealthy_applied(status_of([wrong], [node()]))
    assert (condition["status"], condition["reason"]) == ("Unknown", "InvalidSpec")
    assert [reason for reason, _ in warnings(actions_of([wrong], [node()], NOW))] == ["UnknownGpuType"]


def test_more_than_it_should_offer_is_not_ready_either() -> None:
    """While the kubelet has the figures from before an edit (2000 shares, now 4), the pool isn't ready."""
    sharing = {"timeSlicing": {"resources": [{"name": RESOURCE, "replicas": 4}]}}
    shared = pool(gpus=[{"type": "T4", "count": 1}], sharing=sharing)
    before = status_of([shared], [node(allocatable={RESOURCE: 2000})])
    assert (ready(before)["status"], ready(before)["reason"]) == ("False", "WaitingForNodes")
    assert ready(before)["message"] == "w1 still offers 2000, more than 4; its kubelet hears of the change soon"
    after_it = status_of([shared], [node(allocatable={RESOURCE: 4})])
    assert (ready(after_it)["status"], ready(after_it)["message"]) == ("True", "1 nodes offer all 4")


@pytest.mark.parametrize(
    ("offered", "why"),
    [
        (4, "its kubelet hears of the change soon"),
        (0, "its emugpu-node pod may be starting, or its kubelet hears of the change soon"),
    ],
)
def test_whoever_offers_some_has_started(offered: int, why: str) -> None:
    status = status_of([pool()], [node(allocatable={RESOURCE: offered})])
    assert ready(status)["message"] == f"w1 offers {offered} of 8; {why}"


def test_too_much_of_one_resource_does_not_make_up_for_another() -> None:
    two = pool(gpus=[{"type": "T4", "count": 2}, {"type": "V100", "count": 2, "resourceName": "a.b/c"}])
    condition = ready(status_of([two], [node(allocatable={RESOURCE: 4})]))
    assert condition["status"] == "False"
    assert condition["message"].startswith(f"w1 still offers 4 {RESOURCE}, more than 2")
    condition = ready(status_of([two], [node(allocatable={RESOURCE: 2, "a.b/c": 1})]))
    assert condition["message"].startswith("w1 offers 1 of 2 a.b/c")


def test_shared_devices_count_by_their_replicas() -> None:
    sharing = {"timeSlicing": {"renameByDefault": True, "resources": [{"name": "nvidia.com/gpu", "replicas": 4}]}}
    shared = pool(sharing=sharing)
    assert ready(status_of([shared], [node(allocatable={RESOURCE: 8})]))["message"].startswith("w1 offers 0 of 32")
    assert ready(status_of([shared], [node(allocatable={f"{RESOURCE}.shared": 32})]))["status"] == "True"


def test_why_it_is_not_ready() -> None:
    many = [node(f"w{i}", ready=False) for i in range(5)]
    assert ready(status_of([pool()], many))["message"] == "w0 is not ready; w1 is not ready; w2 is not ready and 2 more"
    assert ready(status_of([pool()], [node(ready=False, allocatable={RESOURCE: 8})]))["status"] == "False"
    empty = ready(status_of([pool()], []))
    assert (empty["reason"], empty["message"].split(";")[0]) == ("NoNodes", "no node matches spec.nodeSelector")


def test_an_unknown_gpu_type_names_the_field() -> None:
    condition = ready(status_of([pool(gpus=[{"type": "A10O", "count": 8}])], [node()]))
    assert (condition["status"], condition["reason"]) == ("False", "UnknownGpuType")
    assert "spec.gpus[0].type: unknown GPU type 'A10O'" in condition["message"] and "A100" in condition["message"]
    other = ready(status_of([pool(nodeSelector={"matchExpressions": [{"key": "k", "operator": "in"}]})], [node()]))
    assert other["reason"] == "InvalidSpec"


def test_the_loser_of_a_node_is_told_who_has_it() -> None:
    pools = [pool("old"), pool("new", "2026-02-01T00:00:00Z")]
    status = status_of(pools, [node(), node("w2")], "new")
    assert conflicted(status)["status"] == "True"
    assert (
        conflicted(status)["message"] == "older pools have these nodes: w1 (old), w2 (old); make the selectors differ"
    )
    assert ready(status)["message"].startswith("every node that it matches belongs to an older pool")
    assert conflicted(status_of(pools, [node()], "old"))["status"] == "False"


def test_the_time_of_a_condition_is_that_of_its_last_turn() -> None:
    pools, nodes = [pool()], [node(allocatable={RESOURCE: 3})]
    pools, nodes = carried_out(pools, nodes, actions_of(pools, nodes, NOW))
    status = status_of(pools, [replace(nodes[0], allocatable={RESOURCE: 4})], now=LATER)
    assert ready(status)["lastTransitionTime"] == NOW
    status = status_of(pools, [replace(nodes[0], allocatable={RESOURCE: 8})], now=LATER)
    assert ready(status)["lastTransitionTime"] == LATER


def test_events_come_with_turns_only() -> None:
    pools, nodes = [pool()], [node(allocatable={RESOURCE: 3})]
    pools, nodes = carried_out(pools, nodes, actions_of(pools, nodes, NOW))
    more = [replace(nodes[0], allocatable={RESOURCE: 4})]
    assert [a for a in actions_of(pools, more, NOW) if isinstance(a, RecordEvent)] == []
    done = [replace(nodes[0], allocatable={RESOURCE: 8})]
    (event,) = [a for a in actions_of(pools, done, NOW) if isinstance(a, RecordEvent)]
    assert (event.key.name, event.event) == ("p", Event("Normal", "NodesReady", "1 nodes offer all 8"))


def test_nodes_of_a_pool_that_became_wrong_stay_as_they_are() -> None:
    pools, nodes = [pool()], [node(allocatable={RESOURCE: 8})]
    pools, nodes = carried_out(pools, nodes, actions_of(pools, nodes, NOW))
    wrong = replace(pools[0], spec_json={"gpus": [{"type": "nonsense", "count": 1}]})
    actions = actions_of([wrong], nodes, NOW)
    assert [type(a) for a in actions] == [WriteStatus, RecordEvent]
    assert "w1 stay as they were" in ready(actions[0].status)["message"]  # type: ignore[union-attr]


def test_odd_objects_are_read_as_empty() -> None:
    assert Node.read({}).name == ""
    odd = {
        "metadata": {
            "name": "w",
            "labels": None,
            "managedFields": [None, {"manager": "emugpu-pools", "operation": "Apply"}],
        }
    }
    assert Node.read({**odd, "status": {"allocatable": {"a/b": "x", "c/d": "2", "cpu": "1"}}}).allocatable == {"c/d": 2}
    assert Pool.read({"metadata": {"name": "p"}}).spec_json == {}


def test_the_control_plane_is_known_by_label_or_taint() -> None:
    role = "node-role.kubernetes.io/control-plane"
    assert Node.read({"metadata": {"labels": {role: ""}}}).control_plane
    assert Node.read({"spec": {"taints": [{"key": role}]}}).control_plane
    assert not Node.read({"metadata": {"labels": {"x": ""}}}).control_plane


SPECS = st.sampled_from(
    [
        {},
        {"nodeSelector": {"matchLabels": {"gpu": "yes"}}},
        {"gpus": [{"type": "T4", "count": 2}], "compat": {"nvidiaLabels": True}},
        {"gpus": [{"type": "nonsense", "count": 2}]},
        {"sharing": {"timeSlicing": {"resources": [{"name": "nvidia.com/gpu", "replicas": 2}]}}},
    ]
)


@given(st.lists(st.tuples(SPECS, SPECS), min_size=1, max_size=3), st.lists(st.booleans(), max_size=3))
def test_two_rounds_settle_and_edits_lead_to_the_same_place(specs: list[tuple[Any, Any]], labelled: list[bool]) -> None:
    nodes = [node(f"w{i}", labels={"gpu": "yes"} if yes else {}) for i, yes in enumerate(labelled)]
    pools = [pool(f"p{i}", f"2026-01-0{i + 1}T00:00:00Z", **before) for i, (before, _) in enumerate(specs)]
    pools, settled = carried_out(pools, nodes, actions_of(pools, nodes, NOW))
    edited = [replace(p, spec_json=pool(p.name, **new).spec_json) for p, (_, new) in zip(pools, specs, strict=True)]
    for _ in range(2):  # a wrong pool that loses a node it held is only then without a claim to it
        edited, settled = carried_out(edited, settled, actions_of(edited, settled, NOW))
    assert actions_of(edited, settled, NOW) == []
    fresh = [replace(p, status_json={}) for p in edited]
    _, direct = carried_out(fresh, nodes, actions_of(fresh, nodes, NOW))
    if all(new.get("gpus", [{}])[0].get("type") != "nonsense" for _, new in specs):
        assert settled == direct  # whatever came before, except that wrong pools keep what they gave
