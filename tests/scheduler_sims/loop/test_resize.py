"""Dividing CPUs and memory anew while jobs run: what the loop does with a plan that says so, and what the books say after."""

from __future__ import annotations

import pytest

from emulator_runtime.domain.errors import PolicyError
from emulator_runtime.domain.gpu import device_uuid
from emulator_runtime.domain.units import GIB
from scheduler_sims.interface.plan import Allocation, DeviceShare, Plan, TaskPlacement
from scheduler_sims.record import HostSpan, RunRecord
from scheduler_sims.reports.metrics import figures
from scheduler_sims.testing import Job, Node

NODE = Node("n", gpus=3, cpus=4, memory_gib=8)


def job(name, **changes):
    """Ten steps of a second with one CPU, of half a second with two."""
    return Job(name, **({"gpu_s": 10, "steps": 10, "cpus": 1, "memory_gib": 1, "best_cpus": 2, "speedup": 2} | changes))


class Divide:
    """A policy by table: from each time on, job -> (device, CPUs, GiB)."""

    needs_estimates = False

    def __init__(self, *table):
        self.table = table
        self.seen = []

    def plan(self, view):
        self.seen.append((view.now_s, view.nodes["n"].free_cpu_milli, sorted(view.triggers)))
        wanted = next(places for at_s, places in reversed(self.table) if at_s <= view.now_s + 1e-6)
        wake = next((at_s for at_s, _ in self.table if at_s > view.now_s + 1e-6), None)
        return Plan.full({j: on(*place) for j, place in wanted.items() if j in view.jobs}, wake_at_s=wake)


def on(device, cpus, gib=1):
    share = DeviceShare(device_uuid("n", device), "Tesla-T4")
    return Allocation("gpu", (TaskPlacement("n", (share,), round(cpus * 1000), gib * GIB),))


def test_a_running_job_gets_more_without_a_stop(simulate):
    policy = Divide((0, {"a": (0, 1)}), (4.5, {"a": (0, 2, 3)}))
    run = simulate(policy, [NODE], [job("a")])
    record = run.records["a"]
    assert (record.finish_s, record.preemptions) == (7.5, 0)  # five steps until 5, then five of half a second
    assert [(span.start_s, span.end_s) for span in run.spans("a")] == [(0, 7.5)]
    assert run.loop.books.host_spans == [
        HostSpan("a", "n", 1000, GIB, 0, 4.5),
        HostSpan("a", "n", 2000, 3 * GIB, 4.5, 7.5),
    ]


def test_the_freed_cpus_start_another_job_at_the_same_instant(simulate):
    policy = Divide((0, {"a": (0, 4)}), (2.5, {"a": (0, 1), "b": (1, 3)}))
    run = simulate(policy, [NODE], [job("a"), job("b")])
    assert run.records["b"].start_s == 2.5
    assert run.records["a"].finish_s == 7.5  # five steps of half a second, five of a second
    assert [free for _, free, _ in policy.seen[:2]] == [4000, 0]


def test_two_jobs_can_swap_what_fills_the_node(simulate):
    policy = Divide((0, {"a": (0, 3, 2), "b": (1, 1, 6)}), (2, {"a": (0, 1, 6), "b": (1, 3, 2)}))
    run = simulate(policy, [NODE], [job("a"), job("b")])
    assert {record.preemptions for record in run.records.values()} == {0}
    assert [(s.job_id, s.cpu_milli, s.memory_bytes // GIB) for s in run.loop.books.host_spans[:2]] == [
        ("a", 3000, 2),
        ("b", 1000, 6),
    ]


def test_growth_into_the_place_of_a_stopping_job_waits_for_it(simulate):
    policy = Divide((0, {"a": (0, 1), "b": (1, 3)}), (2.25, {"a": (0, 4)}), (20, {"b": (1, 3)}))
    run = simulate(policy, [NODE], [job("a"), job("b", steps=5)], checkpoint_s=2)
    # b has steps of a second until 3, and writes its checkpoint until 5; then a grows, b never starts again while a runs
    growths = [s for s in run.loop.books.host_spans if s.job_id == "a"]
    assert [(s.cpu_milli, s.start_s) for s in growths] == [(1000, 0), (4000, 5.0)]
    assert run.records["b"].preemptions == 1


def test_a_start_beside_growth_that_waits_is_planned_with_both(simulate):
    policy = Divide((0, {"a": (0, 3), "b": (1, 1)}), (2.25, {"a": (0, 1, 6), "c": (2, 3)}), (30, {"b": (1, 1)}))
    jobs = [job("a", gpu_s=20, steps=20), job("b"), job("c")]
    policy.table[0][1]["b"] = (1, 1, 5)  # b's memory is what a waits for
    run = simulate(policy, [NODE], jobs, checkpoint_s=2)
    # a keeps its three CPUs until it gets all that the plan says, so c waits for b too, and nothing fails
    assert run.records["c"].start_s == 5.0
    assert [s.start_s for s in run.loop.books.host_spans if s.job_id == "a"] == [0, 5.0]


def test_a_job_that_is_starting_can_be_resized(simulate):
    policy = Divide((0, {"a": (0, 1)}), (1, {"a": (0, 2)}))
    run = simulate(policy, [NODE], [job("a")], start_s=3)
    assert run.records["a"].finish_s == 8.0


@pytest.mark.parametrize(
    ("division", "message"),
    [
        ((0, 5), r"gives job 'a' 5 CPUs and 1.00 GiB of memory on n, more than the rest of the plan leaves there"),
        ((0, 1, 9), r"gives job 'a' 1 CPUs and 9.00 GiB of memory on n, more than"),
        ((0, 0.5), r"gives job 'a' 1 GPUs and 0.5 CPUs; its configuration gpu needs 1 and 1"),
        ((0, 1, 0), r"gives job 'a' 0.00 GiB of memory"),
    ],
)
def test_a_division_that_cannot_be_is_refused(simulate, division, message):
    with pytest.raises(PolicyError, match=message):
        simulate(Divide((0, {"a": (0, 1)}), (2, {"a": division})), [NODE], [job("a")])


def test_two_growths_that_fit_alone_but_not_together_are_refused(simulate):
    table = ((0, {"a": (0, 1), "b": (1, 1)}), (2, {"a": (0, 3), "b": (1, 3)}))
    with pytest.raises(PolicyError, match="gives job 'b' 3 CPUs"):
        simulate(Divide(*table), [NODE], [job("a"), job("b")])


def test_a_job_that_ended_while_the_plan_was_made_is_left_alone(simulate):
    policy = Divide((0, {"a": (0, 1), "b": (1, 1)}), (9.9, {"a": (0, 2), "b": (1, 2)}))
    run = simulate(policy, [NODE], [job("a", gpu_s=9.85), job("b")], decide_s=0.2)
    assert run.records["a"].status == "finished"
    assert [s.cpu_milli for s in run.loop.books.host_spans if s.job_id == "a"] == [1000]


def test_cpu_utilisation_counts_what_was_given_when(simulate):
    run = simulate(Divide((0, {"a": (0, 1)}), (4.5, {"a": (0, 2)})), [NODE], [job("a")])
    books = run.loop.books
    record = RunRecord("p", "simulated", 0, 3, ("n",), books.records(), tuple(books.spans))
    assert figures(record).cpu_utilisation is None
    known = RunRecord(
        *("p", "simulated", 0, 3, ("n",), books.records(), tuple(books.spans)),
        cpu_milli=4000,
        host_spans=tuple(books.host_spans),
    )
    assert figures(known).cpu_utilisation == pytest.approx((4.5 * 1 + 3.0 * 2) / (4 * 7.5))
