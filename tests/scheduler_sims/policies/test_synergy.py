"""Synergy's policies: rounds computed by hand, and invariants for any jobs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator_runtime.domain.errors import InputError, PolicyError, UnknownNameError
from emulator_runtime.domain.units import GIB
from scheduler_sims.clusters.leases import Leases
from scheduler_sims.policies.resolve import resolve_policy
from scheduler_sims.policies.synergy import Synergy
from scheduler_sims.testing import Job, Node, cluster_view, places

SERVER = Node("n1", gpus=4, cpus=12, memory_gib=100)
"""The proportional share of a GPU is three CPUs and 25 GiB."""
PAIR = [SERVER, replace(SERVER, name="n2")]


def hungry(name, **changes):
    """Twice as fast with three times its proportional share of CPUs."""
    fields = {"gpu_s": 1000, "cpus": 3, "memory_gib": 25, "best_cpus": 9, "best_memory_gib": 25, "speedup": 2}
    return Job(name, **(fields | changes))


def frugal(name, **changes):
    """Needs one CPU and 5 GiB."""
    return Job(name, **({"gpu_s": 1000, "cpus": 1, "memory_gib": 5, "best_cpus": 1, "best_memory_gib": 5} | changes))


def unknown(name, **changes):
    """A job whose sensitivity hasn't been measured."""
    return Job(name, **({"gpu_s": 1000, "cpus": 1, "memory_gib": 5} | changes))


def given_to(plan):
    """Job -> (CPUs, GiB) of a plan."""
    return {
        job_id: (a.tasks[0].cpu_milli / 1000, a.tasks[0].memory_bytes / GIB) for job_id, a in plan.allocations.items()
    }


def in_rounds(*cluster, rounds=None, **view):
    return cluster_view(*cluster, rounds=rounds or Synergy().rounds, **view)


def first_round(allocation, jobs, nodes=(SERVER,), order="fifo", **view):
    built = in_rounds(list(nodes), jobs, **view)
    plan = Synergy(order=order, allocation=allocation).plan(built)
    return built, plan


# --- one round, by hand ---------------------------------------------------------------------------------------------------


def test_proportional_gives_each_what_goes_with_its_gpus():
    jobs = [hungry("h"), frugal("f"), hungry("two", gpus=2)]
    _, plan = first_round("proportional", jobs)
    assert given_to(plan) == {"h": (3, 25), "f": (3, 25), "two": (6, 50)}


def test_greedy_gives_the_ideal_and_leaves_gpus_idle():
    _, plan = first_round("greedy", [hungry("a"), hungry("b"), frugal("c")])
    assert given_to(plan) == {"a": (9, 25), "c": (1, 5)}  # b finds two CPUs left


def test_tune_gives_the_ideal_as_long_as_it_lasts():
    _, plan = first_round("tune", [hungry("a"), frugal("f"), frugal("g"), frugal("h")])
    assert given_to(plan) == {"a": (9, 25), "f": (1, 5), "g": (1, 5), "h": (1, 5)}


def test_tune_gives_the_proportional_share_when_the_ideal_is_not_there():
    _, plan = first_round("tune", [frugal("f"), hungry("a"), hungry("b")])
    assert given_to(plan) == {"f": (1, 5), "a": (3, 25), "b": (3, 25)}  # of 11 CPUs a had 9, and gave 6 back for b


def test_tune_pushes_only_as_many_as_it_has_to():
    jobs = [hungry("a", best_cpus=5), hungry("b", best_cpus=4), frugal("f"), hungry("c")]
    _, plan = first_round("tune", jobs)
    assert given_to(plan) == {"a": (3, 25), "b": (4, 25), "f": (1, 5), "c": (3, 25)}  # a has most CPUs per GPU


def test_tune_takes_memory_back_too():
    jobs = [hungry("a", best_cpus=3, best_memory_gib=75), hungry("b", best_cpus=3), hungry("c", best_cpus=3)]
    _, plan = first_round("tune", jobs)
    assert given_to(plan) == {"a": (3, 25), "b": (3, 25), "c": (3, 25)}


