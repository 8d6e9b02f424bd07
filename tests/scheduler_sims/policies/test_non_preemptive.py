"""FIFO, SJF and DRF: which jobs start, in small tables."""

from __future__ import annotations

import pytest

from emulator_runtime.domain.errors import PolicyError
from scheduler_sims.interface.view import Phase
from scheduler_sims.policies.drf import DominantShares, DrfFifo, DrfSjf, Holdings
from scheduler_sims.policies.fifo import Fifo
from scheduler_sims.policies.sjf import Sjf
from scheduler_sims.testing import Job, Node, cluster_view, places

FOUR = [Node("n", gpus=4)]

# Four GPUs; the hand-worked timeline t1.
T1 = [
    Job("J0", gpu_s=100, gpus=4, submit_s=0),
    Job("J1", gpu_s=50, gpus=2, submit_s=10),
    Job("J2", gpu_s=30, gpus=2, submit_s=20),
    Job("J3", gpu_s=20, gpus=1, submit_s=30),
]


def started(policy, nodes, jobs):
    return list(policy.plan(cluster_view(nodes, jobs)).started)


def test_fifo_stops_at_the_first_job_that_does_not_fit():
    jobs = [Job("a", gpu_s=9, gpus=3), Job("wide", gpu_s=9, gpus=2), Job("narrow", gpu_s=1)]
    view = cluster_view(FOUR, jobs)
    plan = Fifo().plan(view)
    assert places(view, plan) == {"a": "n/0 n/1 n/2"}
    assert plan.reasons == {
        "a": "next in order of submission",
        "wide": "first in line, but no room for 2 GPUs and 1 CPUs on one node",
    }
    assert plan.wake_at_s is None


def test_fifo_timeline_of_t1(replay):
    assert replay(Fifo(), FOUR, T1).starts() == {"J0": 0, "J1": 100, "J2": 100, "J3": 130}


@pytest.mark.parametrize("policy", [Fifo(), Sjf(), DrfFifo(), DrfSjf()])
def test_nobody_is_stopped(policy):
    jobs = [Job("long", gpu_s=1000, on="n/0"), Job("short", gpu_s=1)]
    plan = policy.plan(cluster_view([Node("n", gpus=1)], jobs))
    assert (plan.started, plan.stopped) == ({}, frozenset())


@pytest.mark.parametrize("policy", [Fifo(), Sjf(), DrfFifo(), DrfSjf()])
def test_space_of_stopping_jobs_is_not_used(policy):
    jobs = [Job("old", gpu_s=1000, on="n/0", phase=Phase.STOPPING), Job("new", gpu_s=1)]
    assert started(policy, [Node("n", gpus=1)], jobs) == []


@pytest.mark.parametrize("policy", [Fifo(), Sjf(), DrfFifo(), DrfSjf()])
def test_jobs_use_their_gpu_configuration_only(policy):
    view = cluster_view([Node("n", gpus=1), Node("cpu")], [Job("a", gpu_s=5, cpu_s=1), Job("b", gpu_s=5, cpu_s=1)])
    assert places(view, policy.plan(view)) == {"a": "n/0"}


@pytest.mark.parametrize("policy", [Fifo(), Sjf(), DrfFifo(), DrfSjf()])
def test_jobs_without_a_gpu_configuration_run_on_cpus(policy):
    view = cluster_view([Node("n", gpus=1), Node("cpu")], [Job("a", cpu_s=1)])
    assert places(view, policy.plan(view)) == {"a": "cpu"}


def test_sjf_takes_the_shortest_and_passes_over_what_does_not_fit():
    jobs = [Job("long", gpu_s=9), Job("wide", gpu_s=1, gpus=4), Job("short", gpu_s=2), Job("middle", gpu_s=5)]
    view = cluster_view([Node("n", gpus=4)], [Job("runs", gpu_s=99, on="n/0 n/1", gpus=2), *jobs])
    plan = Sjf().plan(view)
    assert list(plan.started) == ["short", "middle"]
    assert plan.reasons["wide"].startswith("first in line, but no room for 4 GPUs")


def test_sjf_ties_go_by_submission_then_row():
    jobs = [Job("late", gpu_s=5, submit_s=1.0), Job("row1", gpu_s=5, row=1), Job("row0", gpu_s=5, row=0)]
    assert started(Sjf(), [Node("n", gpus=2)], jobs) == ["row0", "row1"]


def test_sjf_uses_the_whole_run_time_also_of_jobs_that_ran():
    jobs = [Job("half-done", gpu_s=10, done=0.9), Job("fresh", gpu_s=5)]
    assert started(Sjf(), [Node("n", gpus=1)], jobs) == ["fresh"]


def test_sjf_timeline_of_t1(replay):
    """J0 runs first since it is alone; then the shortest first, J1 as soon as J3's GPU is free too."""
    assert replay(Sjf(), FOUR, T1).starts() == {"J0": 0, "J3": 100, "J2": 100, "J1": 120}


