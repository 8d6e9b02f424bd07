"""The device pool: several devices are taken together or not at all. Inventory files: error messages."""

import itertools
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator_runtime.domain.errors import InputError, OutOfMemoryError, RefusedError
from emulator_runtime.domain.gpu import Device, MigPlace, device_uuid
from emulator_runtime.domain.lease import Lease
from emulator_runtime.domain.mig import instances
from emulator_runtime.memory.rules import Reservation
from emulator_runtime.node.inventory import DeviceEntry, Inventory, ResourceEntry
from emulator_runtime.sharing.modes import MODES
from sharing_manager.devices.inventories import read_inventory
from sharing_manager.devices.pool import DevicePool

SIZES = (1000, 1000, 500)
UUIDS = [device_uuid("n1", index) for index in range(len(SIZES))]


def pool_of(mode):
    return DevicePool([Device("n1", index, "T", size) for index, size in enumerate(SIZES)], MODES[mode])


def state(pool):
    return [(d.free_at_ns(), d.leased_ns, sorted(d.holders), dict(d.memory.held)) for d in pool.all()]


def test_an_exclusive_device_among_several_leaves_all_as_they_were():
    pool = pool_of("exclusive")
    pool.admit("a", [UUIDS[2]])
    before = state(pool)
    with pytest.raises(RefusedError, match=f"^device {UUIDS[2]}: it is exclusive and a holds it; wait"):
        pool.admit("b", UUIDS)
    with pytest.raises(RefusedError, match="there is no device GPU-x on this node"):
        pool.admit("b", [UUIDS[0], "GPU-x"])
    assert state(pool) == before
    pool.admit("b", UUIDS[:2])


def test_a_refusal_does_not_turn_back_the_time_of_a_shared_device():
    pool = pool_of("fifo")
    pool.all()[1].wanted = MODES["exclusive"]
    pool.admit("a", [UUIDS[0]])
    assert pool.lease("a", [UUIDS[0]], 10, 10, 10) == Lease(10, 20)
    pool.leave("a", [UUIDS[0]], 20)
    pool.admit("b", [UUIDS[1]])
    with pytest.raises(RefusedError, match="it is exclusive and b holds it"):
        pool.admit("a", UUIDS[:2])
    pool.all()[1].wanted = MODES["fifo"]
    pool.admit("c", [UUIDS[1]])  # the inventory has changed back before the device did
    pool.admit("b", [UUIDS[0]])
    assert pool.lease("b", [UUIDS[0]], 0, 5, 20) == Lease(20, 25)


def test_memory_on_all_devices_or_on_none():
    pool = pool_of("fifo")
    pool.admit("a", UUIDS)
    pool.reserve("a", UUIDS, Reservation(100, 100))
    before = state(pool)
    with pytest.raises(OutOfMemoryError, match=UUIDS[2]):  # only the third is too small
        pool.reserve("a", UUIDS, Reservation(600, 600))
    assert state(pool) == before
    pool.admit("b", UUIDS)
    with pytest.raises(OutOfMemoryError):
        pool.reserve("b", UUIDS, Reservation(600, 600))
    assert state(pool)[0][3] == {"a": Reservation(100, 100)}
    pool.free_memory("a", UUIDS)
    assert state(pool)[0][3] == {}


def test_a_lease_starts_when_all_devices_are_free():
    pool = pool_of("fifo")
    assert pool.lease("a", [UUIDS[0]], 0, 10, 0) == Lease(0, 10)
    assert pool.lease("b", [UUIDS[1]], 3, 4, 3) == Lease(3, 7)
    assert pool.lease("c", UUIDS, 5, 5, 5) == Lease(10, 15)
    assert pool.lease("b", [UUIDS[1]], 7, 1, 7) == Lease(15, 16)
    assert [d.leased_ns for d in pool.all()] == [15, 10, 5]


def test_cpu_work_starts_at_once():
    assert pool_of("exclusive").lease("a", [], 7, 5, 7) == Lease(7, 12)


def test_leaving_gives_back_time_memory_and_place_once():
    pool = pool_of("exclusive")
    pool.admit("a", UUIDS[:2])
    pool.reserve("a", UUIDS[:2], Reservation(1, 2))
    pool.lease("a", UUIDS[:2], 100, 50, 100)
    for _ in range(2):
        pool.leave("a", [*UUIDS[:2], "GPU-unknown"], 120)
        assert state(pool)[0] == (120, 20, [], {})
    pool.admit("b", UUIDS)


slots = st.lists(st.tuples(st.sampled_from("abc"), st.sets(st.integers(0, 2)), st.integers(0, 20), st.integers(1, 9)))


