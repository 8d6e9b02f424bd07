from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator_runtime.domain.gpu import device_uuid
from emulator_runtime.domain.units import GIB
from scheduler_sims.interface.plan import WHOLE_DEVICE_MILLI, Allocation, DeviceShare, TaskPlacement
from scheduler_sims.loop.ledger import Ledger
from scheduler_sims.testing import Node

T4, V100 = "Tesla-T4", "Tesla_V100-PCIE-32GB"
NODES = [
    Node("n1", gpus=2, cpus=8, memory_gib=32),
    Node("n2", gpus=3, cpus=4, memory_gib=16, gpu_type=V100),
    Node("n3", cpus=16, memory_gib=8),
]


def shares_on(node):
    """Any share there, of devices that may not be there or be of another type."""
    names = [None, None, *(device_uuid(node, index) for index in range(4))]
    return [
        DeviceShare(name, gpu_type, milli, memory_bytes)
        for name in names
        for gpu_type in (T4, V100)
        for milli in (WHOLE_DEVICE_MILLI, WHOLE_DEVICE_MILLI, 500, 300)
        for memory_bytes in (0, 5 * GIB, 12 * GIB)
    ]


def tasks_on(node):
    shares = st.lists(st.sampled_from(shares_on(node)), max_size=3).map(tuple)
    cpus, memory = st.sampled_from([0, 1000, 5000]), st.sampled_from([0, GIB, 9 * GIB])
    return st.builds(TaskPlacement, st.just(node), shares, cpus, memory)


tasks = st.one_of(*(tasks_on(node) for node in ("n1", "n2", "n3", "nowhere")))
allocations = st.builds(Allocation, st.just("gpu"), st.lists(tasks, min_size=1, max_size=3).map(tuple))
actions = st.lists(st.one_of(allocations, allocations, st.integers(0, 9)), max_size=15)


def snapshot(ledger):
    return dict(ledger.views())


def check(ledger, held):
    """Free is never below nothing, and what is held and free is what is there."""
    for node in NODES:
        view = ledger.views()[node.name]
        on_node = [(job, task) for job, a in held.items() for task in a.tasks if task.node == node.name]
        assert 0 <= view.free_cpu_milli == view.cpu_milli - sum(task.cpu_milli for _, task in on_node)
        assert 0 <= view.free_memory_bytes == view.memory_bytes - sum(task.memory_bytes for _, task in on_node)
        for device in view.devices:
            shares = [(job, s) for job, task in on_node for s in task.shares if s.device == device.uuid]
            assert 0 <= device.free_milli == WHOLE_DEVICE_MILLI - sum(s.milli for _, s in shares)
            used = sum(s.memory_bytes for _, s in shares)
            assert 0 <= device.free_memory_bytes == device.usable_memory_bytes - used
            assert set(device.holders) == {job for job, _ in shares}
            assert all(s.gpu_type == device.gpu_type for _, s in shares)


@settings(max_examples=60, deadline=None)
@given(actions=actions)
def test_taking_what_resolves_and_giving_it_back_keeps_the_books(cluster_spec, actions):
    ledger = Ledger.of(cluster_spec(NODES))
    held = {}
    for number, action in enumerate(actions):
        if isinstance(action, Allocation):
            before = snapshot(ledger)
            resolved = ledger.resolve(action)
            assert snapshot(ledger) == before
            if resolved is not None:
                assert resolved.same_place(resolved)
                assert all(share.device for task in resolved.tasks for share in task.shares)
                for task in resolved.tasks:
                    named = [share.device for share in task.shares]
                    assert len(set(named)) == len(named)
                ledger.take(f"j{number}", resolved)
                held[f"j{number}"] = resolved
        elif held:
            job_id = list(held)[action % len(held)]
            ledger.release(job_id, held.pop(job_id))
        check(ledger, held)
    for job_id, allocation in held.items():
        ledger.release(job_id, allocation)
    assert snapshot(ledger) == snapshot(Ledger.of(cluster_spec(NODES)))


@settings(max_examples=60, deadline=None)
@given(wanted=st.lists(allocations, min_size=2, max_size=8), data=st.data())
def test_a_sketch_shows_what_will_be_free_and_leaves_its_original_alone(cluster_spec, wanted, data):
    ledger = Ledger.of(cluster_spec(NODES))
    held = {}
    for number, allocation in enumerate(wanted):
        resolved = ledger.resolve(allocation)
        if resolved is not None:
            ledger.take(f"j{number}", resolved)
            held[f"j{number}"] = resolved
    before = snapshot(ledger)
    leaving = data.draw(st.sets(st.sampled_from(sorted(held)))) if held else set()
    sketch = ledger.without([(job_id, held[job_id]) for job_id in sorted(leaving)])
    check(sketch, {job_id: a for job_id, a in held.items() if job_id not in leaving})
    for number, allocation in enumerate(wanted):
        resolved = sketch.resolve(allocation)
        if resolved is not None:
            sketch.take(f"again-{number}", resolved)
    assert snapshot(ledger) == before
    check(ledger, held)