@pytest.mark.parametrize("policy", [Sjf(), DrfSjf()])
@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), -1.0])
def test_unusable_estimates_are_refused_by_name(policy, seconds):
    with pytest.raises(PolicyError, match="job 'odd' has an estimated run time of"):
        policy.plan(cluster_view(FOUR, [Job("odd", gpu_s=seconds)]))


@pytest.mark.parametrize("policy", [Sjf(), DrfSjf()])
def test_without_estimates_the_message_says_what_to_do(policy):
    with pytest.raises(PolicyError, match="--estimates oracle"):
        policy.plan(cluster_view(FOUR, [Job("a", gpu_s=1)], estimates=False))


@pytest.mark.parametrize("policy", [Fifo(), DrfFifo()])
def test_policies_that_need_no_estimates_ask_for_none(policy):
    assert started(policy, FOUR, [Job("a", gpu_s=1)]) == ["a"]
    assert list(policy.plan(cluster_view(FOUR, [Job("a", gpu_s=1)], estimates=False)).started) == ["a"]


def test_drf_serves_the_user_with_the_lowest_share_first():
    """u1 holds 2 of 4 GPUs, u2 one, u3 none."""
    running = [Job("r1", gpu_s=9, gpus=2, user="u1", on="n/0 n/1"), Job("r2", gpu_s=9, user="u2", on="n/2")]
    waiting = [Job(f"w{i}", gpu_s=9, user=f"u{i}") for i in (1, 2, 3)]
    assert started(DrfFifo(), FOUR, [*running, *waiting]) == ["w3"]


def test_drf_counts_what_it_starts():
    jobs = [Job(f"{user}-{i}", gpu_s=9, user=user) for user in ("u1", "u2") for i in range(3)]
    assert started(DrfFifo(), FOUR, jobs) == ["u1-0", "u2-0", "u1-1", "u2-1"]


def test_drf_share_is_that_of_the_dominant_resource():
    """The example of the paper (Ghodsi et al., section 4.1): 9 CPUs, 18 GB; A wants 1 CPU and 4 GB, B 3 CPUs and 1 GB."""
    jobs = [Job(f"A{i}", cpu_s=9, cpu_cpus=1, memory_gib=4, user="A") for i in range(5)]
    jobs += [Job(f"B{i}", cpu_s=9, cpu_cpus=3, memory_gib=1, user="B") for i in range(5)]
    assert sorted(started(DrfFifo(), [Node("n", cpus=9, memory_gib=18)], jobs)) == ["A0", "A1", "A2", "B0", "B1"]


def test_dominant_shares_of_running_jobs():
    jobs = [
        Job("g", gpu_s=9, gpus=1, cpus=30, user="u", on="n/0"),
        Job("c", cpu_s=9, cpu_cpus=30, user="u", on="c"),
        Job("w", gpu_s=9, user="v"),
    ]
    view = cluster_view([Node("n", gpus=4, cpus=60), Node("c", cpus=60)], jobs)
    holdings = Holdings()
    holdings.follow(view, view.jobs)
    shares = DominantShares(view, holdings)
    assert (shares.of("u"), shares.of("v"), shares.of("nobody")) == (0.5, 0.0, 0.0)


def test_drf_passes_over_a_user_whose_next_job_does_not_fit():
    running = [Job("r", gpu_s=9, gpus=3, user="u3", on="n/0 n/1 n/2")]
    jobs = [Job("a-wide", gpu_s=9, gpus=2, user="a"), Job("a-narrow", gpu_s=1, user="a"), Job("b", gpu_s=9, user="u3")]
    view = cluster_view(FOUR, [*running, *jobs])
    plan = DrfFifo().plan(view)
    assert list(plan.started) == ["b"]
    assert "a-wide" in plan.reasons


def test_drf_ties_between_users_go_by_their_next_jobs():
    jobs = [Job("z", gpu_s=9, user="z", row=0), Job("a", gpu_s=9, user="a", row=1)]
    assert started(DrfFifo(), [Node("n", gpus=1)], jobs) == ["z"]
    jobs = [Job("z", gpu_s=9, user="z", submit_s=1.0), Job("a", gpu_s=9, user="a", submit_s=0.5)]
    assert started(DrfFifo(), [Node("n", gpus=1)], jobs) == ["a"]


def test_drf_sjf_serves_a_users_shortest_job_first():
    jobs = [Job("u-long", gpu_s=9, user="u"), Job("u-short", gpu_s=1, user="u"), Job("v", gpu_s=5, user="v")]
    assert started(DrfSjf(), [Node("n", gpus=2)], jobs) == ["u-short", "v"]
    assert started(DrfFifo(), [Node("n", gpus=2)], jobs) == ["u-long", "v"]


@pytest.mark.parametrize("policy", [Fifo(), Sjf(), DrfFifo(), DrfSjf()])
def test_an_empty_cluster_or_queue_is_fine(policy):
    assert started(policy, FOUR, []) == []
    assert started(policy, [], [Job("a", gpu_s=1)]) == []
