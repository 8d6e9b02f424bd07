"""Gavel: shares computed by hand, the priority mechanism, rounds, and invariants for any jobs."""

from __future__ import annotations

import sys
from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator_runtime.domain.errors import InputError, PolicyError, UnknownNameError
from scheduler_sims.experiment import Experiment
from scheduler_sims.interface.rounds import Rounds
from scheduler_sims.policies.gavel import Gavel
from scheduler_sims.policies.gavel.credit import Credit, Slots, choose
from scheduler_sims.policies.gavel.objectives import OBJECTIVES
from scheduler_sims.policies.gavel.problem import Problem, array
from scheduler_sims.policies.gavel.programs import Program, solve
from scheduler_sims.policies.resolve import resolve_policy
from scheduler_sims.testing import Job, Node, cluster_view, places

FAST_AND_SLOW = [Node("fast", gpus=1, gpu_type="V100"), Node("slow", gpus=1, gpu_type="K80")]


def problem(rates, capacity=(1, 1), **changes):
    m = len(rates)
    fields = {
        "rates": rates,
        "gpus": np.ones(m),
        "capacity": capacity,
        "weights": np.ones(m),
        "steps_left": np.full(m, 1000.0),
        "age_s": np.zeros(m),
        "prices": np.ones(len(capacity)),
    }
    arrays = {name: array(value) for name, value in (fields | changes).items()}
    return Problem(tuple(f"j{n}" for n in range(m)), ("V100", "P100", "K80")[: len(capacity)], **arrays)


def shares(objective, given_problem):
    found = OBJECTIVES[objective](given_problem, None)[0]
    return array([found[job] for job in given_problem.jobs])


# ---- objectives, by hand


def test_max_min_gives_two_jobs_that_gain_equally_from_the_fast_type_the_same_throughput():
    rates = array([[4, 1], [8, 2]])
    found = shares("max-min", problem(rates))
    assert (found * rates).sum(axis=1) / [2.5, 5] == pytest.approx([1, 1])


def test_a_weight_of_two_gives_twice_the_throughput():
    found = shares("max-min", problem([[1], [1]], capacity=(1,), weights=[2, 1]))
    assert found[:, 0] == pytest.approx([2 / 3, 1 / 3])


def test_a_job_of_two_gpus_gets_half_the_time_of_a_job_of_one():
    found = shares("max-min", problem([[1], [1], [1]], capacity=(2,), gpus=[1, 1, 2]))
    assert found[:, 0] == pytest.approx([2 / 3, 2 / 3, 1 / 3])


def test_water_filling_raises_the_jobs_that_max_min_may_leave_at_the_common_level():
    # Two jobs share the K80, the third has the V100 for itself; max-min is content if it has no more than they.
    rates = [[0, 1], [0, 1], [1, 0]]
    assert shares("max-min", problem(rates))[2, 0] >= 0.5 - 1e-9
    assert shares("water-filling", problem(rates)) == pytest.approx(array([[0, 0.5], [0, 0.5], [1, 0]]), abs=1e-6)


def test_makespan_lets_all_jobs_end_together():
    found = shares("makespan", problem([[1], [1]], capacity=(1,), steps_left=[3000, 1000]))
    assert found[:, 0] == pytest.approx([3 / 4, 1 / 4])


def test_finish_time_fairness_favours_the_job_that_has_waited():
    # Both need 1000 s; with half of the GPU 2000 s. Job 0 has waited 1000 s:
    # (1000 + 1000/a) / 2000 = 1000/(1-a) / 2000 gives a = (sqrt(5) - 1) / 2.
    found = shares("finish-time", problem([[1], [1]], capacity=(1,), age_s=[1000, 0]))
    assert found[:, 0] == pytest.approx([0.6180340, 0.3819660], abs=1e-6)


def test_finish_time_fairness_remembers_what_a_job_would_have_done_alone():
    memory = OBJECTIVES["finish-time"](problem([[1], [1]], capacity=(1,)), None)[1]
    later = problem([[1], [1]], capacity=(1,), steps_left=[400, 1000], age_s=[600, 600])
    found, known = OBJECTIVES["finish-time"](later, memory)
    assert known.so_far_s == {"j0": pytest.approx(1200), "j1": 0}  # 600 steps at half a GPU
    ratios = [(600 + left / found[job][0]) / alone for job, left, alone in (("j0", 400, 2000), ("j1", 1000, 2000))]
    assert ratios[0] == pytest.approx(ratios[1], rel=1e-6)


