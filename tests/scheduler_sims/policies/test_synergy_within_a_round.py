"""Synergy within a round: what its plan still has to start or stop, looked at only where something has changed."""

from __future__ import annotations

from dataclasses import replace

from scheduler_sims.interface.costs import ClusterCosts
from scheduler_sims.policies.synergy import Synergy
from scheduler_sims.testing import Job, Node, cluster_view, places


def test_a_start_that_waits_is_tried_again_when_its_node_has_changed():
    nodes, jobs = [Node("n1", gpus=1), Node("n2", gpus=1)], [Job("a", gpu_s=9), Job("b", gpu_s=9)]
    policy = Synergy()
    view = cluster_view(nodes, jobs, rounds=policy.rounds)
    first = policy.plan(view)
    assert places(view, first) == {"a": "n1/0", "b": "n2/0"}
    within = replace(view, state=first.state, changes=frozenset())
    later = policy.plan(replace(within, changed_nodes=frozenset({"n2"})))
    assert set(later.started) == {"b"}
    within = replace(within, state=later.state)
    assert not policy.plan(replace(within, changed_nodes=frozenset())).started
    for change in (
        {"changed_nodes": frozenset(), "triggers": frozenset({"retry"})},
        {"changed_nodes": frozenset(), "changes": frozenset({"a", "b"})},
        {"changed_nodes": None},
    ):
        assert set(policy.plan(replace(within, **change)).started) == {"a", "b"}


def test_a_restarted_scheduler_goes_on_within_the_round():
    policy = Synergy()
    view = cluster_view([Node("n1", gpus=1)], [Job("a", gpu_s=9)], rounds=policy.rounds)
    first = policy.plan(view)
    again = Synergy().plan(replace(view, state=replace(first.state, queue=None, places=None)))
    assert again.started == first.started
    assert again.reasons == first.reasons


def test_a_later_round_has_reasons_of_its_own():
    policy, nodes, jobs = Synergy(), [Node("n1", gpus=1)], [Job("a", gpu_s=9)]
    view = cluster_view(nodes, jobs, rounds=policy.rounds)
    first = policy.plan(view)
    assert first.reasons["a"].startswith("round 0")
    later = replace(view, now_s=300.0, state=first.state, round=policy.rounds.at(300.0))
    assert policy.plan(later).reasons["a"].startswith("round 1")


def test_starts_are_tried_in_the_order_of_the_round_whatever_changed_first():
    nodes, jobs = [Node(f"n{n}", gpus=2) for n in range(4)], [Job(name, gpu_s=9) for name in "abcdefgh"]
    policy = Synergy()
    view = cluster_view(nodes, jobs, rounds=policy.rounds)
    first = policy.plan(view)
    news = {"changed_nodes": frozenset({"n3", "n1"}), "changes": frozenset({"a", "gone"})}
    assert list(policy.plan(replace(view, state=first.state, **news)).started) == ["a", "c", "d", "g", "h"]
    assert list(first.started) == list("abcdefgh")


def test_a_job_that_appears_within_a_round_is_stopped():
    policy, nodes = Synergy(), [Node("n1", gpus=2)]
    first = policy.plan(cluster_view(nodes, [Job("a", gpu_s=9)], rounds=policy.rounds))
    view = cluster_view(nodes, [Job("a", gpu_s=9, on="n1/0"), Job("b", gpu_s=9, on="n1/1")], rounds=policy.rounds)
    within = replace(view, state=first.state, changed_nodes=frozenset())
    assert policy.plan(replace(within, changes=frozenset({"b"}))).stopped == {"b"}


def test_all_starts_are_tried_again_where_decisions_take_time():
    policy = Synergy()
    view = cluster_view([Node("n1", gpus=1)], [Job("a", gpu_s=9)], rounds=policy.rounds)
    within = replace(view, state=policy.plan(view).state, changes=frozenset(), changed_nodes=frozenset())
    assert not policy.plan(within).started
    within = replace(within, state=policy.plan(view).state, costs=ClusterCosts(decide_s=1))
    assert set(policy.plan(within).started) == {"a"}
