"""Slots of the kubelet and the devices for which they stand: always a permutation, whatever is chosen."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from emulator_runtime.domain.gpu import Device
from emulator_runtime.node.inventory import DeviceEntry, Inventory, ResourceEntry, split_device_id
from sharing_manager.devices.slots import Slots


def inventory(count: int, replicas: int = 1) -> Inventory:
    entries = tuple(DeviceEntry(Device("n1", index, "T", 2**30)) for index in range(count))
    return Inventory("n1", (ResourceEntry("emugpu.dev/emuGPU", entries, replicas),))


def ids_of(found: Inventory) -> list[str]:
    return [i for r in found.resources for e in r.devices for i in r.device_ids(e)]


def fresh(count: int = 3, replicas: int = 1) -> tuple[Slots, list[str]]:
    found = inventory(count, replicas)
    slots = Slots()
    slots.settle(found, ())
    return slots, ids_of(found)


def give(slots: Slots, own: list[str], wanted: list[str], held: set[str] = frozenset()):
    exchange = slots.exchange(own, wanted, held)
    slots.apply(exchange.moved)
    return exchange


def test_without_a_choice_a_slot_stands_for_its_own_device() -> None:
    slots, (a, b, c) = fresh()
    assert give(slots, [a], [a]).moved == {}
    assert slots.devices([a, b, c]) == (a, b, c)


def test_two_slots_exchange_their_devices() -> None:
    slots, (a, b, c) = fresh()
    assert give(slots, [a], [c]).devices == (c,)
    assert slots.devices([a, b, c]) == (c, b, a)
    give(slots, [b], [a])
    assert slots.devices([a, b, c]) == (c, a, b)
    give(slots, [a], [a])  # the next pod of slot a has no scheduler
    assert slots.device(a) == a and sorted(slots.devices([a, b, c])) == sorted([a, b, c])


def test_a_held_device_stays_with_its_slot() -> None:
    slots, (a, b, c) = fresh()
    give(slots, [a], [c])
    found = give(slots, [b], [c], {a})
    assert (found.devices, found.moved, found.missing, found.holders) == ((b,), {}, (c,), {a})


def test_any_free_part_of_a_shared_device_will_do() -> None:
    slots, ids = fresh(2, replicas=2)
    (a0, a1, b0, b1), b = ids, split_device_id(ids[2])[0]
    assert give(slots, [a0], [b]).devices == (b0,)
    assert give(slots, [a1], [b], {a0}).devices == (b1,)
    assert give(slots, [b0], [b], {a0, a1}).missing == (b,)
    assert slots.devices(ids) == (b0, b1, a0, a1)


def test_several_slots_keep_what_they_have_of_the_wanted_devices() -> None:
    slots, (a, b, c) = fresh()
    found = give(slots, [a, b], [b, c])
    assert found.devices == (c, b) and slots.device(c) == a


def test_a_device_that_leaves_takes_no_other_with_it() -> None:
    slots, (a, b, c) = fresh()
    give(slots, [a], [c])
    slots.settle(inventory(2), ())
    assert slots.devices([a, b]) == (a, b)


def test_a_pod_keeps_its_device_when_its_slot_leaves_and_another_slot_has_none_meanwhile() -> None:
    slots, (a, b, c) = fresh()
    give(slots, [c], [a])
    assert slots.settle(inventory(2), {c})
    assert (slots.device(c), slots.device(b)) == (a, b)
    assert slots.device(a).startswith("none:")
    assert not slots.settle(inventory(2), {c})
    slots.settle(inventory(2), ())
    assert slots.devices([a, b]) == (a, b)


def test_the_published_inventory_says_health_by_slot() -> None:
    sick = DeviceEntry(Device("n1", 1, "T", 2**30), healthy=False, reason="broken")
    well = DeviceEntry(Device("n1", 0, "T", 2**30))
    found = Inventory("n1", (ResourceEntry("emugpu.dev/emuGPU", (well, sick)),))
    a, b = ids_of(found)
    again = Inventory.from_json(found.with_moved({a: b, b: a, "elsewhere": a}).to_json(), "test")
    (resource,) = again.resources
    assert {slot: entry.healthy for slot, entry in resource.by_id().items()} == {a: False, b: True}
    assert again.with_moved({}) == found
    (gone,) = found.with_moved({a: "none:a"}).resources
    assert not gone.by_id()[a].healthy


CHOICES = st.lists(
    st.tuples(st.sampled_from(["give", "free", "inventory"]), st.integers(0, 99), st.integers(0, 99)), max_size=30
)


@given(replicas=st.integers(1, 3), choices=CHOICES)
def test_it_is_a_permutation_and_held_slots_keep_their_devices(
    replicas: int, choices: list[tuple[str, int, int]]
) -> None:
    slots, ids = fresh(4, replicas)
    held: dict[str, str] = {}
    for what, one, other in choices:
        if what == "inventory":
            now = inventory(1 + one % 5, replicas)
            slots.settle(now, held)
            ids = ids_of(now)
        elif what == "free":
            held.pop(ids[one % len(ids)], None)
        elif (slot := ids[one % len(ids)]) not in held:
            exchange = give(slots, [slot], [split_device_id(ids[other % len(ids)])[0]], {*held})
            held[slot] = exchange.devices[0]
        assert {slot: slots.device(slot) for slot in held} == held
        devices = slots.devices({*ids, *held})
        assert len(set(devices)) == len(devices)
        if {*held} <= {*ids} and {*held.values()} <= {*ids}:
            slots.settle(inventory(len(ids) // replicas, replicas), held)
            assert sorted(slots.devices(ids)) == sorted(ids)
