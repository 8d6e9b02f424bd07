"""A ledger of nodes that change: what is held stays in the books, what can't be had is nobody's."""

from __future__ import annotations

from dataclasses import replace

import pytest

from emulator_runtime.domain.gpu import Device
from emulator_runtime.domain.units import GIB
from scheduler_sims.clusters.open import NodeState
from scheduler_sims.inputs.cluster_file import NodeSpec
from scheduler_sims.interface.plan import Allocation, DeviceShare, TaskPlacement
from scheduler_sims.loop.ledger import Ledger


def node(name="n1", gpus=3):
    return NodeSpec(name, 8000, 16 * GIB, tuple(Device(name, i, "Tesla-T4", 16 * GIB) for i in range(gpus)))


def wanted(*devices, gpus=1, node="n1"):
    shares = [DeviceShare(device, "Tesla-T4") for device in devices] or [DeviceShare(None, "Tesla-T4")] * gpus
    return Allocation("gpu", (TaskPlacement(node, tuple(shares), 1000),))


def uuid(index):
    return node().devices[index].uuid


def healthy(ledger):
    return [device.healthy for device in ledger.views()["n1"].devices]


def test_absent_devices_are_free_ones_from_the_last_on():
    ledger = Ledger.of_states([NodeState(node(), absent=1)])
    assert healthy(ledger) == [True, True, False]
    assert ledger.resolve(wanted(gpus=3)) is None
    held = ledger.resolve(wanted(uuid(2)), held=True)
    assert held is not None  # one that runs there already
    ledger.take("a", held)
    assert healthy(ledger) == [True, False, True]
    ledger.take("b", ledger.resolve(wanted()))
    assert healthy(ledger) == [True, False, True]
    assert ledger.resolve(wanted()) is None


def test_more_can_be_absent_than_is_free():
    ledger = Ledger.of_states([NodeState(node(), absent=9)])
    assert healthy(ledger) == [False, False, False]
    assert ledger.resolve(wanted()) is None


def test_unhealthy_devices_are_not_given_away():
    ledger = Ledger.of_states([NodeState(node(), unhealthy=frozenset({uuid(0)}))])
    assert healthy(ledger) == [False, True, True]
    assert ledger.resolve(wanted(uuid(0))) is None
    assert [share.device for share in ledger.resolve(wanted(gpus=2)).tasks[0].shares] == [uuid(1), uuid(2)]


def test_on_a_closed_node_nothing_starts():
    ledger = Ledger.of_states([NodeState(node(), closed=True)])
    assert ledger.resolve(wanted()) is None
    cpu = Allocation("cpu", (TaskPlacement("n1", (), 1000),))
    assert ledger.resolve(cpu) is None
    assert ledger.resolve(cpu, held=True) == cpu
    assert ledger.open_nodes() == ()
    ledger.take("a", cpu)
    assert ledger.open_nodes() == (node(),)
    assert ledger.without([("a", cpu)]).resolve(wanted()) is None  # a sketch is closed as well


@pytest.mark.parametrize("how", ["same", "node gone", "device gone", "smaller"])
def test_what_is_held_stays_in_the_books(how):
    ledger = Ledger.of_states([NodeState(node())])
    held = ledger.resolve(wanted(uuid(2)))
    ledger.take("a", held)
    states = {
        "same": [NodeState(node())],
        "node gone": [NodeState(node("n2"))],
        "device gone": [NodeState(node(gpus=1))],
        "smaller": [NodeState(replace(node(), cpu_milli=500))],
    }[how]
    renewed = ledger.renewed(states, {"a": held})
    devices = {device.uuid: device for device in renewed.views()["n1"].devices}
    assert devices[uuid(2)].holders == ("a",)
    if how == "device gone":
        assert [d.healthy for d in devices.values()] == [True, False]
    if how == "smaller":
        assert renewed.resolve(wanted()) is None
    renewed.release("a", held)
    again = renewed.renewed(states, {})
    assert set(again.views()) == {state.spec.name for state in states}


def test_renewed_books_are_as_the_old_ones_where_nothing_changed():
    ledger = Ledger.of_states([NodeState(node())])
    held = ledger.resolve(wanted(gpus=2))
    ledger.take("a", held)
    assert ledger.renewed([NodeState(node())], {"a": held}).views() == ledger.views()


def test_the_same_devices_stay_absent_when_others_become_free():
    """A plan that stops a job takes its devices for another one: the plan was made for the absent devices of its view."""
    ledger = Ledger.of_states([NodeState(node(), absent=1)])
    leaving = ledger.resolve(wanted(uuid(2)), held=True)
    ledger.take("a", leaving)
    assert healthy(ledger) == [True, False, True]
    without = ledger.without([("a", leaving)])
    assert without.resolve(wanted(uuid(0), uuid(2))) is not None
    assert without.resolve(wanted(gpus=3)) is None
    ledger.release("a", leaving)
    assert healthy(ledger) == [True, False, True]


def test_devices_in_use_are_absent_where_too_few_are_free():
    """They stay with their job, but no other job gets them when it ends."""
    ledger = Ledger.of_states([NodeState(node(), absent=1)])
    held = ledger.resolve(wanted(uuid(0), uuid(1), uuid(2)), held=True)
    ledger.take("a", held)
    assert healthy(ledger) == [True, True, False]
    assert ledger.without([("a", held)]).resolve(wanted(gpus=3)) is None
    assert ledger.without([("a", held)]).resolve(wanted(gpus=2)) is not None
