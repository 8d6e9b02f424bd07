"""The shipped views for users' tests (scheduler_sims.testing)."""

from __future__ import annotations

import pytest

from emulator_runtime.domain.errors import InputError, PolicyError
from scheduler_sims.interface.plan import Plan
from scheduler_sims.interface.view import Phase
from scheduler_sims.policies.srtf import Srtf
from scheduler_sims.testing import Job, Node, cluster_view, places


def test_the_example_of_the_docstring():
    view = cluster_view(
        [Node("n1", gpus=2)],
        [Job("long", gpu_s=100, on="n1/0", done=0.5), Job("short", gpu_s=10), Job("wide", gpu_s=10, gpus=2)],
    )
    assert places(view, Srtf().plan(view)) == {"long": "n1/0", "short": "n1/1"}


def test_free_capacity_and_holders_follow_from_the_jobs():
    jobs = [
        Job("g", gpu_s=10, cpus=3, memory_gib=2, on="n/1", running_since_s=4.0, attained_gpu_s=1.0),
        Job("c", cpu_s=10, cpu_cpus=2.5, on="n"),
        Job("w", gpu_s=10, cpu_s=99, submit_s=1.0),
    ]
    view = cluster_view([Node("n", gpus=2, cpus=8, memory_gib=4, unhealthy=(0,))], jobs, now_s=10.0)
    node = view.nodes["n"]
    assert (node.free_cpu_milli, node.free_memory_bytes, node.memory_bytes) == (2500, 2 * 2**30, 4 * 2**30)
    assert [(d.holders, d.free_milli, d.healthy) for d in node.devices] == [((), 1000, False), (("g",), 0, True)]
    assert [job.phase for job in view.jobs.values()] == [Phase.RUNNING, Phase.RUNNING, Phase.QUEUED]
    assert view.attained_gpu_s(view.jobs["g"]) == 7.0
    assert view.jobs["c"].allocation.configuration == "cpu"
    assert view.jobs["w"].queued_since_s == 1.0
    assert [c.name for c in view.jobs["w"].configurations] == ["gpu", "cpu"]
    assert places(view, view.plan) == {"g": "n/1", "c": "n"}


def test_durations_and_progress():
    jobs = [Job("a", gpu_s={"K80": 30.0, "V100": 10.0}, cpu_s=90, done=0.25)]
    view = cluster_view([Node("n", gpus=1, gpu_type="K80")], jobs)
    job = view.jobs["a"]
    assert [view.estimates.duration_s(job, "gpu", t) for t in (None, "K80", "V100")] == [10, 30, 10]
    assert (view.remaining_s(job, "cpu"), view.remaining_s(job)) == (67.5, 7.5)
    allocation = Srtf().plan(view).started["a"]
    assert view.estimates.rate(job, allocation) == job.steps_total / 30
    with pytest.raises(InputError, match="no run time for configuration 'cpu'"):
        cluster_view([], [Job("b", gpu_s=1)]).estimates.duration_s(
            cluster_view([], [Job("b", gpu_s=1)]).jobs["b"], "cpu"
        )


def test_jobs_are_seen_in_order_of_submission_and_the_plan_in_force_comes_back():
    before = Plan.full({}, state="remembered")
    view = cluster_view([], [Job("b", gpu_s=1, submit_s=2.0), Job("c", gpu_s=1), Job("a", gpu_s=1)], after=before)
    assert list(view.jobs) == ["c", "a", "b"]
    assert (view.state, view.plan, view.changes) == ("remembered", before, {"a", "b", "c"})


def test_without_estimates():
    view = cluster_view([], [Job("a", gpu_s=1)], estimates=False)
    assert not view.estimates.available
    with pytest.raises(PolicyError):
        view.remaining_s(view.jobs["a"])


@pytest.mark.parametrize(
    ("on", "message"), [("m/0", "no node 'm'"), ("n/2", "not all of these"), ("n/0 m/1", "not all")]
)
def test_places_that_are_not_there(on, message):
    with pytest.raises(InputError, match=message):
        cluster_view([Node("n", gpus=2)], [Job("a", gpu_s=1, gpus=1, on=on)])