def test_throughput_is_the_largest_sum_and_cost_divides_it_by_prices():
    rates = array([[4, 3], [2, 0.5]])
    assert (shares("throughput", problem(rates)) * rates).sum() == pytest.approx(5)  # job 0 on K80, job 1 on V100
    assert shares("cost", problem([[4, 3]], prices=[10, 1])) == pytest.approx(array([[0, 1]]))


def test_isolated_is_an_equal_division_with_at_most_all_the_time():
    found = shares("isolated", problem([[1, 1], [1, 1]], capacity=(3, 1), gpus=[1, 4]))
    assert found == pytest.approx(array([[0.75, 0.25], [0.375, 0.125]]))


def test_fifo_ends_at_the_first_job_for_which_no_type_has_gpus_left():
    found = shares("fifo", problem([[1, 2], [1, 1], [5, 5]], capacity=(2, 1), gpus=[1, 3, 1]))
    assert found.tolist() == [[0, 1], [0, 0], [0, 0]]


def test_fifo_passes_over_a_job_that_can_run_on_no_type():
    assert shares("fifo", problem([[0, 0], [5, 6]])).tolist() == [[0, 0], [0, 1]]


def test_allox_gives_each_gpu_the_first_job_of_its_queue_which_keeps_it():
    short = problem([[1], [1], [1]], capacity=(1,), steps_left=[30, 10, 20])
    found, memory = OBJECTIVES["allox"](short, None)
    assert found == {"j0": (0,), "j1": (1,), "j2": (0,)}
    assert OBJECTIVES["allox"](replace(short, steps_left=array([1, 10, 20])), memory)[0] == found


@pytest.mark.parametrize("objective", [name for name in OBJECTIVES if name != "allox"])
@settings(max_examples=30, deadline=None)
@given(data=st.data())
def test_shares_fit_the_cluster_and_equal_problems_have_equal_answers(objective, data):
    m, n = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 3))
    speeds = st.floats(0.1, 100)

    def several(strategy, count):
        return data.draw(st.lists(strategy, min_size=count, max_size=count))

    drawn = problem(
        several(st.lists(speeds, min_size=n, max_size=n), m),
        capacity=several(st.integers(1, 8), n),
        gpus=several(st.sampled_from([1, 2, 4]), m),
        steps_left=several(st.floats(1, 1e6), m),
        age_s=several(st.floats(0, 1e5), m),
    )
    x, memory = OBJECTIVES[objective](drawn, None)
    found = array([x[job] for job in drawn.jobs])
    assert (found >= 0).all()
    assert (found.sum(axis=1) <= 1 + 1e-6).all()
    assert (drawn.gpus @ found <= drawn.capacity * (1 + 1e-6)).all()
    assert OBJECTIVES[objective](drawn, None)[0] == x
    if objective == "max-min":
        again = array(list(OBJECTIVES[objective](drawn, memory)[0].values()))
        levels = [(drawn.rates * each).sum(axis=1) / drawn.equal_rates * drawn.gpus for each in (found, again)]
        assert levels[1].min() == pytest.approx(levels[0].min(), rel=1e-6)


def test_a_basis_serves_other_jobs_too():
    old = problem([[4, 1], [8, 2], [3, 3]])
    basis = solve(old, Program(old.rates, np.ones(3))).basis
    new = replace(old, jobs=("j1", "j2", "new"))
    cold = solve(new, Program(new.rates, np.ones(3)))
    assert solve(new, Program(new.rates, np.ones(3)), basis).level == pytest.approx(cold.level)
    assert set(basis.jobs) == {"j0", "j1", "j2"}


def test_a_program_without_a_solution_is_an_error_of_the_policy():
    with pytest.raises(PolicyError, match="HiGHS answers 'Infeasible' to the shares of 1 jobs"):
        solve(problem([[1]], capacity=(1,)), Program(array([[1]]), None, array([2.0])))


