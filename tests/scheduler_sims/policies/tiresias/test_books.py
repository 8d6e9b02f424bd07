"""What Tiresias hands on from plan to plan: it changes no plan, and a state stays as it was."""

from __future__ import annotations

from random import Random

import pytest

from scheduler_sims.policies.resolve import resolve_policy
from scheduler_sims.policies.tiresias.queues import Standing, Standings
from scheduler_sims.testing import Job, Node

NODES = [Node("a", gpus=4, cpus=16), Node("b", gpus=4, cpus=16), Node("c", gpus=2, cpus=8)]
POLICIES = ["tiresias:limits=12/40", "tiresias:limits=12/40,promote=1", "tiresias:limits=12/40,fidelity=as_coded"]


def random_jobs(seed, number=50):
    random = Random(f"{seed}/tiresias/books")
    jobs = []
    for index in range(number):
        nodes, gpus = random.choice([(1, 1), (1, 1), (1, 2), (1, 4), (2, 4)])
        gpu_s, submit_s = random.choice([3, 8, random.randint(1, 60)]), float(random.randint(0, 90))
        jobs.append(Job(f"j{index}", gpu_s=gpu_s, gpus=gpus, nodes=nodes, cpus=2, submit_s=submit_s, steps=20))
    return jobs


class Twice:
    """Asks the policy twice at each event. The second time its books have been taken, so it makes them anew."""

    preemptive, needs_estimates = True, False

    def __init__(self, text):
        self.policy = resolve_policy(text)[1]

    def plan(self, view):
        first, second = self.policy.plan(view), self.policy.plan(view)
        assert contents(first) == contents(second)
        assert dict(first.state.queues.jobs) == dict(second.state.queues.jobs)
        return second


def contents(plan):
    return dict(plan.started), plan.stopped, dict(plan.reasons), plan.wake_at_s


@pytest.mark.parametrize("costs", [{}, {"start_s": 0.5, "stop_s": 1.0, "decide_s": 0.25}], ids=["no costs", "delays"])
@pytest.mark.parametrize("text", [*POLICIES, "las-1d:limits=8/20", "gittins:limits=12/40,delta=5"])
def test_books_made_anew_at_each_event_give_the_same_run(simulate, text, costs):
    for seed in range(2):
        anew = simulate(Twice(text), NODES, random_jobs(seed), **costs)
        kept = simulate(resolve_policy(text)[1], NODES, random_jobs(seed), **costs)
        assert anew.records == kept.records
        assert sum(record.preemptions for record in kept.records.values()) > 5


def test_standings_are_those_of_a_map_and_earlier_ones_stay_as_they_were():
    random = Random("standings")
    now, expected, earlier = Standings({}), dict[str, Standing](), []
    for number in range(2_000):
        now = now.next()
        for _ in range(random.randint(0, 3)):
            job_id = f"j{random.randint(0, 200)}"
            if random.random() < 0.3:
                now.drop(job_id)
                expected.pop(job_id, None)
            else:
                standing = Standing(0, number, 1)
                now.put(job_id, standing)
                expected[job_id] = standing
        assert list(now.items()) == list(expected.items())
        assert len(now) == len(expected)
        assert ("j7" in now) == ("j7" in expected)
        if number % 100 == 0:
            earlier.append((now, dict(expected)))
    assert all(list(kept.items()) == list(then.items()) for kept, then in earlier)


def test_a_start_that_waits_for_a_long_step_wakes_nobody(simulate):
    """Its job reached the limit of its queue while it was stopped, so that it would be demoted as soon as it runs."""
    jobs = [
        Job("a", gpu_s=36, steps=2, submit_s=23.0),
        Job("b", gpu_s=19, gpus=2, steps=4, submit_s=2.0),
        Job("c", gpu_s=31, gpus=2, steps=2, submit_s=21.0),
    ]
    run = simulate(resolve_policy("tiresias:limits=10/30")[1], [Node("n", gpus=2, cpus=8)], jobs)
    assert len(run.records) == 3
    assert run.loop.decisions < 30
