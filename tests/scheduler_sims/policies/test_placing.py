from __future__ import annotations

from dataclasses import replace

import pytest

from emulator_runtime.domain.errors import PolicyError
from emulator_runtime.domain.gpu import device_uuid
from emulator_runtime.domain.job import Configuration
from scheduler_sims.interface.plan import Allocation, DeviceShare, TaskPlacement
from scheduler_sims.interface.view import Phase
from scheduler_sims.policies.placing import FreeSpace, fits_somewhere, main_configuration
from scheduler_sims.testing import Job, Node, cluster_view


def gpus(number, cpu_milli=1000, **more):
    return Configuration("gpu", number, cpu_milli, **more)


def on_cpus(cpu_milli, **more):
    return Configuration("cpu", 0, cpu_milli, **more)


def where(allocation):
    return None if allocation is None else [(t.node, [s.device for s in t.shares]) for t in allocation.tasks]


def tasks(*allocations):
    return [task for allocation in allocations for task in allocation.tasks]


def uuids(node, *indices):
    return [(node, [device_uuid(node, i) for i in indices])]


def test_takes_devices_by_index_and_names_them():
    space = FreeSpace.now(cluster_view([Node("n", gpus=4)], []))
    first = space.place(gpus(2, device_memory_bytes=5))
    assert where(first) == uuids("n", 0, 1)
    assert [(s.milli, s.memory_bytes, s.gpu_type) for s in first.tasks[0].shares] == [(1000, 5, "Tesla-T4")] * 2
    assert (first.configuration, first.tasks[0].cpu_milli) == ("gpu", 1000)
    assert where(space.place(gpus(1))) == uuids("n", 2)
    assert space.place(gpus(2)) is None
    assert where(space.place(gpus(1))) == uuids("n", 3)


def test_prefers_the_node_with_the_fewest_free_devices_then_node_order():
    space = FreeSpace.now(cluster_view([Node("big", gpus=4), Node("small", gpus=2), Node("also", gpus=2)], []))
    assert [space.place(gpus(1)).nodes[0] for _ in range(4)] == ["small", "small", "also", "also"]
    assert space.place(gpus(3)).nodes == ("big",)


def test_a_job_is_not_split_over_nodes():
    space = FreeSpace.now(cluster_view([Node("a", gpus=2), Node("b", gpus=2)], []))
    assert space.place(gpus(3)) is None


@pytest.mark.parametrize(
    ("wanted", "place"),
    [
        (gpus(1, 9000), "roomy"),
        (gpus(1, memory_bytes=100 * 2**30), "roomy"),
        (gpus(1, gpu_types=("V100",)), "v100"),
        (gpus(1, gpu_types=("V100", "K80")), "v100"),
        (gpus(1, device_memory_bytes=15 * 2**30), "v100"),  # 16 GiB nominal are 14.8 usable
        (gpus(1, gpu_types=("H100",)), None),
        (gpus(3), "roomy"),
        (gpus(4), None),
    ],
)
def test_needs_of_gpu_configurations(wanted, place):
    nodes = [
        Node("tight", gpus=1, cpus=8, memory_gib=32),
        Node("v100", gpus=1, cpus=8, memory_gib=32, gpu_type="V100", gpu_memory_gib=32),
        Node("roomy", gpus=3, cpus=64, memory_gib=256),
    ]
    found = FreeSpace.now(cluster_view(nodes, [])).place(wanted)
    assert (found and found.nodes[0]) == place


def test_cpu_configurations_prefer_cpu_nodes_then_full_gpu_nodes():
    nodes = [Node("idle-gpus", gpus=2, cpus=4), Node("busy-gpus", gpus=1, cpus=4), Node("cpu", cpus=4)]
    view = cluster_view(nodes, [Job("j", gpu_s=1, cpus=1, on="busy-gpus/0")])
    space = FreeSpace.now(view)
    assert [space.place(on_cpus(3000)).nodes[0] for _ in range(3)] == ["cpu", "busy-gpus", "idle-gpus"]
    assert space.place(on_cpus(3000)) is None


