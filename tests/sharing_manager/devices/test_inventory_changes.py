"""Changes of the inventory while devices are held: holders keep time and memory, and learn what they have lost."""

import pytest

from emulator_runtime.domain.errors import DeviceLostError, OutOfMemoryError, RefusedError
from emulator_runtime.domain.gpu import Device
from emulator_runtime.domain.lease import Lease
from emulator_runtime.memory.rules import Reservation
from emulator_runtime.node.inventory import DeviceEntry, Inventory, ResourceEntry
from sharing_manager.devices.pool import REMOVED, REPLACED, DevicePool, Loss

MEMORY = 1_000


def device(index, gpu_type="T", memory_bytes=MEMORY):
    return Device("n1", index, gpu_type, memory_bytes)


def inventory(*entries, replicas=1):
    return Inventory("n1", (ResourceEntry("r/x", tuple(entries), replicas),))


G0, G1 = DeviceEntry(device(0)), DeviceEntry(device(1))
U0, U1 = G0.device.uuid, G1.device.uuid


def pool_with(*entries, replicas=1):
    pool = DevicePool()
    assert pool.apply_inventory(inventory(*entries, replicas=replicas)) == []
    return pool


def uuids(pool):
    return [managed.device.uuid for managed in pool.all()]


def test_devices_come_and_go():
    pool = pool_with(G0)
    assert pool.apply_inventory(inventory(G0, G1)) == []
    assert uuids(pool) == [U0, U1]
    assert pool.apply_inventory(inventory(G1)) == []
    assert uuids(pool) == [U1]
    with pytest.raises(DeviceLostError, match=f"device {U0} is lost: {REMOVED}; start again on another device"):
        pool.check("a", [U0])
    with pytest.raises(RefusedError, match="there is no device"):
        pool.admit("a", [U0])


def test_a_device_that_goes_while_it_is_held_is_lost_until_it_comes_back():
    pool = pool_with(G0)
    pool.admit("a", [U0])
    pool.reserve("a", [U0], Reservation(5, 5))
    pool.lease("a", [U0], 0, 100, 0)
    assert pool.apply_inventory(inventory()) == [Loss(U0, REMOVED, frozenset("a"))]
    assert pool.apply_inventory(inventory()) == []
    assert uuids(pool) == []
    with pytest.raises(DeviceLostError):
        pool.check("a", [U0])
    assert pool.apply_inventory(inventory(G0)) == []
    pool.check("a", [U0])
    assert pool.lease("a", [U0], 0, 10, 0) == Lease(100, 110)
    assert pool.all()[0].memory.used_bytes == 5


def test_a_device_that_went_is_forgotten_with_its_last_holder_but_its_time_is_not():
    pool = pool_with(G0)
    pool.admit("a", [U0])
    pool.lease("a", [U0], 0, 100, 0)
    pool.apply_inventory(inventory())
    pool.leave("a", [U0], 60)
    assert pool.find(U0) is None
    pool.apply_inventory(inventory(G0))
    pool.admit("b", [U0])
    assert pool.lease("b", [U0], 0, 10, 0) == Lease(60, 70)


def test_health():
    pool = pool_with(G0, G1)
    pool.admit("a", [U0, U1])
    sick = DeviceEntry(device(1), healthy=False, reason="ECC")
    assert pool.apply_inventory(inventory(G0, sick)) == [Loss(U1, "ECC", frozenset("a"))]
    pool.check("a", [U0])
    with pytest.raises(DeviceLostError, match="ECC"):
        pool.check("a", [U0, U1])
    assert [m.healthy for m in pool.all()] == [True, False]
    assert pool.apply_inventory(inventory(G0, DeviceEntry(device(1), healthy=False))) == []  # only another reason
    with pytest.raises(DeviceLostError, match="it is unhealthy"):
        pool.check("a", [U1])
    pool.apply_inventory(inventory(G0, G1))
    pool.check("a", [U0, U1])


def test_sharing_on_and_off_keeps_holders_and_time():
    pool = pool_with(G0)
    pool.admit("a", [U0])
    pool.lease("a", [U0], 0, 100, 0)
    with pytest.raises(RefusedError):
        pool.admit("b", [U0])
    pool.apply_inventory(inventory(G0, replicas=4))
    pool.admit("b", [U0])
    assert pool.lease("b", [U0], 0, 10, 0) == Lease(100, 110)
    assert pool.all()[0].replicas == 4
    pool.apply_inventory(inventory(G0))
    assert pool.all()[0].holders == set("ab")
    with pytest.raises(RefusedError, match="exclusive and a, b holds it"):
        pool.admit("c", [U0])
    pool.leave("a", [U0], 0)
    pool.leave("b", [U0], 0)
    pool.admit("c", [U0])


def test_another_device_in_its_place_is_a_loss_for_who_held_the_first():
    pool = pool_with(G0)
    pool.admit("a", [U0])
    bigger = DeviceEntry(device(0, "T2", 2 * MEMORY))
    assert pool.apply_inventory(inventory(bigger)) == [Loss(U0, REPLACED, frozenset("a"))]
    with pytest.raises(DeviceLostError, match="another device has taken its place"):
        pool.check("a", [U0])
    pool.leave("a", [U0], 0)
    pool.admit("b", [U0])
    pool.check("b", [U0])
    pool.reserve("b", [U0], Reservation(1_500, 1_500))
    assert pool.specs([U0]) == [bigger.device]
    pool.apply_inventory(inventory(G0))
    with pytest.raises(OutOfMemoryError):
        pool.reserve("b", [U0], Reservation(1_500, 1_500))


def test_leases_of_before_a_restart_wait_for_their_device():
    pool = DevicePool()
    pool.restore("a", [U0, U1], Lease(0, 100))
    pool.restore("b", [U0], Lease(100, 150))
    pool.cut("a", [U1], 40)
    pool.apply_inventory(inventory(G0, G1, replicas=2))
    assert [m.free_at_ns() for m in pool.all()] == [150, 40]
    pool.cut("b", [U0], 120)
    assert pool.all()[0].free_at_ns() == 120


def test_room_is_asked_for_without_taking_it():
    pool = pool_with(G0)
    pool.admit("a", [U0])
    pool.check_room("b", [U0], leaving={"a"})
    with pytest.raises(RefusedError, match="exclusive and a holds it"):
        pool.check_room("b", [U0], leaving=set())
    assert pool.all()[0].holders == {"a"}
