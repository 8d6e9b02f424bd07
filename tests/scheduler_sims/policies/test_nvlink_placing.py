"""Where jobs run on clusters whose NVLink domains are parts of nodes, or several nodes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from emulator_runtime.domain.job import Configuration
from emulator_runtime.domain.parallelism import Parallelism
from scheduler_sims.experiment import Experiment
from scheduler_sims.policies.fifo import Fifo
from scheduler_sims.policies.placement import Placed
from scheduler_sims.policies.placing import FreeSpace, fits_somewhere
from scheduler_sims.policies.srtf import Srtf
from scheduler_sims.testing import Job, Node, cluster_view, places

PAIRS = Node("n1", gpus=4, nvlink=("a", "a", "b", "b"))
RACKS = [Node(f"n{number}", gpus=2, nvlink=("r1" if number < 4 else "r2",) * 2) for number in range(1, 6)]
"""Three nodes of one domain, and two of another."""


def way(gpus, nodes=1, tensor=1):
    return Configuration("gpu", gpus, 1000, min_tasks=nodes, max_tasks=nodes, parallelism=Parallelism(tensor))


def indexes(view, allocation):
    names = {device.uuid: device.index for node in view.nodes.values() for device in node.devices}
    return allocation and [names[share.device] for task in allocation.tasks for share in task.shares]


def placed(nodes, jobs, *wanted):
    view = cluster_view(nodes, jobs)
    space = FreeSpace.now(view)
    return [indexes(view, space.place(each)) for each in wanted]


# --- parts of a node ----------------------------------------------------------------------------------------------------


def test_a_job_gets_devices_that_nvlink_joins():
    busy = [Job("x", gpu_s=1, on="n1/0")]
    assert placed([PAIRS], busy, way(2), way(1)) == [[2, 3], [1]]


def test_a_single_device_is_taken_from_the_fullest_domain():
    busy = [Job("x", gpu_s=1, on="n1/2")]
    assert placed([PAIRS], busy, way(1), way(2)) == [[3], [0, 1]]


def test_more_than_a_domain_has_is_taken_from_few():
    assert placed([PAIRS], [], way(3)) == [[0, 1, 2]]


def test_a_layer_stays_in_a_domain():
    two_halves = [Job("x", gpu_s=1, on="n1/1"), Job("y", gpu_s=1, on="n1/2")]
    assert placed([PAIRS], two_halves, way(2), way(2, tensor=2)) == [[0, 3], None]
    assert placed([PAIRS], two_halves, way(2, tensor=2), way(2)) == [None, [0, 3]]
    assert placed([PAIRS], [], way(4, tensor=2)) == [[0, 1, 2, 3]]
    assert not fits_somewhere(cluster_view([PAIRS], []), way(4, tensor=4))
    assert fits_somewhere(cluster_view([PAIRS], []), way(4, tensor=2))


def test_what_leaves_makes_room_for_a_layer():
    """Two free devices of two domains aren't enough; one of the two jobs must leave."""
    view = cluster_view([PAIRS], [Job("x", gpu_s=90, gpus=1, on="n1/1"), Job("y", gpu_s=80, gpus=1, on="n1/2")])
    space = FreeSpace.now(view)
    held = view.plan.allocations
    assert not space.fits(way(2, tensor=2), "n1")
    assert space.fits(way(2, tensor=2), "n1", held["x"].tasks)
    assert space.fits_after(way(2, tensor=2), [held["y"]])


def test_a_job_is_preempted_for_a_layer():
    jobs = [
        Job("x", gpu_s=90, on="n1/1"),
        Job("y", gpu_s=80, on="n1/2"),
        Job("short", gpu_s=5, gpus=2, tensor=2, submit_s=1),
    ]
    view = cluster_view([PAIRS], jobs)
    assert places(view, Srtf().plan(view)) == {"y": "n1/2", "short": "n1/0 n1/1"}


def test_a_job_goes_to_a_node_where_one_domain_has_room():
    """Not to the fullest node, where it would get a half of each of two pairs."""
    other = Node("n2", gpus=4, nvlink=("c", "c", "d", "d"))
    busy = [Job("x", gpu_s=1, on="n1/0"), Job("y", gpu_s=1, on="n1/2")]
    view = cluster_view([PAIRS, other], busy)
    space = FreeSpace.now(view)
    assert [space.place(way(gpus)).nodes[0] for gpus in (2, 1, 1, 1)] == ["n2", "n1", "n1", "n2"]


def test_a_job_that_no_domain_holds_goes_where_it_takes_the_fewest():
    eight = Node("n1", gpus=8, nvlink=tuple("aabbccdd"))
    halves = Node("n2", gpus=8, nvlink=tuple("eeeeffff"))
    assert FreeSpace.now(cluster_view([eight, halves], [])).place(way(6)).nodes == ("n2",)