def test_tune_leaves_to_others_what_a_job_does_not_need_of_one_resource():
    jobs = [hungry("a", cpus=1, best_cpus=1, best_memory_gib=75), hungry("b", best_cpus=11), hungry("c", cpus=2)]
    _, plan = first_round("tune", jobs)
    assert given_to(plan)["a"][0] == 1
    assert given_to(plan)["c"] == (3, 25)


def test_the_ideal_is_at_most_the_whole_server():
    _, plan = first_round("greedy", [hungry("a", gpus=2, cpus=6, memory_gib=50, best_cpus=40, best_memory_gib=400)])
    assert given_to(plan) == {"a": (12, 100)}


@pytest.mark.parametrize("allocation", ["proportional", "greedy", "tune"])
def test_a_job_that_nobody_has_measured_gets_its_proportional_share(allocation):
    _, plan = first_round(allocation, [unknown("u")])
    assert given_to(plan) == {"u": (3, 25)}


def test_a_job_never_gets_less_than_it_runs_with():
    _, plan = first_round("proportional", [unknown("u", cpus=8)])
    assert given_to(plan) == {"u": (8, 25)}


def test_tune_skips_what_no_push_can_make_room_for():
    _, plan = first_round("tune", [unknown("u", cpus=8), unknown("v", cpus=8), frugal("f")])
    assert given_to(plan) == {"u": (8, 25), "f": (1, 5)}


def test_a_job_with_several_gpus_runs_on_one_node_or_waits_while_others_go_on():
    jobs = [*(frugal(f"f{i}") for i in range(3)), frugal("wide", gpus=4), frugal("wider", gpus=4), frugal("last")]
    view, plan = first_round("tune", jobs, PAIR)
    assert places(view, plan) == {
        **{f"f{i}": f"n1/{i}" for i in range(3)},
        "wide": "n2/0 n2/1 n2/2 n2/3",
        "last": "n1/3",
    }


def test_tune_prefers_the_fullest_server_and_greedy_the_first():
    jobs = [frugal("two", gpus=3), frugal("b", gpus=2), frugal("c")]
    view, plan = first_round("tune", [replace(jobs[0], gpus=2), replace(jobs[1], gpus=3), jobs[2]], PAIR)
    assert places(view, plan)["c"] == "n2/3"
    view, plan = first_round("greedy", [replace(jobs[0], gpus=2), replace(jobs[1], gpus=3), jobs[2]], PAIR)
    assert places(view, plan)["c"] == "n1/2"


def test_jobs_on_cpus_only_have_a_place_too():
    _, plan = first_round("tune", [Job("c", cpu_s=10, cpu_cpus=2), frugal("f")], [Node("cpu", cpus=4), SERVER])
    assert given_to(plan)["c"][0] == 2


def test_broken_devices_and_other_types_are_not_used():
    nodes = [replace(SERVER, unhealthy=(0, 1, 2)), replace(SERVER, name="n2", gpu_type="Tesla_V100-PCIE-32GB")]
    jobs = [
        frugal("a"),
        frugal("b"),
        frugal("t4", gpu_types=("Tesla-T4",)),
        frugal("v", gpu_types=("Tesla_V100-PCIE-32GB",)),
    ]
    view, plan = first_round("greedy", jobs, nodes)
    assert places(view, plan) == {"a": "n1/3", "b": "n2/0", "v": "n2/1"}


# --- orders -----------------------------------------------------------------------------------------------------------------


def started(order, jobs, **view):
    _, plan = first_round("tune", jobs, [replace(SERVER, gpus=1)], order, **view)
    return set(plan.allocations)


def with_large_devices(view, *indexes):
    """The view with devices of 32 GiB at these places of each node."""
    nodes = {}
    for name, node in view.nodes.items():
        larger = [replace(d, usable_memory_bytes=32 * GIB) if d.index in indexes else d for d in node.devices]
        nodes[name] = replace(node, devices=tuple(larger))
    return replace(view, nodes=nodes)


