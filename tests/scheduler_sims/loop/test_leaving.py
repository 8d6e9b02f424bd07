"""Jobs that leave at a stated time, as replicas of services do: while they run, wait, start or are being stopped."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scheduler_sims.policies import POLICIES
from scheduler_sims.policies.queueing.priority import Priority
from scheduler_sims.policies.resolve import resolve_policy
from scheduler_sims.testing import Job, Node, cluster_view

ONE = [Node("n", gpus=1)]


def fifo():
    return resolve_policy("fifo")[1]


def test_one_that_runs_frees_its_device_then(simulate):
    run = simulate(fifo(), ONE, [Job("r", gpu_s=1000, steps=100), Job("t", gpu_s=10)], until_s={"r": 50})
    assert {name: (job.status, job.finish_s) for name, job in run.records.items()} == {
        "r": ("removed", 50.0),
        "t": ("finished", 60.0),
    }
    assert [(span.start_s, span.end_s) for span in run.spans("r")] == [(0.0, 50.0)]


def test_its_stop_costs_what_a_stop_costs(simulate):
    run = simulate(
        fifo(), ONE, [Job("r", gpu_s=1000, steps=100)], until_s={"r": 45}, start_s=3, checkpoint_s=4, stop_s=1
    )
    assert (run.records["r"].status, run.records["r"].finish_s) == ("removed", 58.0)  # the step ends at 3 + 50


def test_one_that_waits_has_never_run(simulate):
    run = simulate(fifo(), ONE, [Job("t", gpu_s=100), Job("r", gpu_s=1000)], until_s={"r": 50})
    record = run.records["r"]
    assert (record.status, record.start_s, record.finish_s, record.devices) == ("removed", None, 50.0, ())
    assert run.records["t"].finish_s == 100.0


def test_one_that_ended_before_has_left(simulate):
    run = simulate(fifo(), ONE, [Job("r", gpu_s=10), Job("t", gpu_s=100)], until_s={"r": 50})
    assert (run.records["r"].status, run.records["r"].finish_s) == ("finished", 10.0)
    assert run.records["t"].finish_s == 110.0


@pytest.mark.parametrize("leaves_s", [20.5, 21, 24])
def test_one_that_is_being_stopped_does_not_come_back(simulate, leaves_s):
    """The shorter job displaces it at 20; a stop takes 5 s."""
    jobs = [Job("r", gpu_s=1000, steps=1000), Job("t", gpu_s=10, submit_s=20)]
    run = simulate(resolve_policy("srtf")[1], ONE, jobs, until_s={"r": leaves_s}, checkpoint_s=5)
    assert (run.records["r"].status, run.records["r"].finish_s, run.records["r"].preemptions) == ("removed", 25.0, 0)
    assert run.records["t"].finish_s == 35.0


def test_one_that_was_displaced_leaves_from_the_queue(simulate):
    jobs = [Job("r", gpu_s=1000, steps=1000), Job("t", gpu_s=10, submit_s=20)]
    run = simulate(resolve_policy("srtf")[1], ONE, jobs, until_s={"r": 28}, checkpoint_s=5)
    assert (run.records["r"].status, run.records["r"].finish_s, run.records["r"].preemptions) == ("removed", 28.0, 1)


@pytest.mark.parametrize(("weight", "stopped"), [(1.0, set()), (2.0, {"light"}), (0.5, set())])
def test_priority_displaces_a_smaller_weight_only(weight, stopped):
    view = cluster_view(ONE, [Job("light", gpu_s=100, on="n/0"), Job("other", gpu_s=1)])
    view = replace(view, jobs={**view.jobs, "other": replace(view.jobs["other"], weight=weight)})
    assert set(Priority().plan(view).stopped) == stopped


def test_all_policies_live_with_jobs_that_leave(simulate):
    nodes = [Node("a", gpus=2), Node("b", gpus=2)]
    for name in POLICIES:
        text = "pollux:population=10,generations=5" if name == "pollux" else name
        jobs = [Job(f"j{n}", gpu_s=20 + 7 * n, cpu_s=200, submit_s=3 * n, steps=200) for n in range(8)]
        until_s = {"j1": 9.5, "j4": 30.0, "j6": 19.0}
        records = simulate(resolve_policy(text)[1], nodes, jobs, until_s=until_s, start_s=1, checkpoint_s=1).records
        assert len(records) == 8, name
        assert all(record.status == "finished" for job, record in records.items() if job not in until_s), name
        assert records["j6"].status == "removed" or records["j6"].finish_s <= 19, name