# ---- the priority mechanism


def chosen(credit, gpus, capacity=1, rates=None, **rules):
    rates = rates or dict.fromkeys(gpus, (1.0,))
    return choose(
        credit, Slots([capacity], [0]), gpus, rates, **({"shares_only": False, "newcomers_wait": False} | rules)
    )


def test_the_job_furthest_behind_its_share_goes_first():
    credit = Credit(0.0, {"a": (0.5,), "b": (0.5,)}).updated(["a", "b"], 1, {"a": (0, 360.0)}, 180)
    assert chosen(credit, {"a": 1, "b": 1}) == {"b": 0}


def test_jobs_without_a_share_fill_what_is_left_unless_only_shares_count():
    credit = Credit(0.0, {"a": (1.0,)}).updated(["a", "new"], 1, {}, 180)
    both = {"a": 1, "new": 1}
    assert chosen(credit, both, 2) == {"a": 0, "new": 0}
    assert chosen(credit, both, 2, newcomers_wait=True) == {"a": 0}
    assert chosen(credit, both, 2, shares_only=True) == {"a": 0}


def test_a_job_that_does_not_fit_is_skipped_and_one_without_speed_does_not_run():
    credit = Credit(0.0, {"wide": (1.0,), "slow": (1.0,), "one": (0.5,)}).updated(["wide", "slow", "one"], 1, {}, 180)
    assert chosen(credit, {"wide": 2, "slow": 1, "one": 1}, rates={"wide": (1.0,), "slow": (0.0,), "one": (1.0,)}) == {
        "one": 0
    }


def test_a_reset_turns_what_is_missing_into_a_deficit():
    credit = Credit(0.0, {"a": (0.5,)}).updated(["a"], 1, {"a": (0, 360.0)}, 180).reset(1000.0, {"a": (1.0,)}, 180)
    assert credit.deficit_s == {"a": (0.5 * 1000 - 360,)}
    assert credit.received_s == {"a": (180,)}
    assert credit.updated(["b"], 1, {"a": (0, 1.0)}, 180).received_s == {"b": (180,)}


def test_a_job_that_never_received_anything_goes_first():
    credit = Credit(0.0, {"a": (0.9,), "b": (0.1,)}, {"a": (1.0,), "b": (0.0,)}, {"a": (0.0,), "b": (0.0,)})
    assert credit.order(0) == ["b", "a"]


# ---- rounds


def planned(policy, jobs, now_s=0.0, after=None, nodes=FAST_AND_SLOW):
    view = cluster_view(nodes, jobs, now_s=now_s, after=after, rounds=policy.rounds)
    return view, policy.plan(view)


def test_two_jobs_take_turns_on_one_gpu(simulate):
    run = simulate(Gavel(), [Node("n1", gpus=1)], [Job("a", gpu_s=720, steps=720), Job("b", gpu_s=720, steps=720)])
    assert {job: record.finish_s for job, record in run.records.items()} == {"a": 1080, "b": 1440}
    assert all(record.preemptions == 1 for record in run.records.values())


def test_gpus_of_a_job_that_ends_wait_for_the_round_while_others_run(simulate):
    jobs = [Job("a", gpu_s=100, steps=100), Job("long", gpu_s=1000, steps=1000), Job("b", gpu_s=10, steps=10)]
    run = simulate(Gavel(reset_s=0), [Node("n1", gpus=2)], jobs)
    assert run.records["b"].finish_s == 370


def test_an_idle_cluster_does_not_wait_for_a_round(simulate):
    jobs = [Job("a", gpu_s=100, steps=100), Job("late", gpu_s=10, steps=10, submit_s=1000)]
    run = simulate(Gavel("fifo"), [Node("n1", gpus=1)], jobs)
    assert run.records["late"].finish_s == 1010


