"""Jobs of several nodes in the simulator, computed by hand: starts, stops, costs, shares of nodes, records."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator_runtime.domain.errors import PolicyError
from emulator_runtime.domain.gpu import device_uuid
from scheduler_sims.interface.plan import Allocation, DeviceShare, Plan, TaskPlacement
from scheduler_sims.policies.fifo import Fifo
from scheduler_sims.policies.las import Las
from scheduler_sims.policies.srtf import Srtf
from scheduler_sims.testing import Job, Node

TWO = [Node("n1", gpus=2, cpus=8), Node("n2", gpus=2, cpus=8)]


def times(run):
    return {name: (record.start_s, record.finish_s) for name, record in run.records.items()}


def test_a_gang_holds_all_its_nodes_from_start_to_end(simulate):
    run = simulate(Fifo(), TWO, [Job("g", gpu_s=10, gpus=4, nodes=2), Job("next", gpu_s=5)])
    assert times(run) == {"g": (0, 10), "next": (10, 15)}
    assert run.records["g"].devices == ("n1/0", "n1/1", "n2/0", "n2/1")
    assert [(s.node, s.device, s.start_s, s.end_s) for s in run.spans("g")] == [
        ("n1", 0, 0, 10),
        ("n1", 1, 0, 10),
        ("n2", 0, 0, 10),
        ("n2", 1, 0, 10),
    ]


def test_a_gang_stops_others_and_they_go_on_where_they_were(simulate):
    jobs = [
        Job("long", gpu_s=100, gpus=2, steps=100),
        Job("longer", gpu_s=200, gpus=2, steps=200),
        Job("gang", gpu_s=10, gpus=2, nodes=2, submit_s=20.5, steps=10),
    ]
    run = simulate(Srtf(), TWO, jobs, checkpoint_s=1, restore_s=3)
    # Both end their 21st step at 21, write for a second; the gang runs 22 to 32; 79 and 179 s are left from 35 on.
    assert times(run) == {"gang": (22, 32), "long": (0, 114), "longer": (0, 214)}
    assert {name: record.preemptions for name, record in run.records.items()} == {"gang": 0, "long": 1, "longer": 1}


def test_a_gang_is_stopped_as_one_and_waits_for_all_its_nodes(simulate):
    jobs = [Job("gang", gpu_s=50, gpus=4, nodes=2, steps=50), Job("short", gpu_s=5, submit_s=10, steps=5)]
    run = simulate(Srtf(), TWO, jobs)
    assert times(run) == {"gang": (0, 55), "short": (10, 15)}
    assert [(s.node, s.start_s, s.end_s) for s in run.spans("gang") if s.device == 0] == [
        ("n1", 0, 10),
        ("n2", 0, 10),
        ("n1", 15, 55),
        ("n2", 15, 55),
    ]


def test_service_counts_all_gpus(simulate):
    """LAS: 4 GPUs reach the threshold of 20 GPU-seconds after 5 s."""
    jobs = [Job("gang", gpu_s=50, gpus=4, nodes=2, steps=50), Job("new", gpu_s=3, submit_s=1, steps=3)]
    run = simulate(Las(threshold_s=20, quantum_s=0), TWO, jobs)
    assert times(run)["new"] == (5, 8)


def test_each_task_is_a_start_of_its_own_for_the_cluster(simulate):
    """Two tasks of 0.3 s each: the gang's second is served at 0.3, the next job at 0.6."""
    nodes = [Node("n1", gpus=2), Node("n2", gpus=2)]
    jobs = [Job("gang", gpu_s=10, gpus=2, nodes=2), Job("next", gpu_s=10), Job("last", gpu_s=10)]
    run = simulate(Fifo(), nodes, jobs, start_s=1, serial_start_s=0.3)
    assert {name: record.finish_s for name, record in run.records.items()} == pytest.approx(
        {"gang": 11.3, "next": 11.6, "last": 11.9}
    )


def test_a_gang_is_one_stop_however_many_starts_it_was(simulate):
    """A gang of four pods that is stopped alone is one stop: no other stop delays it."""
    nodes = [Node(f"n{number}", gpus=1) for number in range(4)]
    gang = Job("gang", gpu_s=100, gpus=4, nodes=4, steps=100)
    run = simulate(Srtf(), nodes, [gang, Job("short", gpu_s=5, submit_s=10.5)], serial_stop_s=3, shared_stop_s=7)
    assert times(run)["short"] == (11, 16)