@pytest.mark.parametrize("allocation", ["proportional", "greedy", "tune"])
def test_where_devices_differ_no_more_jobs_start_than_devices_suit(allocation):
    jobs = [unknown("l1", gpu_memory_gib=20), unknown("l2", gpu_memory_gib=20), unknown("small")]
    view = with_large_devices(in_rounds([Node("n1", gpus=3, cpus=12, memory_gib=100)], jobs), 1)
    plan = Synergy(allocation=allocation).plan(view)
    assert places(view, plan) == {"l1": "n1/1", "small": "n1/0"}


def test_a_job_gives_way_on_its_node_to_one_that_only_its_device_suits():
    jobs = [unknown("small", on="n1/1", submit_s=0), unknown("large", gpu_memory_gib=20, submit_s=1)]
    view = with_large_devices(in_rounds([Node("n1", gpus=2, cpus=12, memory_gib=100)], jobs), 1)
    plan = Synergy().plan(view)
    assert places(view, plan) == {"small": "n1/0", "large": "n1/1"}


def test_fifo_is_the_order_of_submission():
    assert started("fifo", [frugal("b", submit_s=1), frugal("a")], now_s=300) == {"a"}


def test_srtf_counts_what_is_left_at_the_speed_of_the_last_round_or_the_best_to_hope_for():
    best = (9, 25)
    waits = hungry("waits", gpu_s=1000)  # 500 s at its best
    assert started("srtf", [frugal("f", gpu_s=450), waits]) == {"f"}
    assert started("srtf", [frugal("f", gpu_s=550), waits]) == {"waits"}
    pushed = hungry("pushed", gpu_s=1000, on="n1/0")  # ran with its proportional share
    assert started("srtf", [frugal("f", gpu_s=550), pushed]) == {"f"}
    assert started("srtf", [frugal("f", gpu_s=550), replace(pushed, has=best)]) == {"pushed"}
    assert started("srtf", [frugal("f", gpu_s=550), replace(pushed, done=0.5)]) == {"pushed"}


def test_srtf_with_proportional_shares_hopes_for_no_more():
    jobs = [frugal("f", gpu_s=550), hungry("waits", gpu_s=1000)]
    _, plan = first_round("proportional", jobs, [replace(SERVER, gpus=1, cpus=3, memory_gib=25)], "srtf")
    assert set(plan.allocations) == {"f"}


def test_srtf_asks_for_estimates_and_the_others_do_not():
    assert [resolve_policy(f"synergy:order={o}")[1].needs_estimates for o in ("fifo", "las", "srtf")] == [0, 0, 1]
    view = in_rounds([SERVER], [frugal("f")], estimates=False)
    assert set(Synergy(order="las").plan(view).allocations) == {"f"}
    with pytest.raises(PolicyError, match="use --estimates oracle"):
        Synergy(order="srtf").plan(view)


def test_las_gives_rounds_to_those_who_had_fewest_times_their_gpus():
    policy, nodes = Synergy(order="las"), [replace(SERVER, gpus=2)]
    jobs = [frugal("wide", gpus=2), frugal("a"), frugal("b")]
    plan, got = None, []
    for index in range(5):
        view = in_rounds(nodes, jobs, now_s=300.0 * index, after=plan)
        plan = policy.plan(view)
        got.append(" ".join(sorted(plan.allocations)))
    assert got == ["wide", "a b", "a b", "wide", "a b"]


def test_las_chooses_by_gpus_first_and_packs_those_with_more_gpus_first():
    jobs = [hungry("a"), hungry("b"), frugal("c", gpus=2, cpus=2, best_cpus=2)]
    _, las = first_round("greedy", [*jobs, frugal("d")], order="las")
    _, fifo = first_round("greedy", [*jobs, frugal("d")])
    assert set(las.allocations) == {"a", "c"}  # b was chosen and found no CPUs: its GPU stays idle
    assert set(fifo.allocations) == {"a", "c", "d"}
    _, tuned = first_round("tune", jobs, order="las")
    assert given_to(tuned) == {"a": (3, 25), "b": (3, 25), "c": (2, 5)}