def test_now_counts_what_stopping_jobs_still_hold_and_empty_does_not():
    jobs = [Job("a", gpu_s=1, on="n/0"), Job("b", gpu_s=1, on="n/1", phase=Phase.STOPPING)]
    view = cluster_view([Node("n", gpus=2)], jobs)
    assert FreeSpace.now(view).place(gpus(1)) is None
    assert where(FreeSpace.empty(view).place(gpus(2))) == uuids("n", 0, 1)


def test_broken_devices_are_not_there_even_when_released():
    view = cluster_view([Node("n", gpus=2, unhealthy=(0,))], [Job("a", gpu_s=1, on="n/0")])
    space = FreeSpace.now(view)
    space.release(view.jobs["a"].allocation)
    assert where(space.place(gpus(1))) == uuids("n", 1)
    assert space.place(gpus(1)) is None
    assert FreeSpace.empty(view).place(gpus(2)) is None


def test_release_and_take_undo_each_other():
    view = cluster_view([Node("n", gpus=2, cpus=2)], [Job("a", gpu_s=1, on="n/1")])
    space, held = FreeSpace.now(view), view.jobs["a"].allocation
    with pytest.raises(PolicyError, match="is not free"):
        space.take(held)
    space.release(held)
    space.take(held)
    assert space.place(gpus(2)) is None
    space.release(held)
    assert where(space.place(gpus(2, 2000))) == uuids("n", 0, 1)


def test_fits_asks_without_changing_anything():
    jobs = [Job("a", gpu_s=1, cpus=2, memory_gib=1, on="n/0"), Job("b", gpu_s=1, cpus=1, on="n/1")]
    view = cluster_view([Node("n", gpus=3, cpus=4, memory_gib=1, unhealthy=(2,))], jobs)
    space = FreeSpace.now(view)
    a, b = (view.jobs[name].allocation for name in "ab")
    one = gpus(1, 1000)
    assert [space.fits(one, "n", tasks(*without)) for without in ([], [a], [b], [a, b])] == [False, True, True, True]
    assert [space.fits(gpus(2, 4000), "n", tasks(*without)) for without in ([a], [a, b])] == [False, True]
    assert [space.fits(gpus(1, 2000), "n", tasks(a)), space.fits(gpus(1, 3000), "n", tasks(b))] == [True, False]
    assert [space.fits(gpus(1, memory_bytes=2**30), "n", tasks(x)) for x in (a, b)] == [True, False]
    assert not space.fits(gpus(3), "n", tasks(a, b))
    assert not space.fits(gpus(1, gpu_types=("V100",)), "n", tasks(a, b))
    assert [space.fits(on_cpus(3000), "n", tasks(*without)) for without in ([], [a])] == [False, True]
    assert space.place(one) is None


def test_a_space_leaves_the_view_and_later_spaces_alone():
    view = cluster_view([Node("n", gpus=1)], [])
    assert FreeSpace.now(view).place(gpus(1))
    assert FreeSpace.now(view).place(gpus(1))


def test_a_followed_space_sees_changed_nodes_and_forgets_what_was_tried():
    nodes = [Node("n", gpus=1), Node("m", gpus=1)]
    before, after = cluster_view(nodes, []), cluster_view(nodes, [Job("a", gpu_s=1, on="n/0")])
    shown = dict(before.nodes)
    view = replace(before, nodes=shown, changed_nodes=frozenset())
    space = FreeSpace.now(view)
    assert [where(space.place(gpus(1))), where(space.place(gpus(1)))] == [uuids("n", 0), uuids("m", 0)]
    shown["n"] = after.nodes["n"]
    assert space.follow(replace(view, changed_nodes=frozenset({"n"}))) is space
    assert [where(space.place(gpus(1))), space.place(gpus(1))] == [uuids("m", 0), None]


def test_what_fits_nowhere_is_tried_again_after_a_release():
    view = cluster_view([Node("n", gpus=2)], [])
    space = FreeSpace.now(view)
    held = space.place(gpus(1))
    assert space.place(gpus(2)) is None
    assert space.fits_after(gpus(2), [held])
    assert space.place(gpus(2)) is None
    space.release(held)
    assert space.place(gpus(2))