# --- plans of other people's policies --------------------------------------------------------------------------------------


class Says:
    """A policy of one plan: the gang with these tasks, written node/device."""

    needs_estimates = False

    def __init__(self, *tasks, cpus=(1000, 1000)):
        self.tasks = [
            TaskPlacement(place[:2], (DeviceShare(device_uuid(place[:2], int(place[3])), "Tesla-T4"),), cpu_milli)
            for place, cpu_milli in zip(tasks, cpus, strict=False)
        ]

    def plan(self, view):
        return Plan.full({job_id: Allocation("gpu", tuple(self.tasks)) for job_id in view.jobs})


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (Says("n1/0"), "the plan gives job 'g' 1 tasks; its configuration gpu has 2, all of them or none"),
        (Says("n1/0", "n1/1"), "the plan puts two tasks of job 'g' on one node; each has a node of its own"),
        (
            Says("n1/0", "n2/0", cpus=(1000, 2000)),
            "the plan gives the tasks of job 'g' different CPUs or memory; the slowest sets the pace",
        ),
        (
            Says("n1/0", "n2/0", cpus=(400, 400)),
            "the plan gives job 'g' 1 GPUs and 0.4 CPUs; its configuration gpu needs",
        ),
    ],
)
def test_half_a_gang_is_refused(simulate, policy, message):
    with pytest.raises(PolicyError, match=message):
        simulate(policy, TWO, [Job("g", gpu_s=10, gpus=2, nodes=2)])


class Divides(Fifo):
    """FIFO, and from `at_s` on the gang has all CPUs of its nodes."""

    def __init__(self, at_s):
        self.at_s = at_s

    def plan(self, view):
        if view.now_s + 1e-9 < self.at_s:
            return Plan.full(super().plan(view).allocations, wake_at_s=self.at_s)
        old = view.plan.allocations["g"]
        tasks = tuple(TaskPlacement(task.node, task.shares, 8000) for task in old.tasks)
        return view.plan.evolve(start={"g": Allocation("gpu", tasks)})


def test_cpus_are_divided_anew_on_all_nodes_of_a_gang(simulate):
    """2 CPUs on each node at first, 8 from 10.5 s on: twice as fast from the step that begins at 11."""
    gang = Job("g", gpu_s=20, gpus=2, nodes=2, cpus=4, best_cpus=16, speedup=2.0, steps=20)
    run = simulate(Divides(10.5), TWO, [gang])
    assert times(run)["g"] == pytest.approx((0, 15.5))
    divided = {(s.node, s.cpu_milli, s.start_s, s.end_s) for s in run.loop.books.host_spans}
    assert divided == {
        (node, cpus, since, until)
        for node in ("n1", "n2")
        for cpus, since, until in ((2000, 0, 10.5), (8000, 10.5, 15.5))
    }


# --- nothing of it depends on how it is told --------------------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(
    rows=st.lists(st.tuples(st.integers(1, 2), st.integers(1, 2), st.integers(1, 9), st.integers(0, 6)), max_size=8),
    policy=st.sampled_from([Fifo, Srtf, lambda: Las(threshold_s=6, quantum_s=1)]),
)
def test_all_work_is_done_and_no_gpu_is_used_twice(simulate, rows, policy):
    jobs = [
        Job(f"j{n}", gpu_s=seconds, gpus=nodes * gpus, nodes=nodes, submit_s=at_s, steps=seconds)
        for n, (nodes, gpus, seconds, at_s) in enumerate(rows)
    ]
    run = simulate(policy(), TWO, jobs)
    assert all(record.status == "finished" for record in run.records.values())
    for job in jobs:
        by_place = {}
        for span in run.spans(job.job_id):
            by_place.setdefault((span.start_s, span.end_s), []).append(span)
        assert all(len(spans) == job.gpus for spans in by_place.values()), "all devices of a gang, or none"
        assert sum(end - start for start, end in by_place) == pytest.approx(job.gpu_s)
    events = sorted((s.end_s, -1, s.node, s.device) for s in run.loop.books.spans)
    events += [(s.start_s, 1, s.node, s.device) for s in run.loop.books.spans]
    held: dict[tuple[str, int], int] = {}
    for _, sign, node, device in sorted(events):
        held[node, device] = held.get((node, device), 0) + sign
        assert held[node, device] in (0, 1)