# --- rounds -----------------------------------------------------------------------------------------------------------------


def test_a_plan_holds_until_the_next_round():
    policy = Synergy(round_s=100, first_s=30)

    def plan(now_s, *jobs, after=None):
        return policy.plan(in_rounds([SERVER], jobs, now_s=now_s, after=after, rounds=policy.rounds))

    early = plan(10, frugal("a"))
    assert dict(early.allocations) == {}
    first = plan(30, frugal("a"), after=early)
    assert set(first.allocations) == {"a"}
    later = plan(99, frugal("a", on="n1/0"), frugal("b"), after=first)
    assert later.allocations == first.allocations  # b waits
    second = plan(130, frugal("a", on="n1/0"), frugal("b"), after=later)
    assert set(second.allocations) == {"a", "b"}


def test_a_policy_that_calls_it_needs_its_rounds():
    with pytest.raises(PolicyError, match="synergy needs rounds: a policy that calls it needs its attribute `rounds`"):
        Synergy().plan(cluster_view([SERVER], [frugal("a")]))


def test_when_nodes_change_the_round_is_divided_anew():
    policy = Synergy()
    first = policy.plan(in_rounds([SERVER], [frugal("a")]))
    view = in_rounds([replace(SERVER, unhealthy=(0,))], [frugal("a", on="n1/0")], now_s=10, after=first)
    again = policy.plan(replace(view, triggers=frozenset({"node"})))
    assert places(view, again) == {"a": "n1/1"}
    assert again.state.given == {"a": 1}  # still its first round


def test_a_job_that_has_ended_is_no_longer_in_the_plan():
    policy = Synergy()
    first = policy.plan(in_rounds([SERVER], [frugal("a"), frugal("b")]))
    later = policy.plan(in_rounds([SERVER], [frugal("b", on="n1/1")], now_s=10, after=first))
    assert set(later.allocations) == {"b"}


def test_what_is_remembered_is_all_that_a_new_policy_needs():
    jobs = [frugal("wide", gpus=2), frugal("a"), frugal("b")]
    plans = []
    for keep in (True, False):
        policy, plan = Synergy(order="las"), None
        for index in range(4):
            policy = policy if keep else Synergy(order="las")
            view = in_rounds([replace(SERVER, gpus=2)], jobs, now_s=300.0 * index, after=plan)
            plan = policy.plan(view)
        plans.append((plan.allocations, plan.state))
    assert plans[0] == plans[1]


def test_jobs_that_go_on_stay_where_they_are_when_servers_are_alike():
    jobs = [frugal("a", on="n2/3"), frugal("b", on="n2/1"), frugal("c", on="n1/2"), frugal("d", gpus=4)]
    view, plan = first_round("tune", [*jobs[:2], jobs[3]], PAIR)
    assert places(view, plan) == {"a": "n2/3", "b": "n2/1", "d": "n1/0 n1/1 n1/2 n1/3"}


def test_servers_that_differ_are_not_taken_for_each_other():
    bigger = replace(PAIR[1], cpus=16)
    view, plan = first_round("tune", [frugal("a", on="n2/3")], [SERVER, bigger])
    assert places(view, plan) == {"a": "n1/0"}


def test_reasons_say_what_each_job_got_and_why():
    _, plan = first_round("tune", [frugal("f"), hungry("a"), hungry("b", best_cpus=7)])
    assert plan.reasons["f"] == "round 0: 1 CPUs and 5.00 GiB (all it can use)"
    assert plan.reasons["a"] == "round 0: 3 CPUs and 25.00 GiB (the proportional share)"


