"""Preferred devices: examples for each rule, and properties that hold for every node."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deviceplugin.resources.gpus import GpuOffer
from deviceplugin.resources.preference import preferred
from emulator_runtime.domain.errors import InputError
from emulator_runtime.domain.gpu import Device
from emulator_runtime.node.inventory import DeviceEntry, ResourceEntry, split_device_id


def machine(places: list[tuple[int, int]], replicas: int = 1) -> ResourceEntry:
    """A resource of one device per (NUMA node, link group)."""
    entries = [DeviceEntry(Device("n", i, "T4", 1), numa, link) for i, (numa, link) in enumerate(places)]
    return ResourceEntry("emugpu.dev/emuGPU", tuple(entries), replicas)


EIGHT = machine([(n // 4, n // 4) for n in range(8)])
IDS = list(EIGHT.by_id())


def indexes(resource: ResourceEntry, ids: list[str]) -> list[int]:
    return [resource.by_id()[i].device.index for i in ids]


@pytest.mark.parametrize(
    ("free", "must", "size", "expected"),
    [
        ([0, 1, 2, 3, 4, 5, 6, 7], [], 4, [0, 1, 2, 3]),  # one link group
        ([0, 1, 2, 3, 5, 6, 7], [], 2, [5, 6]),  # the fullest group that has room
        ([0, 1, 2, 3, 5, 6, 7], [], 4, [0, 1, 2, 3]),
        ([1, 2, 3, 4, 5, 6, 7], [2], 3, [2, 1, 3]),  # near what it must have
        ([3, 4, 5, 6, 7], [], 5, [4, 5, 6, 7, 3]),  # the largest group first, so that few groups are used
        ([0, 1, 2, 6, 7], [0], 4, [0, 1, 2, 6]),
        ([0, 1], [], 0, []),
    ],
)
def test_whole_devices(free, must, size, expected):
    assert indexes(EIGHT, preferred(EIGHT, [IDS[i] for i in free], [IDS[i] for i in must], size)) == expected


def test_one_numa_node_inside_and_across_link_groups():
    wide = machine([(0, 0), (1, 0), (0, 0), (1, 0)])  # one link group over two NUMA nodes
    assert indexes(wide, preferred(wide, list(wide.by_id())[1:], [], 2)) == [1, 3]
    pairs = machine([(0, 0), (0, 1), (1, 2), (0, 3), (1, 4)])  # no links at all
    assert indexes(pairs, preferred(pairs, pairs.by_id(), [], 2)) == [2, 4]
    assert indexes(pairs, preferred(pairs, pairs.by_id(), [], 3)) == [0, 1, 3]


def test_shared_devices_spread_and_then_the_least_used():
    shared = machine([(0, 0)] * 3, replicas=4)
    ids = list(shared.by_id())
    free = [i for i in ids if i not in ids[0:2] + ids[4:5]]  # two of device 0 and one of device 1 are in use
    assert indexes(shared, preferred(shared, free, [], 1)) == [2]
    assert indexes(shared, preferred(shared, free, [], 4)) == [2, 1, 0, 2]
    assert indexes(shared, preferred(shared, free, [ids[8]], 3)) == [2, 1, 0]


def test_unknown_and_unhealthy_devices_are_passed_over():
    sick = ResourceEntry(
        "a/b", (DeviceEntry(Device("n", 0, "T4", 1), healthy=False), DeviceEntry(Device("n", 1, "T4", 1)))
    )
    zero, one = sick.by_id()
    assert preferred(sick, [zero, "GPU-gone", one], [], 3) == [one]
    assert preferred(sick, [zero, one], ["GPU-gone"], 2) == ["GPU-gone", one]


def test_more_to_include_than_wanted():
    with pytest.raises(InputError, match="2 devices must be included in an allocation of 1"):
        preferred(EIGHT, IDS, IDS[:2], 1)


@st.composite
def requests(draw):
    places = draw(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), min_size=1, max_size=12))
    resource = machine(places, draw(st.sampled_from([1, 1, 3])))
    ids = list(resource.by_id())
    available = draw(st.lists(st.sampled_from(ids), unique=True, min_size=1))
    must = draw(st.lists(st.sampled_from(available), unique=True))
    size = draw(st.integers(len(must), len(available)))
    return resource, available, must, size, draw(st.permutations(available))


@given(requests())
def test_always(request):
    resource, available, must, size, shuffled = request
    chosen = preferred(resource, available, must, size)
    assert len(chosen) == len(set(chosen)) == size
    assert set(must) <= set(chosen) <= set(available)
    assert preferred(resource, shuffled, must, size) == chosen  # the kubelet's order means nothing
    known = resource.by_id()
    if resource.replicas == 1 and not must and size:
        groups = {}
        for i in available:
            groups.setdefault(known[i].link_group, []).append(i)
        room = [len(group) for group in groups.values() if len(group) >= size]
        used = {known[i].link_group for i in chosen}
        if room:
            assert len(used) == 1
            assert len(groups[used.pop()]) == min(room)
    if resource.replicas > 1 and not must:
        physical = {split_device_id(i)[0] for i in available}
        assert len({split_device_id(i)[0] for i in chosen}) == min(size, len(physical))


def test_ids_that_stand_for_other_devices_are_chosen_by_these_devices():
    """Link groups are those of the devices, and the ids those that the kubelet knows."""
    a, b, c, d = IDS[0], IDS[1], IDS[4], IDS[5]
    moved = replace(EIGHT, moved=((b, c), (c, b)))
    assert preferred(moved, [a, b, c, d], [], 2) == [a, c]
    assert preferred(moved, [b, d], [], 1) == [b]
    whole = GpuOffer("n", moved)
    assert whole.checked_ids([c, b]) == (b, c)
    assert [file["uuid"] for file in whole.device_files([b]).values()] == [c]
    assert whole.environment([b], "t")["EMUGPU_VISIBLE_DEVICES"] == b


def test_health_goes_out_by_id():
    sick = tuple(replace(entry, healthy=entry.device.index != 4, reason="x") for entry in EIGHT.devices)
    moved = replace(EIGHT, devices=sick, moved=((IDS[1], IDS[4]), (IDS[4], IDS[1])))
    offer = GpuOffer("n", moved)
    assert [each.device_id for each in offer.announced() if not each.healthy] == [IDS[1]]
    assert offer.device_counts == (7, 1)
    with pytest.raises(InputError, match="is unhealthy"):
        offer.checked_ids([IDS[1]])
    assert offer.checked_ids([IDS[4]]) == (IDS[4],)
