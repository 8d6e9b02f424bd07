"""Where jobs run under each rule of placement."""

from __future__ import annotations

from dataclasses import replace

import pytest

from emulator_runtime.domain.job import Configuration
from scheduler_sims.policies.placement.rules import Room, fragments
from scheduler_sims.policies.resolve import resolve_policy
from scheduler_sims.testing import Job, Node, cluster_view, places

NODES = [Node("a", gpus=4), Node("b", gpus=4), Node("c", gpus=2)]
BUSY = Job("busy", gpu_s=100, gpus=2, on="a/0 a/1")


def policy(text):
    return resolve_policy(text)[1]


def node_of(text, nodes, jobs, job_id="new", labels=None):
    view = cluster_view(nodes, jobs)
    if labels:
        view = replace(view, nodes={name: replace(n, labels={"rack": labels[name]}) for name, n in view.nodes.items()})
    found = places(view, policy(text).plan(view))
    return {place.partition("/")[0] for place in found[job_id].split()}


@pytest.mark.parametrize(("rule", "node"), [("packed", "a"), ("spread", "b")])
def test_packed_takes_the_fullest_and_spread_the_emptiest_node(rule, node):
    jobs = [BUSY, Job("one", gpu_s=9, on="c/0"), Job("new", gpu_s=9, gpus=2)]
    assert node_of(f"placed:of=fifo,rule={rule}", NODES, jobs) == {node}


def test_random_depends_on_the_seed_and_the_job_only():
    jobs = [Job(f"j{number}", gpu_s=9) for number in range(8)]
    view = cluster_view(NODES, jobs)
    plans = [places(view, policy(f"placed:of=fifo,rule=random,seed={seed}").plan(view)) for seed in (1, 1, 2)]
    assert plans[0] == plans[1] != plans[2]
    assert len(set(plans[0].values())) == 8


def test_racks_keep_the_tasks_of_a_gang_together():
    labels = {"a": "left", "b": "right", "c": "left", "d": "right"}
    nodes = [Node(name, gpus=4) for name in labels]
    jobs = [Job("gang", gpu_s=9, gpus=4, nodes=2), Job("busy", gpu_s=9, gpus=2, on="a/0 a/1")]
    assert node_of("placed:of=fifo,rule=packed", nodes, jobs, "gang") == {"a", "b"}
    assert node_of("placed:of=fifo,rule=racks", nodes, jobs, "gang", labels) == {"a", "c"}
    wide = [replace(jobs[0], gpus=8), jobs[1]]
    assert node_of("placed:of=fifo,rule=racks", nodes, wide, "gang", labels) == {"b", "d"}


def test_fragmentation_leaves_the_place_that_others_need():
    """Most jobs want two GPUs: best fit would break the pair of node c, FGD takes the odd GPU of node a."""
    nodes = [Node("c", gpus=2), Node("a", gpus=3)]
    jobs = [Job("new", gpu_s=9, row=0), *(Job(f"pair-{n}", gpu_s=9, gpus=2, row=1 + n) for n in range(3))]
    assert node_of("placed:of=fifo,rule=packed", nodes, jobs) == {"c"}
    assert node_of("placed:of=fifo,rule=fragmentation", nodes, jobs) == {"a"}


def test_idle_devices_that_nobody_can_use_are_fragments():
    two, four = (Configuration("gpu", gpus, 1000) for gpus in (2, 4))
    mix = {two: 3, four: 1, Configuration("cpu", 0, 1000): 4}
    assert fragments(Room("n", 3, 4000, "n"), mix) == pytest.approx(3 * 5 / 8)
    assert fragments(Room("n", 3, 500, "n"), mix) == 3
    assert fragments(Room("n", 3, 4000, "n"), {}) == 0


def test_where_the_rule_finds_no_place_the_policys_stands():
    """Spread would put the two small jobs on different nodes, and the wide one, third in order, nowhere."""
    nodes = [Node("a", gpus=2), Node("b", gpus=2)]
    jobs = [Job("s1", gpu_s=9, row=0), Job("s2", gpu_s=9, row=1), Job("wide", gpu_s=9, gpus=2, row=2)]
    view = cluster_view(nodes, jobs)
    found = places(view, policy("placed:of=fifo,rule=spread").plan(view))
    assert found == places(view, policy("fifo").plan(view))
    assert len(found) == 3


def test_stops_stay_those_of_the_policy(simulate):
    jobs = [Job(f"j{n}", gpu_s=90 - 7 * n, gpus=1 + n % 3, submit_s=2.0 * n) for n in range(12)]
    plain = simulate(policy("srtf"), NODES, jobs)
    spread = simulate(policy("placed:of=srtf,rule=spread"), NODES, jobs)
    assert spread.records.keys() == plain.records.keys()
    assert all(record.status == "finished" for record in spread.records.values())