def test_only_what_changes_has_a_reason():
    jobs = [frugal("stays", on="n1/0"), hungry("grows", on="n1/1", has=(3, 25)), frugal("goes", on="n1/2", gpus=1)]
    jobs[0] = replace(jobs[0], has=(1, 5))
    wide = frugal("wide", gpus=2, submit_s=-1)
    _, plan = first_round("tune", [*jobs, wide], order="fifo")
    assert (set(plan.started), plan.stopped) == ({"grows", "wide"}, {"goes"})
    assert plan.reasons["goes"] == "round 0: other jobs go first"
    assert set(plan.reasons) == {"grows", "wide", "goes"}


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("synergy:order=lsa", UnknownNameError, r"synergy: order: unknown order 'lsa'; did you mean las\?"),
        ("synergy:allocation=tuned", UnknownNameError, r"unknown allocation 'tuned'; did you mean tune\?"),
        ("synergy:round_s=0", InputError, r"synergy: round_s: must be from 0.1 to 1e\+08 seconds, not 0.0"),
        ("synergy:round_s=1e-9", InputError, r"synergy: round_s: must be from 0.1 to 1e\+08 seconds, not 1e-09"),
        ("synergy:round_s=1e300", InputError, r"synergy: round_s: must be from 0.1 to"),
        ("synergy:round_s=nan", InputError, r"synergy: round_s"),
        ("synergy:first_s=-1", InputError, r"synergy: first_s: must be from 0 to 1e\+08 seconds, not -1.0"),
        ("synergy:first_s=inf", InputError, r"synergy: first_s"),
    ],
)
def test_wrong_options_are_refused(text, error, message):
    with pytest.raises(error, match=message):
        resolve_policy(text)


# --- whole runs ---------------------------------------------------------------------------------------------------------------


def test_a_job_whose_share_changes_with_the_round_is_not_stopped(simulate):
    jobs = [hungry("a", gpu_s=1200, steps=1200), hungry("b", gpu_s=1000, steps=1000, submit_s=100)]
    run = simulate(Synergy(allocation="tune", round_s=300), [replace(SERVER, gpus=2, cpus=9, memory_gib=50)], jobs)
    # a: 600 steps alone until 300, then 4.5 CPUs (speed 1.25) beside b; b: 4.5 CPUs until a ends at 780, 9 from 900 on.
    assert run.records["a"].finish_s == pytest.approx(780, abs=1)
    assert run.records["b"].finish_s == pytest.approx(900 + 250 / 2, abs=1)
    assert [record.preemptions for record in run.records.values()] == [0, 0]
    cpus = [(s.job_id, s.cpu_milli, round(s.start_s)) for s in run.loop.books.host_spans]
    assert cpus == [("a", 9000, 0), ("a", 4500, 300), ("b", 4500, 300), ("b", 9000, 900)]


def test_leases_give_the_figures_of_a_round_based_simulator(simulate):
    # 0.7 s a step: 428 of them in a round of 300 s; 1000 take three rounds, seen at the end of the third.
    job = frugal("a", gpu_s=700, steps=1000)
    policy = Synergy(first_s=1)
    leased = simulate(policy, [SERVER], [job], leases=Leases(300, 1))
    assert leased.records["a"].finish_s == 901
    assert simulate(policy, [SERVER], [job]).records["a"].finish_s == 701


def test_costs_of_rounds_are_only_paid_by_those_who_move(simulate):
    jobs = [frugal("a", gpu_s=900, steps=900), frugal("b", gpu_s=100, steps=100)]
    run = simulate(Synergy(), [SERVER], jobs, start_s=20, checkpoint_s=5)
    assert [run.records[j].finish_s for j in ("a", "b")] == [920, 120]


random_jobs = st.lists(
    st.builds(
        lambda kind, gpus, gpu_s, submit_s, best: (kind, gpus, gpu_s, submit_s, best),
        st.sampled_from([hungry, frugal, unknown]),
        st.sampled_from([1, 1, 1, 2, 4]),
        st.integers(50, 1500),
        st.integers(0, 700),
        st.tuples(st.integers(4, 14), st.integers(25, 110)),
    ),
    min_size=1,
    max_size=14,
)