def test_a_new_job_has_no_share_before_the_next_reset():
    times = {"V100": 50_000, "K80": 90_000}
    for policy, expected in ((Gavel(), {"a", "new"}), (Gavel(fidelity="as_coded"), {"a"})):
        view, plan = planned(policy, [Job("a", gpu_s=times)], now_s=360.0)
        a = Job("a", gpu_s=times, on=places(view, plan)["a"], running_since_s=360.0)
        new = Job("new", gpu_s=times, submit_s=400)
        _, later = planned(policy, [a, new], now_s=720.0, after=plan)
        assert set(later.allocations) == expected
        assert "new" not in later.state.credit.shares
        _, reset = planned(policy, [a, new], now_s=2520.0, after=later)
        assert "new" in reset.state.credit.shares


def test_the_share_of_a_job_is_explained(simulate):
    run = simulate(Gavel(), [Node("n1", gpus=1)], [Job("a", gpu_s=720), Job("b", gpu_s=720)])
    texts = {text for _, _, text in run.explained}
    assert "round 0: Tesla-T4, where its share of time is 0.50" in texts
    assert "round 1: other jobs are further behind their shares" in texts


def test_the_order_in_which_jobs_are_described_does_not_matter():
    jobs = [Job(f"j{n}", gpu_s={"V100": 100 * n + 50, "K80": 1000}, row=n, gpus=1 + n % 2) for n in range(4)]
    nodes = [Node("fast", gpus=2, gpu_type="V100"), Node("slow", gpus=2, gpu_type="K80")]
    found = {str(sorted(places(*planned(Gavel(), list(order), nodes=nodes)).items())) for order in permutations(jobs)}
    assert len(found) == 1


def test_a_job_that_keeps_its_type_keeps_its_device_unless_that_is_broken():
    jobs = [Job("a", gpu_s=100_000, on="n1/1"), Job("b", gpu_s=100_000)]
    assert places(*planned(Gavel(), jobs, nodes=[Node("n1", gpus=2)])) == {"a": "n1/1", "b": "n1/0"}
    broken = [Node("n1", gpus=3, unhealthy=(1,))]
    assert set(places(*planned(Gavel(), jobs, nodes=broken)).values()) == {"n1/0", "n1/2"}


def test_a_job_that_finds_no_room_on_one_node_waits():
    jobs = [Job("a", gpu_s=1000, on="n1/0"), Job("b", gpu_s=1000, on="n2/0"), Job("wide", gpu_s=1000, gpus=2)]
    nodes = [Node("n1", gpus=2), Node("n2", gpus=2)]
    assert set(places(*planned(Gavel(), jobs, nodes=nodes))) == {"a", "b"}


def test_other_gpu_types_begin_a_new_division():
    policy = Gavel()
    _, plan = planned(policy, [Job("a", gpu_s=1000)], nodes=[Node("n1", gpus=1)])
    view = cluster_view(FAST_AND_SLOW, [Job("a", gpu_s={"V100": 10, "K80": 20})], rounds=policy.rounds)
    moved = policy.plan(replace(view, state=plan.state, triggers=frozenset({"node"})))
    assert moved.state.types == ("V100", "K80")
    assert places(view, moved) == {"a": "fast/0"}


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("options", ["", ",aware=false", ",fidelity=as_coded"])
def test_under_each_objective_all_jobs_end(simulate, objective, options):
    policy = resolve_policy(f"gavel:objective={objective},round_s=10,reset_s=40{options}")[1]
    gpus = [1] * 6 if objective == "allox" else [1, 2, 1, 4, 2, 1]
    jobs = [Job(f"j{n}", gpu_s=37 + 11 * n, steps=37 + 11 * n, gpus=g, submit_s=7.0 * n) for n, g in enumerate(gpus)]
    nodes = [Node("n1", gpus=4), Node("n2", gpus=2, gpu_type="Tesla_K80")]
    run = simulate(policy, nodes, jobs, stop_s=1, start_s=1)
    assert all(record.finish_s > 0 for record in run.records.values())


# ---- refusals


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("gavel:objective=max_min", "objective"),
        ("gavel:fidelity=exact", "fidelity"),
        ("gavel:round_s=0", "round_s"),
        ("gavel:prices=V100", "no price above 0"),
        ("gavel:prices=V100:0", "no price above 0"),
    ],
)
def test_options_that_make_no_sense_are_refused(text, message):
    with pytest.raises((InputError, UnknownNameError), match=message):
        resolve_policy(text)