@pytest.fixture
def ledger(cluster_spec):
    return Ledger.of(cluster_spec(NODES))


def one(node, *shares, cpu_milli=1000):
    return Allocation("gpu", (TaskPlacement(node, shares, cpu_milli),))


def test_a_share_without_a_name_gets_the_first_free_device(ledger):
    ledger.take("a", one("n1", DeviceShare(device_uuid("n1", 0), T4)))
    resolved = ledger.resolve(one("n1", DeviceShare(None, T4)))
    assert resolved.tasks[0].shares[0].device == device_uuid("n1", 1)


@pytest.mark.parametrize(
    "wanted",
    [
        one("nowhere"),
        one("n1", DeviceShare(None, V100)),
        one("n1", DeviceShare(device_uuid("n2", 0), T4)),
        one("n1", DeviceShare(device_uuid("n1", 0), T4), DeviceShare(device_uuid("n1", 0), T4)),
        one("n1", *[DeviceShare(None, T4)] * 3),
        one("n1", DeviceShare(None, T4, memory_bytes=15 * GIB)),
        one("n1", cpu_milli=8001),
    ],
    ids=["node", "type", "foreign device", "device twice", "too many", "device memory", "cpus"],
)
def test_what_does_not_fit_has_no_place(ledger, wanted):
    assert ledger.resolve(wanted) is None


def test_all_tasks_have_a_place_or_none(ledger):
    task = one("n1", DeviceShare(None, T4)).tasks[0]
    assert ledger.resolve(Allocation("gpu", (task, task))) is not None
    assert ledger.resolve(Allocation("gpu", (task, task, task))) is None


def test_tasks_of_one_job_may_share_a_device(ledger):
    half = TaskPlacement("n1", (DeviceShare(device_uuid("n1", 0), T4, 500, GIB),), 1000)
    both = ledger.resolve(Allocation("gpu", (half, half)))
    ledger.take("a", both)
    assert ledger.views()["n1"].devices[0].free_milli == 0
    assert ledger.resolve(Allocation("gpu", (half,))) is None
    ledger.release("a", both)
    assert ledger.views()["n1"].devices[0].free_milli == WHOLE_DEVICE_MILLI


def test_a_view_is_made_anew_only_after_a_change(ledger):
    first = snapshot(ledger)
    allocation = one("n2", DeviceShare(device_uuid("n2", 1), V100))
    ledger.take("a", allocation)
    second = snapshot(ledger)
    assert second["n1"] is first["n1"]
    assert second["n2"] is not first["n2"]
    assert second["n2"].devices[1].holders == ("a",)
    assert [second["n2"].devices[index] is first["n2"].devices[index] for index in range(3)] == [True, False, True]
    assert (ledger.changed, ledger.views() is ledger.views()) == ({"n1", "n2", "n3"}, True)
    ledger.changed.clear()
    ledger.release("a", allocation)
    assert ledger.changed == {"n2"}


# --- shortages ------------------------------------------------------------------------------------------------------------


def on_n1(gpus=0, cpus=0, memory_gib=0, gpu_type=T4, node="n1"):
    shares = tuple(DeviceShare(None, gpu_type) for _ in range(gpus))
    return Allocation("gpu", (TaskPlacement(node, shares, cpus * 1000, memory_gib * GIB),))


@pytest.mark.parametrize(
    ("wanted", "text", "never"),
    [
        (on_n1(cpus=9), "it needs 9 CPUs, 5 of the node's 8 are free", True),
        (on_n1(cpus=6), "it needs 6 CPUs, 5 of the node's 8 are free", False),
        (on_n1(memory_gib=33), "it needs 33.00 GiB of memory, 30.00 GiB of the node's 32.00 GiB are free", True),
        (on_n1(memory_gib=31), "it needs 31.00 GiB of memory, 30.00 GiB of the node's 32.00 GiB are free", False),
        (on_n1(gpus=3), f"it needs 3 GPUs of type {T4}, 1 of the node's 2 are free", True),
        (on_n1(gpus=2), f"it needs 2 GPUs of type {T4}, 1 of the node's 2 are free", False),
        (on_n1(gpus=1, gpu_type=V100), f"it needs 1 GPU of type {V100}, 0 of the node's 0 are free", True),
        (on_n1(gpus=1, node="n9"), "'n9', which is no node of the cluster; see ClusterView.nodes", True),
    ],
)
def test_a_shortage_names_need_and_free_amount_and_whether_an_empty_node_would_do(cluster_spec, wanted, text, never):
    ledger = Ledger.of(cluster_spec(NODES))
    held = ledger.resolve(on_n1(gpus=1, cpus=3, memory_gib=2))
    ledger.take("held", held)
    assert ledger.resolve(wanted) is None
    shortage = ledger.shortage(wanted)
    assert shortage.text == (text if "n9" in text else f"n1, where it does not fit beside the rest: {text}")
    assert shortage.never is never