def described(drawn):
    jobs = []
    for number, (kind, gpus, gpu_s, submit_s, best) in enumerate(drawn):
        job = kind(f"j{number}", gpus=gpus, gpu_s=gpu_s, steps=gpu_s, submit_s=submit_s)
        if kind is hungry:
            job = replace(
                job, cpus=3 * gpus, memory_gib=25 * gpus, best_cpus=best[0] * gpus, best_memory_gib=best[1] * gpus
            )
        elif gpus > 1:
            job = replace(job, cpus=gpus, best_cpus=gpus * bool(job.best_cpus))
        jobs.append(job)
    return jobs


class Watched:
    """A policy that records its plans; the loop refuses plans that don't fit."""

    needs_estimates = False

    def __init__(self, policy, jobs):
        self.inner, self.rounds, self.jobs = policy, policy.rounds, {job.job_id: job for job in jobs}

    def plan(self, view):
        plan = self.inner.plan(view)
        for name, node in view.nodes.items():
            tasks = [t for a in plan.allocations.values() for t in a.tasks if t.node == name]
            assert sum(t.cpu_milli for t in tasks) <= node.cpu_milli
            assert sum(t.memory_bytes for t in tasks) <= node.memory_bytes
            devices = [share.device for t in tasks for share in t.shares]
            assert len(devices) == len(set(devices))
        if self.inner.allocation == "tune":
            self.check_speeds(view, plan)
            self.check_nobody_waits_in_vain(view, plan)
        return plan

    def check_speeds(self, view, plan):
        for job_id, allocation in plan.allocations.items():
            sensitivity = self.jobs[job_id].sensitivity()
            assert sensitivity is None or sensitivity.speed(allocation.tasks[0].host) >= 1

    def check_nobody_waits_in_vain(self, view, plan):
        """At the beginning of a round no job waits whose GPUs some node has free."""
        if abs(view.now_s % 300) > 1e-6:
            return
        used = dict.fromkeys(view.nodes, 0)
        for allocation in plan.allocations.values():
            used[allocation.nodes[0]] += allocation.gpus
        most_left = max(len(node.devices) - used[name] for name, node in view.nodes.items())
        waiting = [job for job_id, job in view.jobs.items() if job_id not in plan.allocations]
        if self.inner.order != "las":  # las chooses by GPUs of the whole cluster
            assert all(job.configurations[0].gpus > most_left for job in waiting)


@settings(deadline=None, max_examples=40)
@given(
    drawn=random_jobs,
    order=st.sampled_from(["fifo", "las", "srtf"]),
    allocation=st.sampled_from(["proportional", "greedy", "tune"]),
    leased=st.booleans(),
)
def test_every_job_finishes_and_no_node_is_asked_for_more_than_it_has(simulate, drawn, order, allocation, leased):
    jobs = described(drawn)
    policy = Watched(Synergy(order=order, allocation=allocation), jobs)
    run = simulate(policy, PAIR, jobs, leases=Leases(300) if leased else None)
    assert {r.status for r in run.records.values()} == {"finished"}
    for span in run.loop.books.host_spans:
        assert span.end_s > span.start_s


@settings(deadline=None, max_examples=25)
@given(drawn=random_jobs, start_s=st.sampled_from([0.0, 30.0]), checkpoint_s=st.sampled_from([0.0, 7.5]))
def test_with_costs_cpus_are_never_given_twice(simulate, drawn, start_s, checkpoint_s):
    run = simulate(
        Synergy(order="las"), PAIR, described(drawn), start_s=start_s, checkpoint_s=checkpoint_s, decide_s=0.5
    )
    spans = run.loop.books.host_spans
    for at_s in {span.start_s for span in spans}:
        for node in ("n1", "n2"):
            there = [s for s in spans if s.node == node and s.start_s <= at_s < s.end_s]
            assert sum(s.cpu_milli for s in there) <= 12_000
            assert sum(s.memory_bytes for s in there) <= 100 * GIB
