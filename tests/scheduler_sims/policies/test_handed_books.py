"""Books that policies hand on from plan to plan, in runs of the simulator: at each event the plan is the one from scratch."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from scheduler_sims.interface.handed import Handed, taken
from scheduler_sims.policies.allox import policy as allox
from scheduler_sims.policies.placing import FreeSpace
from scheduler_sims.policies.resolve import resolve_policy
from scheduler_sims.testing import Job, Node, cluster_view

NODES = [Node("a", gpus=4, cpus=16), Node("b", gpus=4, cpus=16), Node("c", gpus=2, cpus=8), Node("d", cpus=8)]
COSTS = [
    {},
    {"start_s": 0.5, "stop_s": 1.0, "decide_s": 0.25},
    {"coalesce_s": 0.5, "restore_s": 2.0, "serial_stop_s": 0.2},
]


class FromScratch:
    """Compares each plan with that of the same view without books; `again`: the policy is called twice, as after a failure."""

    preemptive, needs_estimates = True, True

    def __init__(self, text, *, again=False):
        self.policy = resolve_policy(text)[1]
        self.again = again
        self.looks = 0

    def plan(self, view):
        plan = self.policy.plan(view)
        without = replace(view, state=None, changed_nodes=None, held=None, nodes=dict(view.nodes))
        assert contents(self.policy.plan(without)) == contents(plan)
        if self.again:
            second = self.policy.plan(view)  # its state has been taken
            assert contents(second) == contents(plan)
            plan = second
        self.looks += 1
        return plan


def contents(plan):
    return dict(plan.started), plan.stopped, dict(plan.reasons), plan.wake_at_s


def random_jobs(seed, text, number=40):
    random = Random(f"{seed}/books")
    one = text.startswith("allox")
    jobs = []
    for i in range(number):
        wide = not one and random.random() < 0.15
        jobs.append(
            Job(
                f"j{i}",
                gpu_s=random.choice([3, 5, 8, random.randint(1, 60)]),
                cpu_s=random.choice([None, 25]) if one else None,
                gpus=2 * random.choice([1, 2, 4]) if wide else 1 if one else random.choice([1, 1, 2, 4]),
                nodes=2 if wide else 1,
                cpus=2 if wide else random.choice([1, 2]),
                user=random.choice("uvw"),
                submit_s=float(random.choice([0, 0, random.randint(0, 90)])),
                steps=random.choice([1, 20]),
            )
        )
    return jobs


@pytest.mark.parametrize("costs", COSTS, ids=["no costs", "delays", "more costs"])
@pytest.mark.parametrize("text", ["fifo", "sjf", "srtf", "drf-sjf", "allox", "las:threshold_s=12,quantum_s=3"])
def test_each_plan_is_the_plan_from_scratch(simulate, text, costs):
    for seed in range(3):
        policy = FromScratch(text)
        run = simulate(policy, NODES, random_jobs(seed, text), **costs)
        assert len(run.records) == 40
        assert policy.looks > 20


@pytest.mark.parametrize("text", ["srtf", "las:threshold_s=12,quantum_s=3"])
def test_a_state_that_was_taken_gives_the_same_plan_again(simulate, text):
    run = simulate(FromScratch(text, again=True), NODES, random_jobs(5, text), stop_s=0.5)
    assert sum(record.preemptions for record in run.records.values()) > 3


def test_content_is_handed_once():
    handed = Handed([{"a": 1}])
    assert taken(handed) == {"a": 1}
    assert taken(handed) is None
    assert taken(None) is None


class Follows:
    """FIFO that places with a followed space, and compares it with a new one."""

    preemptive, needs_estimates = False, False

    def __init__(self):
        self.space = None
        self.kept = 0

    def plan(self, view):
        before, self.space = self.space, FreeSpace.now(view) if self.space is None else self.space.follow(view)
        self.kept += before is self.space
        fresh, starts = FreeSpace.now(view), {}
        for job in view.queued():
            allocation = self.space.place(job.configurations[0])
            assert allocation == fresh.place(job.configurations[0])
            if allocation is not None:
                starts[job.job_id] = allocation
        return view.plan.evolve(start=starts)


def test_a_followed_space_is_a_new_one(simulate):
    for seed in range(5):
        policy = Follows()
        run = simulate(policy, NODES, random_jobs(seed, "fifo"), finish_s=0.5)
        assert policy.kept == run.loop.decisions - 1


def test_a_space_of_other_nodes_is_made_anew():
    view = cluster_view([Node("n", gpus=2)], [])
    space = FreeSpace.now(view)
    assert space.follow(replace(view, changed_nodes=None)) is not space
    assert space.follow(replace(view, nodes=dict(view.nodes), changed_nodes=frozenset())) is not space
    assert space.follow(replace(view, changed_nodes=frozenset())) is space


def test_allox_matches_only_where_a_machine_is_free_or_somebody_reads_why(simulate, monkeypatch):
    calls = []

    def counted(*arguments):
        calls.append(len(arguments[2][0]))
        return real(*arguments)

    real = allox.match
    monkeypatch.setattr(allox, "match", counted)
    jobs = [Job(f"j{i}", gpu_s=10 + i, submit_s=0.1 * i) for i in range(8)]
    policy = resolve_policy("allox")[1]
    view = cluster_view([Node("n", gpus=1)], [Job("r", gpu_s=5, on="n/0"), *jobs])
    plan = policy.plan(view)
    assert (calls, len(plan.started)) == ([], 0)
    assert "where 0 jobs go before it" in plan.reasons["j0"]
    assert list(plan.reasons) == ["j0"]
    assert (calls, len(plan.reasons)) == ([8], 1)
    policy.plan(cluster_view([Node("n", gpus=1)], jobs))
    assert calls == [8, 8]


class AlwaysNews:
    """`policy`, which tries each start that waits at each event."""

    def __init__(self, text):
        self.policy = resolve_policy(text)[1]
        self.preemptive, self.needs_estimates = self.policy.preemptive, self.policy.needs_estimates
        self.rounds = self.policy.rounds

    def plan(self, view):
        return self.policy.plan(replace(view, triggers=view.triggers | {"retry"}))


@pytest.mark.parametrize(
    "costs", [{"checkpoint_s": 6.0}, {"checkpoint_s": 6.0, "decide_s": 4.0}], ids=["at once", "slow decisions"]
)
@pytest.mark.parametrize("text", ["rounds:of=las,round_s=60", "synergy:round_s=60,order=srtf", "gavel:round_s=60"])
def test_starts_that_wait_without_news_would_be_in_vain(simulate, text, costs):
    nodes = [Node("a", gpus=1, cpus=8), Node("b", gpus=1, cpus=8)]
    for seed in range(25):
        random = Random(f"{seed}/news")
        jobs = [
            Job(
                f"j{i}",
                gpu_s=random.randint(40, 150),
                submit_s=float(random.choice([0, 1, 1, random.randint(2, 80)])),
                steps=5,
            )
            for i in range(random.randint(3, 5))
        ]
        with_news, without = (
            simulate(resolve_policy(text)[1], nodes, jobs, **costs),
            simulate(AlwaysNews(text), nodes, jobs, **costs),
        )
        assert with_news.records == without.records