def test_the_rest_of_a_job_is_taken_from_the_smallest_domain_that_has_it():
    ten = Node("n1", gpus=10, nvlink=tuple("aaaabbbbcc"))
    assert placed([ten], [], way(6), way(4, tensor=4)) == [[0, 1, 2, 3, 8, 9], [4, 5, 6, 7]]


def test_free_devices_of_domains_are_counted_while_jobs_come_and_go():
    view = cluster_view(RACKS, [Job("x", gpu_s=1, gpus=2, on="n1/0 n1/1"), Job("y", gpu_s=1, gpus=2, on="n2/0 n2/1")])
    space = FreeSpace.now(view)
    assert space.place(way(1)).nodes == ("n3",)  # two of the first domain are free, four of the other one
    space.release(view.plan.allocations["x"])
    space.release(view.plan.allocations["y"])
    assert space.place(way(1)).nodes == ("n4",)


def test_jobs_with_and_without_layers_wait_in_lines_of_their_own():
    """A job of two devices anywhere overtakes one that needs a pair."""
    busy = [Job("x", gpu_s=500, on="n1/1"), Job("y", gpu_s=500, on="n1/2")]
    jobs = [*busy, Job("t", gpu_s=9, gpus=2, tensor=2, submit_s=1), Job("u", gpu_s=9, gpus=2, submit_s=2)]
    view = cluster_view([PAIRS], jobs, now_s=3)
    assert places(view, Fifo("any").plan(view))["u"] == "n1/0 n1/3"


# --- several nodes ------------------------------------------------------------------------------------------------------


def test_a_gang_gets_nodes_that_nvlink_joins():
    view = cluster_view(RACKS, [Job("x", gpu_s=1, gpus=2, nodes=2, submit_s=1), Job("y", gpu_s=1, gpus=6, nodes=3)])
    plan = Fifo().plan(view)
    assert {job_id: a.nodes for job_id, a in plan.allocations.items()} == {
        "y": ("n1", "n2", "n3"),
        "x": ("n4", "n5"),  # the smallest domain that has room
    }


def test_a_job_of_one_node_leaves_larger_domains_alone():
    view = cluster_view(RACKS, [])
    assert FreeSpace.now(view).place(way(2)).nodes == ("n4",)
    assert FreeSpace.now(view).place(way(1)).nodes == ("n4",)


def test_a_gang_prefers_the_type_of_gpu_of_which_a_domain_has_enough():
    apart = [replace(node, nvlink=()) for node in RACKS[:2]]
    joined = [Node(f"v{n}", gpus=2, gpu_type="Tesla_V100-PCIE-32GB", nvlink=("v", "v")) for n in (1, 2)]
    view = cluster_view([*apart, *joined], [])
    assert FreeSpace.now(view).place(way(2, 2)).nodes == ("v1", "v2")


def test_a_layer_may_be_divided_over_nodes_of_a_domain():
    busy = [Job("x", gpu_s=1, gpus=2, on="n1/0 n1/1")]
    view = cluster_view(RACKS, busy)
    space = FreeSpace.now(view)
    assert space.place(way(2, 3)).nodes == ("n2", "n3", "n4")
    assert FreeSpace.now(view).place(way(2, 4, tensor=4)).nodes == ("n2", "n3", "n4", "n5")
    assert FreeSpace.now(view).place(way(2, 3, tensor=6)) is None
    assert fits_somewhere(view, way(2, 3, tensor=6))
    assert not fits_somewhere(view, way(2, 6, tensor=4))  # the third node of the first domain has no other half


def test_nodes_without_a_domain_are_their_own():
    plain = [replace(node, nvlink=()) for node in RACKS]
    view = cluster_view(plain, [])
    assert FreeSpace.now(view).place(way(2, 2)).nodes == ("n1", "n2")
    assert FreeSpace.now(view).place(way(2, 2, tensor=4)) is None
    assert not fits_somewhere(view, way(2, 2, tensor=4))


@pytest.mark.parametrize("rule", ["packed", "spread", "random"])
def test_another_rule_moves_the_others_only(rule):
    divided, plain = Job("x", gpu_s=1, gpus=4, nodes=2, tensor=4), Job("y", gpu_s=1, gpus=2, submit_s=1)
    view = cluster_view([Node("n0", gpus=8), *RACKS], [divided, plain])
    plan = Placed("fifo", rule, seed=1).plan(view)
    assert plan.allocations["x"].nodes == ("n4", "n5")
    assert plan.allocations["y"].nodes == {"packed": ("n1",), "spread": ("n0",), "random": ("n3",)}[rule]


