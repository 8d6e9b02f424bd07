"""Invariants of every policy on seeded random workloads: total order, remembered state, valid plans."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from scheduler_sims.policies import POLICIES
from scheduler_sims.policies.placing import FreeSpace
from scheduler_sims.policies.resolve import resolve_policy
from scheduler_sims.policies.waiting import Order, Waiting, one_line
from scheduler_sims.testing import Job, Node, cluster_view, places

NODES = [Node("a", gpus=4, cpus=16), Node("b", gpus=2, cpus=8), Node("c", gpus=1, cpus=4), Node("d", cpus=8)]
VARIANTS = [*POLICIES, "las:threshold_s=12,quantum_s=3", "allox:alpha=0.3", "allox:max_candidates=2"]


def random_jobs(seed, policy, number=25):
    random = Random(f"{seed}/jobs")
    widths = (1,) if policy.startswith("allox") else (1, 1, 2, 4)
    return [
        Job(
            f"j{i}",
            gpu_s=random.choice([3, 5, 8, random.randint(1, 40)]),
            cpu_s=random.choice([None, random.randint(5, 60)]),
            gpus=random.choice(widths),
            cpus=random.choice([1, 2]),
            cpu_cpus=random.choice([1, 4]),
            user=random.choice("uvw"),
            submit_s=float(random.choice([0, 0, random.randint(0, 60)])),
        )
        for i in range(number)
    ]


@pytest.mark.parametrize("text", VARIANTS)
@pytest.mark.parametrize("seed", range(4))
def test_everything_finishes_and_plans_are_sound(replay, text, seed):
    """No plan uses a device or CPU twice; plans use only free resources and those of stopped jobs."""

    def check(view, plan):
        space = FreeSpace.empty(view)
        for allocation in plan.allocations.values():
            space.take(allocation)
        for job_id in (*plan.started, *plan.stopped):
            assert job_id in plan.reasons

    jobs = random_jobs(seed, text)
    run = replay(resolve_policy(text)[1], NODES, jobs, check)
    assert set(run.finish_s) == {job.job_id for job in jobs}
    if not resolve_policy(text)[1].preemptive:
        assert len(run.moves) == len(jobs)


@pytest.mark.parametrize("text", ["fifo", "sjf", "srtf", "drf-fifo", "drf-sjf", "las:threshold_s=12,quantum_s=3"])
@pytest.mark.parametrize("seed", range(4))
def test_kept_order_is_the_order_from_scratch(replay, text, seed):
    """At each event the plan from the remembered lines equals that of a policy that remembers nothing."""
    policy = resolve_policy(text)[1]
    looks = 0

    def check(view, plan):
        nonlocal looks
        looks += 1
        fresh = policy.plan(replace(view, state=None))
        assert fresh.allocations == plan.allocations
        assert fresh.reasons == plan.reasons
        assert fresh.wake_at_s == plan.wake_at_s

    jobs = [replace(job, cpu_s=None) for job in random_jobs(seed, text)]  # what ran on CPUs only LAS's memory knows
    replay(policy, NODES, jobs, check)
    assert looks > 20


@pytest.mark.parametrize("text", VARIANTS)
def test_the_order_of_insertion_does_not_matter(text):
    policy = resolve_policy(text)[1]
    jobs = [replace(job, submit_s=float(row % 3), row=row) for row, job in enumerate(random_jobs(7, text))]
    nodes = [*NODES, Node("busy", gpus=1)]
    jobs.append(Job("running", gpu_s=500, user="u", on="busy/0", row=99))
    plans = []
    for shuffle in range(5):
        shuffled = list(jobs)
        Random(f"{shuffle}/order").shuffle(shuffled)
        view = cluster_view(nodes, shuffled, now_s=70.0, rounds=getattr(policy, "rounds", None))
        plans.append((places(view, policy.plan(view)), dict(policy.plan(view).reasons)))
    assert all(plan == plans[0] for plan in plans)
    assert len(plans[0][0]) > (2 if text == "sia" else 3)


@pytest.mark.parametrize("text", VARIANTS)
def test_the_same_view_gives_the_same_plan_twice(replay, text):
    policy = resolve_policy(text)[1]

    def check(view, plan):
        again = policy.plan(view)
        assert (again.allocations, again.stopped, again.wake_at_s) == (plan.allocations, plan.stopped, plan.wake_at_s)

    replay(policy, NODES, random_jobs(3, text), check)


FIRST = Order(rank=lambda _view, job: job.submit_s, line=one_line)


def ids(waiting):
    return [entry[3] for line in waiting.lines() for _, entry in waiting.line(line)]


def test_lines_follow_the_changes():
    a, b, c = (Job(name, gpu_s=1, submit_s=float(i), row=i) for i, name in enumerate("abc"))
    nodes = [Node("n", gpus=1)]
    waiting = Waiting(cluster_view(nodes, [a, b]), None, FIRST)
    assert (ids(waiting), waiting.holders()) == (["a", "b"], [])
    second = Waiting(cluster_view(nodes, [replace(a, on="n/0"), b, c]), waiting.memory(), FIRST)
    assert (ids(second), [j.job_id for j in second.holders()]) == (["b", "c"], ["a"])
    view = replace(cluster_view(nodes, [replace(a, queued_since_s=9.0), c]), changes=frozenset("abc"))  # 'b' has ended
    third = Waiting(view, second.memory(), FIRST)
    assert (ids(third), third.holders()) == (["a", "c"], [])


def test_a_job_that_left_the_middle_of_a_line_and_came_back_stands_there_once():
    jobs = [Job(name, gpu_s=1, submit_s=float(i), row=i) for i, name in enumerate("abc")]
    nodes = [Node("n", gpus=1)]
    memory = Waiting(cluster_view(nodes, jobs), None, FIRST).memory()
    jobs[1] = replace(jobs[1], on="n/0")
    memory = Waiting(cluster_view(nodes, jobs), memory, FIRST).memory()
    jobs[1] = replace(jobs[1], on="", queued_since_s=7.0)
    again = Waiting(cluster_view(nodes, jobs), memory, FIRST)
    assert ids(again) == ["a", "b", "c"]


def test_only_what_changed_is_looked_at():
    """A job that the view doesn't name as changed keeps its place, even if the rank would be another now."""
    ranks = {"a": 1.0, "b": 2.0}
    order = Order(rank=lambda _view, job: ranks[job.job_id], line=one_line)
    jobs = [Job("a", gpu_s=1), Job("b", gpu_s=1)]
    memory = Waiting(cluster_view([], jobs), None, order).memory()
    ranks["a"] = 3.0
    view = cluster_view([], jobs)
    assert ids(Waiting(replace(view, changes=frozenset()), memory, order)) == ["a", "b"]
    assert ids(Waiting(replace(view, triggers=frozenset({"node"})), memory, order)) == ["b", "a"]


def test_a_broken_node_sends_jobs_to_their_other_configuration():
    """The GPU configuration fits no node any more: after a change of nodes the job is ranked again."""
    policy = POLICIES["sjf"]()
    job = Job("a", gpu_s=1, cpu_s=50)
    first = policy.plan(cluster_view([Node("n", gpus=1), Node("c")], [job]))
    view = replace(cluster_view([Node("c")], [job], after=first), triggers=frozenset({"node"}), changes=frozenset())
    assert policy.plan(view).started["a"].configuration == "cpu"
