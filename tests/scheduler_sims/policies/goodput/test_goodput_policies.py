"""Pollux, Sia and Optimus in the loop: elastic jobs on one and on several nodes and GPU types, by hand and to their end."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import permutations
from pathlib import Path

import pytest

from emulator_runtime.domain.errors import InputError, PolicyError
from scheduler_sims.experiment import Experiment
from scheduler_sims.interface.rounds import Rounds
from scheduler_sims.policies.goodput import Optimus, Pollux, Sia
from scheduler_sims.policies.resolve import resolve_policy
from scheduler_sims.reports.metrics import figures
from scheduler_sims.testing import Job, Node, cluster_view, places

EXAMPLES = Path(__file__).parents[4] / "examples"
SMALL = "population=20,generations=20"
POLICIES = {"pollux": Pollux, "sia": Sia, "optimus": Optimus}
ONE = [Node("n1", gpus=4)]
TWO_TYPES = [Node("fast", gpus=2, gpu_type="V100"), Node("slow", gpus=2, gpu_type="K80")]


def elastic(name, gpu_s=100_000, most=4, **changes):
    return Job(name, gpu_s=gpu_s, **({"gpus": 1, "min_gpus": 1, "max_gpus": most, "cpus": 0.001} | changes))


def seen(jobs, nodes=ONE, now_s=600.0, after=None):
    """The view, with 64 samples in a step of each job."""
    view = cluster_view(nodes, jobs, now_s=now_s, after=after, rounds=Rounds(60))
    return replace(view, jobs={job_id: replace(job, batch_size=64) for job_id, job in view.jobs.items()})


def planned(policy, jobs, nodes=ONE, now_s=600.0, after=None):
    view = seen(jobs, nodes, now_s, after)
    return view, policy.plan(view)


def gpus(plan):
    return {job_id: allocation.gpus for job_id, allocation in plan.allocations.items()}


# ---- one decision


def test_a_job_is_explored_by_doubling():
    for policy in (Pollux(), Sia()):
        _, plan = planned(policy, [elastic("a")])
        assert gpus(plan) == {"a": 1}
        _, plan = planned(policy, [elastic("a", on="n1/0")], now_s=660.0, after=plan)
        assert gpus(plan) == {"a": 2}
        _, plan = planned(policy, [elastic("a", on="n1/0 n1/1")], now_s=6000.0)
        assert gpus(plan) == {"a": 4}


def test_optimus_gives_all_jobs_one_gpu_and_the_rest_where_it_saves_most_time():
    _, plan = planned(
        Optimus(), [elastic("long", 9000), elastic("short", 100), elastic("rigid", min_gpus=0, max_gpus=0)]
    )
    assert gpus(plan) == {"long": 2, "short": 1, "rigid": 1}


def test_sia_chooses_the_gpu_type_of_a_job_that_is_not_elastic():
    rigid = {"gpus": 2, "min_gpus": 0, "max_gpus": 0}
    gains, same = {"V100": 100, "K80": 900}, {"V100": 100, "K80": 110}
    jobs = [elastic("same", gpu_s=same, **rigid), elastic("gains", gpu_s=gains, **rigid)]
    view, plan = planned(Sia(), jobs, nodes=TWO_TYPES)
    assert places(view, plan) == {"gains": "fast/0 fast/1", "same": "slow/0 slow/1"}


def test_within_a_round_freed_gpus_stay_idle_and_jobs_that_stay_keep_their_devices():
    for policy in (Pollux(), Sia(), Optimus()):
        jobs = [elastic(f"j{n}", most=1) for n in range(5)]
        view, plan = planned(policy, jobs)
        where = places(view, plan)
        assert len(where) == 4
        here = [replace(job, on=where.get(job.job_id, "")) for job in jobs]
        gone, *others = sorted(where)
        rest = [job for job in here if job.job_id != gone]
        view = seen(rest, now_s=610.0)
        later = policy.plan(replace(view, state=plan.state))
        assert places(view, later) == {job: where[job] for job in others}
        view = seen(rest, now_s=670.0)
        next_round = places(view, policy.plan(replace(view, state=plan.state)))
        assert len(next_round) == 4
        assert {job: next_round[job] for job in others} == {job: where[job] for job in others}


@pytest.mark.parametrize("name", POLICIES)
def test_the_order_in_which_jobs_are_described_does_not_matter(name):
    jobs = [elastic(f"j{n}", 1000 * (n + 1), row=n) for n in range(3)]
    found = {str(sorted(places(*planned(POLICIES[name](), list(order))).items())) for order in permutations(jobs)}
    assert len(found) == 1


@pytest.mark.parametrize("name", POLICIES)
def test_broken_devices_are_not_used(name):
    nodes = [Node("n1", gpus=2, unhealthy=(0,))]
    view, plan = planned(POLICIES[name](), [elastic("a", most=1, on="n1/0"), elastic("b", most=1)], nodes=nodes)
    assert list(places(view, plan).values()) == ["n1/1"]
    _, plan = planned(POLICIES[name](), [elastic("a")], nodes=[Node("n1", gpus=1, unhealthy=(0,))])
    assert gpus(plan) == {}


# ---- to the end


@pytest.mark.parametrize(
    "policy", [f"pollux:{SMALL}", "sia", "optimus", f"pollux:noise_scale=500,{SMALL}", "sia:noise_scale=500"]
)
def test_all_elastic_jobs_end(policy):
    run = Experiment.load(EXAMPLES / "elastic-8" / "workload.csv", EXAMPLES / "elastic-8" / "cluster.yaml").simulate(
        policy
    )
    found = figures(run)
    assert (found.finished, found.failed) == (8, 0)
    held = {(span.job_id, span.start_s): 0 for span in run.spans}
    for span in run.spans:
        held[span.job_id, span.start_s] += 1
    assert max(held.values()) > 1


@pytest.mark.parametrize("policy", [f"pollux:{SMALL}", "sia", "optimus"])
def test_the_same_run_twice_is_the_same(policy):
    experiment = Experiment.load(EXAMPLES / "elastic-8" / "workload.csv", EXAMPLES / "elastic-8" / "cluster.yaml")
    one, other = experiment.simulate(policy), experiment.simulate(policy)
    assert one.jobs == other.jobs and one.spans == other.spans


WIDE = """job_id,submit_s,num_gpus,nodes,min_gpus,max_gpus,max_nodes,model,batch_size,steps
wide,0,2,1,1,8,4,resnet50,64,3000
narrow,5,1,1,1,2,1,resnet18,64,3000
rigid,10,2,1,,,,vgg16,64,300
"""


@pytest.mark.parametrize("policy", [f"pollux:{SMALL}", f"pollux:noise_scale=1000,{SMALL}", "sia", "optimus"])
def test_jobs_may_spread_over_nodes(policy, tmp_path):
    (tmp_path / "workload.csv").write_text(WIDE)
    (tmp_path / "cluster.yaml").write_text("nodes:\n  - {name: n, count: 4, gpus: 2, gpu_type: V100, cpus: 64}\n")
    run = Experiment.load(tmp_path / "workload.csv", tmp_path / "cluster.yaml").simulate(policy)
    assert figures(run).finished == 3


def test_sia_uses_several_gpu_types(tmp_path):
    (tmp_path / "workload.csv").write_text(WIDE + "".join(f"more-{n},0,1,1,,,,resnet18,64,2000\n" for n in range(4)))
    nodes = [
        "{name: a, count: 2, gpus: 2, gpu_type: V100, cpus: 64}",
        "{name: b, gpus: 4, gpu_type: P100, cpus: 64}",
    ]
    (tmp_path / "cluster.yaml").write_text(f"nodes: [{', '.join(nodes)}]")
    run = Experiment.load(tmp_path / "workload.csv", tmp_path / "cluster.yaml").simulate("sia")
    assert figures(run).finished == 7
    assert {span.node for span in run.spans} == {"a-1", "a-2", "b"}


def test_a_derived_policy_says_the_noise_scale_by_job():
    class ByName(Sia):
        def noise_scale_of(self, view, job):
            return 100.0 if job.job_id == "noisy" else 0.0

    jobs = [elastic("noisy"), elastic("plain")]
    _, plan = planned(ByName(), jobs)
    assert set(gpus(plan)) == {"noisy", "plain"}
    assert planned(ByName(), jobs, now_s=660.0, after=plan)[1].state.round == 11


# ---- refusals


@pytest.mark.parametrize(
    "text",
    [
        "pollux:round_s=0",
        "pollux:population=1",
        "pollux:generations=-1",
        "pollux:noise_scale=-1",
        "sia:power=0",
        "sia:power=0.5",
        "sia:penalty=-1",
        "sia:noise_scale=-1",
        "sia:restart_s=-1",
        "optimus:round_s=0",
    ],
)
def test_options_that_make_no_sense_are_refused(text):
    with pytest.raises(InputError):
        resolve_policy(text)


@pytest.mark.parametrize("name", POLICIES)
def test_jobs_and_clusters_that_it_can_not_handle_are_refused(name):
    policy = POLICIES[name]()
    with pytest.raises(PolicyError, match=f"{name}: job 'c' runs on CPUs only"):
        planned(policy, [Job("c", cpu_s=10)])
    with pytest.raises(PolicyError, match="needs rounds"):
        policy.plan(cluster_view(ONE, [elastic("a")]))
    if name != "sia":
        with pytest.raises(PolicyError, match="one GPU type"):
            planned(policy, [elastic("a")], nodes=TWO_TYPES)


# ---- models that are divided over GPUs

LLM = EXAMPLES / "llm-12"


TRIPLE = [Node("n1", gpus=3), Node("n2", gpus=3)]


def test_sia_gives_a_job_that_can_have_none_of_its_shapes_what_it_asks_for():
    _, plan = planned(Sia(), [Job("odd", gpu_s=1000, gpus=3), Job("two", gpu_s=1000, gpus=2, nodes=2)], TRIPLE)
    assert gpus(plan) == {"odd": 3}, "then each node has no GPU left for one of two tasks"
    _, plan = planned(Sia(), [Job("two", gpu_s=1000, gpus=2, nodes=2)], TRIPLE)
    assert gpus(plan) == {"two": 2}
    nodes = [Node(f"n{number}", gpus=8) for number in range(9)]
    _, plan = planned(Sia(), [Job("large", gpu_s=1000, gpus=72, nodes=9)], nodes)
    assert gpus(plan) == {"large": 72}


def test_sia_gives_others_none_of_the_shapes_that_such_a_job_asks_for():
    jobs = [elastic("e", most=3, on="n1/0 n1/1"), Job("odd", gpu_s=1000, gpus=3)]
    _, plan = planned(Sia(), jobs, TRIPLE, now_s=6000.0)
    assert gpus(plan) == {"e": 2, "odd": 3}


@pytest.mark.parametrize(
    ("nodes", "job", "given"),
    [
        ([Node("n1", gpus=6)], elastic("e", gpus=7, min_gpus=5, max_gpus=7, cpus=7), 6),
        ([Node("n1", gpus=8, unhealthy=(0, 1, 2))], elastic("e", gpus=6, min_gpus=5, max_gpus=6, cpus=6), 5),
        ([Node("n1", gpus=4, cpus=2)], Job("e", gpu_s=1000, gpus=3, cpus=4), None),
        ([Node("n1", gpus=3, gpu_memory_gib=8)], Job("e", gpu_s=1000, gpus=3, gpu_memory_gib=12), None),
    ],
)
def test_sia_offers_such_a_job_only_what_there_is_room_for(nodes, job, given):
    _, plan = planned(Sia(), [job, Job("x", gpu_s=1000, gpus=1)], nodes)
    assert gpus(plan) == (
        {"x": 1} if given is None else {"e": given} | ({"x": 1} if given < 6 and len(nodes) > 1 else {})
    )


def test_sia_stops_no_job_for_a_choice_without_room():
    """Two GPUs are left, one on each node; two of them are the best choice for 'e'."""
    nodes = [Node("n1", gpus=4), Node("n2", gpus=4)]
    jobs = [Job("o1", gpu_s=1000, gpus=3), Job("o2", gpu_s=1000, gpus=3), elastic("e", most=2, on="n1/3")]
    _, plan = planned(Sia(), jobs, nodes, now_s=6000.0)
    assert gpus(plan) == {"o1": 3, "o2": 3, "e": 1}


def test_sia_leaves_batches_of_durations_alone():
    run = Experiment.load(LLM / "workload.csv", LLM / "cluster.yaml").simulate("sia:noise_scale=1000,restart_s=90")
    assert (figures(run).finished, figures(run).failed) == (12, 0)


def test_pollux_refuses_models_that_are_divided():
    with pytest.raises(PolicyError, match=r"pollux: the model of job 'job-00-3.6B' is divided over GPUs .* use sia"):
        Experiment.load(LLM / "workload.csv", LLM / "cluster.yaml").simulate("pollux:population=20,generations=20")


@pytest.mark.parametrize("policy", ["sia", "optimus"])
def test_they_get_whole_replicas_on_any_cluster(policy, tmp_path):
    """Nodes of 6 GPUs: of a layer on 4 GPUs, one fits on each."""
    (tmp_path / "jobs.csv").write_text(
        "job_id,num_gpus,min_gpus,max_gpus,max_nodes,tensor_parallel,pipeline_parallel,microbatches,gpu_duration_s\n"
        "a,4,4,12,3,4,1,12,600\nb,2,2,6,1,2,1,12,600\nc,1,1,6,3,1,1,16,600\n",
        encoding="utf-8",
    )
    (tmp_path / "nodes.yaml").write_text(
        "nodes:\n  - {name: n, count: 3, gpus: 6, gpu_type: V100, cpus: 32}\n", encoding="utf-8"
    )
    run = Experiment.load(tmp_path / "jobs.csv", tmp_path / "nodes.yaml").simulate(policy)
    assert (figures(run).finished, figures(run).failed) == (3, 0)
    held = Counter((span.job_id, span.node, span.start_s) for span in run.spans)
    replica = {"a": 4, "b": 2, "c": 1}
    assert all(count % replica[job_id] == 0 for (job_id, *_), count in held.items())
    assert max(Counter((span.job_id, span.start_s) for span in run.spans).values()) > 2