@given(slots)
def test_leases_of_a_device_never_overlap(requests):
    pool, now, given_out = pool_of("fifo"), 0, {uuid: [] for uuid in UUIDS}
    for holder, indexes, pause, duration in requests:
        now += pause
        uuids = [UUIDS[index] for index in sorted(indexes)]
        lease = pool.lease(holder, uuids, now, duration, now)
        assert lease.start_ns >= now
        assert lease.end_ns - lease.start_ns == duration
        for uuid in uuids:
            given_out[uuid].append(lease)
    for device in pool.all():
        leases = given_out[device.device.uuid]
        assert all(left.end_ns <= right.start_ns for left, right in itertools.pairwise(leases))
        assert device.leased_ns == sum(lease.end_ns - lease.start_ns for lease in leases)


A100 = "NVIDIA_A100-SXM4-40GB"
GOOD = {"index": 0, "gpu_type": "T", "memory_bytes": 10}


def test_an_inventory(tmp_path):
    path = tmp_path / "inventory.json"
    path.write_text(json.dumps([GOOD, GOOD | {"index": 5, "memory_bytes": 20}]))
    assert read_inventory(path, "n1") == [Device("n1", 0, "T", 10), Device("n1", 5, "T", 20)]
    path.write_text("[]")
    assert read_inventory(path, "n1") == []


def test_an_inventory_with_mig_instances(tmp_path):
    path, part = tmp_path / "inventory.json", {"index": 1, "gpu_type": f"{A100}-MIG-3g.20gb", "memory_bytes": 10}
    path.write_text(json.dumps([part | {"mig": {"gpu": 0, "start": 4}}]))
    assert read_inventory(path, "n1") == [Device("n1", 1, f"{A100}-MIG-3g.20gb", 10, MigPlace(0, 4))]
    path.write_text(json.dumps([part | {"mig": {"gpu": 0}}]))
    with pytest.raises(InputError, match=r"\[0\]: mig: start is missing"):
        read_inventory(path, "n1")
    path.write_text(json.dumps([part]))
    with pytest.raises(InputError, match=f"^{path}: device 1: an instance has mig and a type"):
        read_inventory(path, "n1")


def test_another_cut_of_a_gpu_takes_its_instances_from_their_holders():
    gpu, wanted = Device("n1", 0, A100, 40), Reservation(1, 2)

    def inventory(*profiles):
        devices = tuple(DeviceEntry(each) for each in instances(gpu, 1, profiles, "test"))
        return Inventory("n1", (ResourceEntry("emugpu.dev/emuGPU", devices),))

    pool = DevicePool()
    pool.apply_inventory(inventory("3g.20gb", "4g.20gb"))
    three, four = (each.device.uuid for each in pool.all())
    for holder, uuid in (("a", three), ("b", four)):
        pool.admit(holder, [uuid])
        pool.reserve(holder, [uuid], wanted)
    with pytest.raises(RefusedError, match="it is exclusive and a holds it"):
        pool.admit("c", [three])
    (loss,) = pool.apply_inventory(inventory("2g.10gb", "4g.20gb"))
    assert (loss.uuid, loss.reason, loss.holders) == (three, "it is no longer in the node's inventory", {"a"})
    pool.check("b", [four])


@pytest.mark.parametrize(
    ("entry", "place"),
    [
        ({}, "[1]"),
        (3, "[1]"),
        (GOOD | {"index": -1}, "[1]"),
        (GOOD | {"index": "0"}, "[1]"),
        (GOOD | {"index": True}, "[1]"),
        (GOOD | {"gpu_type": None}, "[1]"),
        (GOOD | {"index": 1, "memory_bytes": 0}, "[1]"),
        (GOOD | {"index": 1, "memory_bytes": 1.5}, "[1]"),
        (GOOD | {"index": 1, "memory_bytes": True}, "[1]"),
    ],
)
def test_a_bad_entry_is_named(tmp_path, entry, place):
    path = tmp_path / "inventory.json"
    path.write_text(json.dumps([GOOD, entry]))
    with pytest.raises(InputError) as caught:
        read_inventory(path, "n1")
    assert str(caught.value) == f"{path}: {place}: must have index (>= 0), gpu_type (a text) and memory_bytes (> 0)"


def test_two_devices_in_one_place(tmp_path):
    path = tmp_path / "inventory.json"
    path.write_text(json.dumps([GOOD, GOOD | {"index": 1}, GOOD]))
    with pytest.raises(InputError, match=r"\[2\]: index 0 is taken by an entry before it"):
        read_inventory(path, "n1")


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "not valid JSON"),
        (b"\xff", "not valid JSON"),
        (b"[" * 100_000, "not valid JSON"),
        (b"3", "must hold a list of devices"),
        (b"{}", "version is missing"),
        (None, "can't read the inventory: No such file or directory"),
    ],
    ids=["empty", "binary", "deep", "number", "object", "missing"],
)
def test_a_file_that_is_no_inventory(tmp_path, content, problem):
    path = tmp_path / "inventory.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=f"^{path}: {problem}"):
        read_inventory(path, "n1")
