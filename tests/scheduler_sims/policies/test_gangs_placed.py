"""Jobs of several nodes in policies: placement of their tasks, preemption for them, and invariants."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator_runtime.domain.errors import PolicyError
from emulator_runtime.domain.gpu import Device
from emulator_runtime.domain.job import Configuration, JobSpec, TimedWork
from emulator_runtime.domain.units import GIB
from scheduler_sims.inputs.cluster_file import ClusterSpec, NodeSpec
from scheduler_sims.inputs.fit import misfit
from scheduler_sims.interface.view import Phase
from scheduler_sims.policies.allox import Allox
from scheduler_sims.policies.drf import DrfFifo, DrfSjf
from scheduler_sims.policies.fifo import Fifo
from scheduler_sims.policies.las import Las
from scheduler_sims.policies.placing import FreeSpace, fits_somewhere, main_configuration
from scheduler_sims.policies.sjf import Sjf
from scheduler_sims.policies.srtf import Srtf
from scheduler_sims.policies.synergy import Synergy
from scheduler_sims.testing import Job, Node, cluster_view, places

FOUR_BY_FOUR = [Node(f"n{number}", gpus=4) for number in (1, 2, 3, 4)]


def gang(nodes, gpus=1, cpu_milli=1000, **more):
    return Configuration("gpu", gpus, cpu_milli, min_tasks=nodes, max_tasks=nodes, **more)


def taken(allocation):
    return allocation and [(task.node, len(task.shares)) for task in allocation.tasks]


# --- where --------------------------------------------------------------------------------------------------------------


def test_the_fullest_nodes_that_have_room_are_taken_one_task_each():
    jobs = [Job("a", gpu_s=1, gpus=3, on="n1/0 n1/1 n1/2"), Job("b", gpu_s=1, gpus=2, on="n3/0 n3/1")]
    space = FreeSpace.now(cluster_view(FOUR_BY_FOUR, jobs))
    assert taken(space.place(gang(2, 2))) == [("n3", 2), ("n2", 2)]  # two free, then four: the first of these
    assert taken(space.place(gang(2, 2))) == [("n2", 2), ("n4", 2)]
    assert taken(space.place(gang(2, 1))) == [("n1", 1), ("n4", 1)]


def test_several_free_devices_of_one_node_are_no_two_nodes():
    space = FreeSpace.now(cluster_view([Node("n1", gpus=8)], []))
    assert space.place(gang(2, 4)) is None
    assert taken(space.place(Configuration("gpu", 8, 1000))) == [("n1", 8)]


def test_a_gang_that_does_not_fit_takes_nothing():
    space = FreeSpace.now(cluster_view([Node("n1", gpus=2), Node("n2", gpus=1)], []))
    assert space.place(gang(2, 2)) is None
    assert taken(space.place(gang(2, 1))) == [("n2", 1), ("n1", 1)]
    assert taken(space.place(gang(1, 1))) == [("n1", 1)]


def test_cpus_and_memory_are_of_each_node():
    nodes = [Node("n1", gpus=1, cpus=4), Node("n2", gpus=1, cpus=8), Node("n3", gpus=1, cpus=8)]
    space = FreeSpace.now(cluster_view(nodes, []))
    allocation = space.place(gang(2, 1, 6000))
    assert [(task.node, task.cpu_milli) for task in allocation.tasks] == [("n2", 6000), ("n3", 6000)]


def test_all_tasks_have_gpus_of_one_type():
    types = [("n1", "V100"), ("n2", "T4"), ("n3", "V100"), ("n4", "T4")]
    nodes = [Node(name, gpus=2, gpu_type=gpu_type) for name, gpu_type in types]
    view = cluster_view(nodes, [Job("a", gpu_s=1, on="n2/0")])
    assert FreeSpace.now(view).place(gang(2, 1)).nodes == ("n2", "n4")  # of the fullest node's type
    assert FreeSpace.now(view).place(gang(2, 2)).nodes == ("n1", "n3")
    assert FreeSpace.now(view).place(gang(3, 1)) is None
    assert not fits_somewhere(view, gang(3, 1))
    assert fits_somewhere(view, gang(2, 2, gpu_types=("T4",)))


def test_a_way_for_which_there_are_too_few_nodes_is_passed_over():
    view = cluster_view([Node("n1", gpus=4), Node("cpu", cpus=64)], [Job("j", gpu_s=1, gpus=4, nodes=2, cpu_s=9)])
    assert main_configuration(view, view.jobs["j"]).name == "cpu"


# --- who stops ----------------------------------------------------------------------------------------------------------

THREE = [Node("n1", gpus=1), Node("n2", gpus=1), Node("n3", gpus=1)]
RUNNING = [Job(f"r{n}", gpu_s=left, on=f"n{n}/0", running_since_s=-50) for n, left in ((1, 50), (2, 80), (3, 20))]


@pytest.mark.parametrize(
    ("left_s", "stops"),
    [(10, {"r2", "r1"}), (49, {"r2", "r1"}), (50, set()), (60, set()), (80, set())],
)
def test_srtf_stops_the_longest_jobs_wherever_they_are_or_none(left_s, stops):
    view = cluster_view(THREE, [*RUNNING, Job("wide", gpu_s=left_s, gpus=2, nodes=2)])
    plan = Srtf().plan(view)
    assert plan.stopped == stops
    assert ("wide" in plan.started) == bool(stops)


def test_a_free_node_spares_a_job():
    view = cluster_view([*THREE, Node("n4", gpus=1)], [*RUNNING, Job("wide", gpu_s=10, gpus=2, nodes=2)])
    plan = Srtf().plan(view)
    assert plan.stopped == {"r2"}
    assert set(plan.started["wide"].nodes) == {"n2", "n4"}


def test_nobody_stops_in_vain():
    """The longest job is on a node that is too small for a task, so it continues."""
    nodes = [Node("small", gpus=1), Node("n1", gpus=2), Node("n2", gpus=2)]
    jobs = [
        Job("longest", gpu_s=500, on="small/0"),
        Job("long", gpu_s=400, gpus=2, on="n1/0 n1/1"),
        Job("other", gpu_s=300, on="n2/1"),
        Job("wide", gpu_s=10, gpus=4, nodes=2),
    ]
    plan = Srtf().plan(cluster_view(nodes, jobs))
    assert plan.stopped == {"long", "other"}


def test_a_gang_stops_as_a_whole_for_a_job_of_one_node():
    jobs = [Job("gang", gpu_s=100, gpus=2, nodes=2, on="n1/0 n2/0"), Job("short", gpu_s=5)]
    view = cluster_view([Node("n1", gpus=1), Node("n2", gpus=1)], jobs)
    plan = Srtf().plan(view)
    assert plan.stopped == {"gang"}
    assert places(view, plan) == {"short": "n1/0"}


def test_what_is_about_to_be_free_is_counted_and_stops_nobody():
    leaving = [Job(f"l{n}", gpu_s=100, on=f"n{n}/0", phase=Phase.STOPPING, submit_s=-1) for n in (1, 2)]
    view = cluster_view(THREE, [*leaving, Job("r3", gpu_s=90, on="n3/0"), Job("wide", gpu_s=10, gpus=2, nodes=2)])
    plan = Srtf().plan(view)
    assert (plan.stopped, set(plan.started["wide"].nodes)) == (set(), {"n1", "n2"})


def test_las_stops_jobs_of_the_second_queue_for_a_gang_of_the_first():
    old = [Job(f"r{n}", gpu_s=500, on=f"n{n}/0", attained_gpu_s=100, running_since_s=-100) for n in (1, 2)]
    young = Job("r3", gpu_s=500, on="n3/0", running_since_s=-100)
    view = cluster_view(THREE, [*old, young, Job("wide", gpu_s=10, gpus=2, nodes=2)])
    plan = Las(threshold_s=150).plan(view)
    assert plan.stopped == {"r1", "r2"}
    assert places(view, plan)["wide"] == "n1/0 n2/0"


def test_allox_has_no_place_for_a_gang():
    view = cluster_view(THREE, [Job("wide", gpu_s=10, gpus=2, nodes=2)])
    with pytest.raises(PolicyError, match="job 'wide' wants 2 GPUs; AlloX is defined for one-GPU jobs"):
        Allox().plan(view)


def test_synergy_has_no_place_for_a_gang():
    view = cluster_view(THREE, [Job("wide", gpu_s=10, gpus=2, nodes=2)])
    with pytest.raises(PolicyError, match="job 'wide' runs on 2 nodes; Synergy's jobs run on one each"):
        Synergy().plan(replace(view, round=Synergy().rounds.at(0)))


def test_who_waits_says_for_how_many_nodes():
    view = cluster_view(THREE, [RUNNING[0], RUNNING[1], Job("wide", gpu_s=10, gpus=2, nodes=2)])
    assert Fifo().plan(view).reasons["wide"] == "first in line, but no room for 1 GPUs and 0.5 CPUs on each of 2 nodes"


# --- whole runs ---------------------------------------------------------------------------------------------------------


def test_fragmentation_holds_up_the_wide_job(replay):
    """Hand-worked, FIFO on 2 nodes of 4 GPUs: four GPUs are free from the start, but no node has all of them."""
    nodes = [Node("n1", gpus=4), Node("n2", gpus=4)]
    jobs = [
        Job("a", gpu_s=10, gpus=3),
        Job("b", gpu_s=20, gpus=3),
        Job("split", gpu_s=10, gpus=2, nodes=2),
        Job("wide", gpu_s=10, gpus=4),
        Job("last", gpu_s=5, gpus=8, nodes=2),
    ]
    run = replay(Fifo(), nodes, jobs)
    assert run.starts() == {"a": 0, "b": 0, "split": 0, "wide": 10, "last": 20}
    assert run.place("split") == "n1/3 n2/3"
    assert run.place("wide") == "n1/0 n1/1 n1/2 n1/3"
    assert run.finish_s == {"a": 10, "split": 10, "b": 20, "wide": 20, "last": 25}


NODES = st.lists(st.builds(lambda gpus: gpus, st.integers(1, 4)), min_size=2, max_size=4)
JOBS = st.lists(
    st.tuples(
        st.integers(1, 3), st.integers(1, 4), st.integers(1, 6), st.sampled_from([0.0, 3.0, 7.5]), st.integers(1, 12)
    ),
    min_size=1,
    max_size=9,
)
POLICIES = {
    "fifo": Fifo,
    "sjf": Sjf,
    "srtf": Srtf,
    "las": lambda: Las(threshold_s=8, quantum_s=2),
    "drf-fifo": DrfFifo,
    "drf-sjf": DrfSjf,
}


class Watch:
    """Invariants of each plan, checked by counting in the view."""

    def __init__(self, nodes, jobs, policy):
        self.sizes = {node.name: (node.gpus, round(node.cpus * 1000)) for node in nodes}
        self.jobs = {job.job_id: job for job in jobs}
        self.policy = policy

    def __call__(self, view, plan):
        free = {name: list(size) for name, size in self.sizes.items()}
        devices = []
        for job_id, allocation in plan.allocations.items():
            job = self.jobs[job_id]
            assert len(allocation.tasks) == len(set(allocation.nodes)) == job.nodes, "never half a gang"
            for task in allocation.tasks:
                assert len(task.shares) == job.gpus // job.nodes
                devices += [share.device for share in task.shares]
                free[task.node][0] -= len(task.shares)
                free[task.node][1] -= task.cpu_milli
        assert len(devices) == len(set(devices)), "a device has one job"
        assert all(amount >= 0 for amounts in free.values() for amount in amounts), "never more than a node has"
        waiting = [job for job in view.jobs.values() if job.queued and job.job_id not in plan.allocations]
        for job in self.served_next(waiting):
            wanted = job.configurations[0]
            room = sum(g >= wanted.gpus and c >= wanted.cpu_milli for g, c in free.values())
            assert room < wanted.min_tasks, f"{job.job_id} waits, although it fits"

    def served_next(self, waiting):
        """The jobs that the policy must start if they fit: with FIFO the first one, with DRF the first of each user."""
        if not self.policy.startswith("drf"):
            return waiting[:1] if self.policy == "fifo" else waiting
        if self.policy == "drf-sjf":
            waiting = sorted(waiting, key=lambda job: (self.jobs[job.job_id].gpu_s, job.order))
        return {job.user: job for job in reversed(waiting)}.values()


@settings(max_examples=100, deadline=None)
@given(sizes=NODES, rows=JOBS, policy=st.sampled_from(sorted(POLICIES)))
def test_never_half_a_gang_nor_more_than_there_is_nor_idle_in_vain(replay, sizes, rows, policy):
    """No job waits that is next and fits."""
    nodes = [Node(f"n{number}", gpus=gpus, cpus=6) for number, gpus in enumerate(sizes)]
    rows = [row for row in rows if sum(gpus >= row[1] for gpus in sizes) >= row[0]]
    jobs = [
        Job(
            f"j{row}",
            gpu_s=seconds,
            gpus=nodes_ * gpus,
            nodes=nodes_,
            cpus=cpus * nodes_,
            submit_s=at_s,
            user=f"u{row % 2}",
        )
        for row, (nodes_, gpus, cpus, at_s, seconds) in enumerate(rows)
    ]
    run = replay(POLICIES[policy](), nodes, jobs, Watch(nodes, jobs, policy))
    assert set(run.finish_s) == {job.job_id for job in jobs}


# --- nodes with several types of GPU ------------------------------------------------------------------------------------


def mixed(name, types, jobs=()):
    """The view of one node with devices of these types."""
    view = cluster_view([Node(name, gpus=len(types))], jobs).nodes[name]
    devices = zip(view.devices, types, strict=True)
    return replace(view, devices=tuple(replace(device, gpu_type=gpu_type) for device, gpu_type in devices))


def test_a_gang_gets_one_type_where_the_first_free_devices_differ():
    nodes = {name: mixed(name, types) for name, types in (("n1", "AB"), ("n2", "BA"), ("n3", "BC"))}
    view = replace(cluster_view([], []), nodes=nodes)
    found = FreeSpace.now(view).place(gang(2))
    assert [(task.node, task.gpu_type) for task in found.tasks] == [
        ("n2", "B"),
        ("n3", "B"),
    ]  # their first devices are equal
    found = FreeSpace.now(view).place(gang(3))
    assert [(task.node, task.gpu_type) for task in found.tasks] == [("n1", "B"), ("n2", "B"), ("n3", "B")]
    assert found.configuration == "gpu"
    assert FreeSpace.now(view).place(gang(3, gpu_types=("A",))) is None
    assert FreeSpace.now(view).place(gang(2, gpu_types=("A", "C"))).gpu_type == "A"
    assert [fits_somewhere(view, gang(count)) for count in (2, 3, 4)] == [True, True, False]
    assert not fits_somewhere(view, gang(2, gpu_types=("C",)))


def test_a_gang_that_only_fits_on_one_type_is_accepted():
    specs = [
        NodeSpec(name, 8000, 0, tuple(Device(name, i, gpu_type, 16 * GIB) for i, gpu_type in enumerate(types)))
        for name, types in (("n1", ("Tesla-T4", "V100")), ("n2", ("V100", "Tesla-T4")))
    ]
    job = JobSpec("j", "u", 0.0, 1, (gang(2),), {"gpu": TimedWork(1.0)}, 0)
    assert misfit(job, ClusterSpec(tuple(specs))) == ""
    wide = JobSpec("j", "u", 0.0, 1, (gang(2, 2, gpu_types=("V100",)),), {"gpu": TimedWork(1.0)}, 0)
    assert "needs 2 GPUs of type V100 on one node; the largest node has 1" in misfit(wide, ClusterSpec(tuple(specs)))