def test_prices_may_name_gpu_types_by_their_short_names():
    policy, nodes = Gavel("cost", prices="V100:10|k80:1"), [Node("slow", gpus=1, gpu_type="Tesla_K80")]
    nodes.append(Node("fast", gpus=1, gpu_type="Tesla_V100-PCIE-32GB"))
    job = Job("a", gpu_s={"Tesla_K80": 200, "Tesla_V100-PCIE-32GB": 100})
    assert planned(policy, [job], nodes=nodes)[1].state.credit.shares == {"a": (1.0, 0.0)}


def test_jobs_that_it_can_not_handle_are_refused():
    with pytest.raises(PolicyError, match="job 'c' runs on CPUs only"):
        planned(Gavel(), [Job("c", cpu_s=10)])
    with pytest.raises(PolicyError, match="'wide' wants 2 GPUs; objective allox"):
        planned(Gavel("allox"), [Job("wide", gpu_s=10, gpus=2)], nodes=[Node("n1", gpus=2)])
    with pytest.raises(PolicyError, match="has no price of K80"):
        planned(Gavel("cost", prices="V100:2.48"), [Job("a", gpu_s={"V100": 1, "K80": 2})])
    with pytest.raises(PolicyError, match="needs rounds"):
        Gavel().plan(cluster_view(FAST_AND_SLOW, [Job("a", gpu_s=10)]))


def test_without_highs_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "highspy", None)
    for name in ("objectives", "programs"):
        monkeypatch.delitem(sys.modules, f"scheduler_sims.policies.gavel.{name}")
    with pytest.raises(PolicyError, match=r"pip install 'emugpu\[scheduler\]'"):
        Gavel()


def test_without_aware_the_order_of_types_is_drawn_for_each_round():
    policy = Gavel(aware=False)
    orders = [tuple(policy._order(number, 3)) for number in range(20)]
    assert len(set(orders)) > 1
    assert [tuple(policy._order(number, 3)) for number in reversed(range(20))] == orders[::-1]
    assert sorted(policy._order(0, 2)) == [0, 1]
    assert policy.rounds == Rounds(360.0)


@pytest.mark.parametrize("others", [0, 1])
@pytest.mark.parametrize("objective", sorted(OBJECTIVES.keys() - {"allox"}))
def test_a_job_whose_nodes_are_away_waits_for_them(tmp_path, objective, others):
    """Also where they are all nodes."""
    other = "  - {name: small, gpus: 1, gpu_type: A100, cpus: 16}\n" * others
    (tmp_path / "jobs.csv").write_text("job_id,submit_s,num_gpus,gpu_duration_s\na,0,2,100\nb,100,2,50\n")
    (tmp_path / "cluster.yaml").write_text(
        "nodes:\n  - {name: large, gpus: 2, gpu_type: A100, cpus: 16}\n"
        f"{other}failures: {{checkpoint_every_s: 20, outages: [{{node: large, at_s: 60, down_s: 1000}}]}}\n"
    )
    experiment = Experiment.load(tmp_path / "jobs.csv", tmp_path / "cluster.yaml")
    jobs = experiment.simulate(f"gavel:objective={objective},round_s=50").jobs
    assert [job.status for job in jobs] == ["finished"] * 2
    assert min(job.finish_s for job in jobs) > 1_060


def test_only_jobs_that_have_room_now_share_the_gpus(tmp_path):
    """While the large node is away, the small one has one job, though another job's rate was known before."""
    (tmp_path / "jobs.csv").write_text("job_id,submit_s,num_gpus,gpu_duration_s\na,0,2,500\nc,100,1,300\n")
    (tmp_path / "cluster.yaml").write_text(
        "nodes:\n  - {name: large, gpus: 2, gpu_type: A100, cpus: 16}\n  - {name: small, gpus: 1, gpu_type: A100, cpus: 16}\n"
        "failures: {checkpoint_every_s: 20, outages: [{node: large, at_s: 60, down_s: 1000}]}\n"
    )
    experiment = Experiment.load(tmp_path / "jobs.csv", tmp_path / "cluster.yaml")
    _, c = experiment.simulate("gavel:round_s=50").jobs
    assert (c.start_s, c.finish_s) == (100, 400)