def test_shared_devices_are_not_whole_until_all_shares_are_back():
    view = cluster_view([Node("n", gpus=1)], [])
    node = view.nodes["n"]
    half = replace(node, devices=(replace(node.devices[0], free_milli=400),))
    space = FreeSpace.now(replace(view, nodes={"n": half}))

    def share(milli):
        return Allocation("gpu", (TaskPlacement("n", (DeviceShare(device_uuid("n", 0), "Tesla-T4", milli),), 0),))

    assert space.place(gpus(1)) is None
    assert [space.fits(gpus(1), "n", tasks(share(milli))) for milli in (500, 600)] == [False, True]
    with pytest.raises(PolicyError, match="is not free"):
        space.take(share(500))
    space.take(share(100))
    with pytest.raises(PolicyError, match="is not free"):
        space.take(share(400))
    space.release(share(700))
    assert space.place(gpus(1))


def test_restricting_the_search_to_a_node_or_device():
    space = FreeSpace.now(cluster_view([Node("a", gpus=2), Node("b", gpus=2)], []))
    assert where(space.place(gpus(1), node="b", device=device_uuid("b", 1))) == uuids("b", 1)
    assert space.place(gpus(1), node="b", device=device_uuid("b", 1)) is None
    assert space.place(gpus(2), node="b") is None


@pytest.mark.parametrize(
    ("node", "device", "cpu_milli", "message"),
    [
        ("x", None, 0, "node 'x' is not in the cluster; it has n"),
        ("n", None, 0, "a share on node n names no device"),
        ("n", "GPU-0", 0, "device GPU-0 of node n is not free"),
        ("n", device_uuid("n", 0), 99_000, "node n has not enough free CPUs or memory"),
    ],
)
def test_taking_what_is_not_there_is_refused(node, device, cpu_milli, message):
    space = FreeSpace.now(cluster_view([Node("n", gpus=1)], []))
    with pytest.raises(PolicyError, match=message):
        space.take(Allocation("gpu", (TaskPlacement(node, (DeviceShare(device, "Tesla-T4"),), cpu_milli),)))


def test_taking_a_device_twice_or_nodes_beyond_their_sum_is_refused_and_takes_nothing():
    space = FreeSpace.now(cluster_view([Node("n", gpus=1, cpus=4)], []))
    share = DeviceShare(device_uuid("n", 0), "Tesla-T4")
    with pytest.raises(PolicyError, match="is not free"):
        space.take(Allocation("gpu", (TaskPlacement("n", (share,), 0), TaskPlacement("n", (share,), 0))))
    with pytest.raises(PolicyError, match="not enough free CPUs"):
        space.take(Allocation("cpu", (TaskPlacement("n", (), 3000), TaskPlacement("n", (), 3000))))
    assert space.place(gpus(1, 4000))


def test_releasing_an_unknown_device_is_refused():
    space = FreeSpace.now(cluster_view([Node("n", gpus=1)], []))
    with pytest.raises(PolicyError, match="node n has no device GPU-9"):
        space.release(Allocation("gpu", (TaskPlacement("n", (DeviceShare("GPU-9", "Tesla-T4"),), 0),)))


def test_fits_somewhere_asks_about_the_empty_cluster_with_all_devices_healthy():
    view = cluster_view([Node("n", gpus=2, cpus=4, unhealthy=(0,))], [Job("a", gpu_s=1, on="n/1")])
    assert fits_somewhere(view, gpus(2, 4000))
    assert not fits_somewhere(view, gpus(3))
    assert not fits_somewhere(view, gpus(1, 5000))
    assert not fits_somewhere(view, on_cpus(1, memory_bytes=1))
    assert not fits_somewhere(view, gpus(1, gpu_types=("V100",)))


def test_the_main_configuration_is_the_first_on_gpus_that_can_fit():
    view = cluster_view([Node("n", gpus=2)], [])
    small, large, cpu = gpus(1), replace(gpus(8), name="large"), on_cpus(1000)
    job = cluster_view([], [Job("j", gpu_s=1)]).jobs["j"]
    cases = [
        ((cpu, large, small), small),
        ((cpu, large), cpu),
        ((cpu,), cpu),
        ((large,), large),
        ((large, large), large),
    ]
    for configurations, main in cases:
        assert main_configuration(view, replace(job, configurations=configurations)) is main