@pytest.mark.parametrize("rule", ["packed", "spread", "random"])
def test_another_rule_leaves_divided_layers_where_the_policy_puts_them(rule):
    view = cluster_view(RACKS, [Job("x", gpu_s=1, gpus=4, nodes=2, tensor=4)])
    assert Placed("fifo", rule).plan(view).allocations["x"].nodes == ("n4", "n5")


# --- whole runs ---------------------------------------------------------------------------------------------------------

COLUMNS = "job_id,submit_s,num_gpus,nodes,tensor_parallel,gpu_duration_s,cpus,min_gpus,max_gpus,min_nodes,max_nodes,microbatches"
PART_AND_WHOLE = (
    "{name: p, gpus: 4, gpu_type: A100, cpus: 32, nvlink_domain: 2}, {name: q, gpus: 4, gpu_type: A100, cpus: 32}"
)
SHARED = (
    "{name: p, gpus: 4, gpu_type: A100, cpus: 32, nvlink_domain: 1, sharing: fifo}, "
    "{name: q, gpus: 4, gpu_type: A100, cpus: 32, sharing: fifo}"
)
PAIRED = "".join(f"j{n},0,2,1,{1 + n % 2},50,,,,,,\n" for n in range(8))


@pytest.fixture
def ran(tmp_path):
    """Runs rows on nodes under a policy; the JCT of each job."""

    def run(policy, nodes, rows):
        (tmp_path / "jobs.csv").write_text(f"{COLUMNS}\n{rows}")
        (tmp_path / "cluster.yaml").write_text(f"nodes: [{nodes}]\n")
        record = Experiment.load(tmp_path / "jobs.csv", tmp_path / "cluster.yaml").simulate(policy)
        assert {job.status for job in record.jobs} == {"finished"}
        return {job.job_id: job.jct_s for job in record.jobs}

    return run


@pytest.mark.parametrize("policy", ["muri-s", "muri-l", "muri-s:matching=false"])
def test_jobs_with_and_without_layers_are_no_group(ran, policy):
    ran(policy, SHARED, PAIRED)


@pytest.mark.parametrize("allocation", ["proportional", "greedy", "tune"])
def test_synergy_packs_layers_on_servers_that_hold_them(ran, allocation):
    rows = "w,0,4,1,1,100,4,,,,,\nx,0,2,1,1,5000,2,,,,,\nt,10,4,1,4,100,4,,,,,\n"
    ran(f"synergy:allocation={allocation}", PART_AND_WHOLE, rows)
    node = "{name: n, gpus: 6, gpu_type: A100, cpus: 48, nvlink_domain: 3}"
    rows = "".join(f"{name},0,2,1,{tensor},900,,,,,,\n" for name, tensor in (("a", 2), ("b", 2), ("t", 2), ("u", 1)))
    assert ran(f"synergy:allocation={allocation}", node, rows)["u"] == pytest.approx(900)


def test_synergy_gives_layers_their_devices_first(ran):
    node = "{name: n, gpus: 6, gpu_type: A100, cpus: 48, nvlink_domain: 3}"
    rows = "".join(f"{name},0,2,1,{tensor},900,,,,,,\n" for name, tensor in (("a", 1), ("b", 1), ("t", 2)))
    assert set(ran("synergy", node, rows).values()) == {900}


def test_synergy_asks_for_each_kind_of_job_whether_a_server_suits(ran):
    nodes = (
        "{name: p, gpus: 2, gpu_type: A100, cpus: 16, nvlink_domain: 1}, {name: q, gpus: 2, gpu_type: A100, cpus: 16}"
    )
    assert set(ran("synergy", nodes, "t,0,2,1,2,900,,,,,,\nu,0,2,1,1,900,,,,,,\n").values()) == {900}


def test_elastic_jobs_get_no_shape_that_no_domain_holds(ran):
    racks = "{name: h, count: 6, gpus: 4, gpu_type: H100, cpus: 64, nvlink_domain: 12}"
    grows = "a,0,8,2,8,1000,,8,24,2,6,24\n"
    assert ran("optimus", racks, grows)["a"] <= 1000
    assert ran("sia", racks, grows)["a"] <= 1000
    small = "{name: q, count: 2, gpus: 2, gpu_type: A100, cpus: 64, nvlink_domain: 4}"
    few = f"{{name: p, gpus: 4, gpu_type: A100, cpus: 64, nvlink_domain: 2}}, {small}"
    assert ran("sia", few, "a,0,4,2,4,1000,,4,8,1,4,24\n")["a"] <= 1100
