"""Nodes that fail, come back, and are announced to go: what jobs lose, and what policies are told."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice, pairwise
from statistics import fmean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator_runtime.domain.errors import ClusterError, InputError
from emulator_runtime.profiles.catalogue import bundled_catalogue
from emulator_runtime.profiles.table import ProfileTable
from scheduler_sims.clusters.local import LocalCluster, LocalOptions
from scheduler_sims.clusters.simulated import SimulatedCluster
from scheduler_sims.inputs.cluster_file import parse_cluster
from scheduler_sims.inputs.outages import Failures, Outage, RandomOutages
from scheduler_sims.inputs.truth import WorkloadTruth
from scheduler_sims.inputs.workload import Workload
from scheduler_sims.interface.estimates import parse_estimates
from scheduler_sims.loop.scheduler_loop import SchedulerLoop
from scheduler_sims.policies import POLICIES
from scheduler_sims.policies.resolve import resolve_policy
from scheduler_sims.testing import Job, Node

TWO = [Node("a", gpus=2), Node("b", gpus=2)]


@pytest.fixture(scope="session")
def run(job_specs, cluster_spec):
    """`run(policy, nodes, jobs, failures, **costs)`: the records of jobs by id, the cluster, and the loop."""

    def run(policy, nodes, jobs, failures, **costs):
        specs, spec = job_specs(jobs), replace(cluster_spec(nodes, **costs), failures=failures)
        truth = WorkloadTruth(Workload("w", specs, ProfileTable.bundled()), spec)
        cluster = SimulatedCluster(truth, spec.costs)
        loop = SchedulerLoop(cluster, spec, resolve_policy(policy)[1], parse_estimates("oracle", truth, 0), specs)
        loop.run()
        return {record.job_id: record for record in loop.books.records()}, cluster, loop

    return run


def down(node, at_s, until_s, notice_s=0.0):
    return Outage(node, at_s - notice_s, at_s, until_s)


@pytest.mark.parametrize(
    ("every_s", "finish_s", "kept", "lost_gpu_s"),
    [
        (0, 150, 0, 100),  # begins anew on the other node
        (20, 110, 40, 20),  # 40 of 100 steps are kept at 50 s
        (50, 150, 0, 100),  # the checkpoint of this moment comes too late
        (30, 120, 30, 40),
    ],
)
def test_a_job_goes_on_at_its_last_checkpoint(run, every_s, finish_s, kept, lost_gpu_s):
    """100 steps of 1 s on two GPUs; its node fails after 50 s, the other one is idle."""
    jobs = [Job("j", gpu_s=100, gpus=2, steps=100)]
    records, cluster, _ = run("fifo", TWO, jobs, Failures(every_s, (down("a", 50, 1000),)))
    (interruption,) = cluster.interruptions
    assert (interruption.node, interruption.at_s, interruption.kept_steps) == ("a", 50, kept)
    assert interruption.lost_gpu_s == lost_gpu_s
    assert records["j"].finish_s == finish_s
    assert records["j"].preemptions == 0


def test_a_job_waits_for_its_node_where_there_is_no_other(run):
    records, _, _ = run("fifo", TWO[:1], [Job("j", gpu_s=100, steps=100)], Failures(10, (down("a", 55, 70),)))
    assert records["j"].finish_s == 70 + 50


def test_an_announced_job_stops_in_time_and_loses_nothing(run):
    """Notice at 40 s; checkpoint of 5 s after the step that runs; it resumes on the other node at once."""
    jobs = [Job("j", gpu_s=100, steps=100)]
    outages = (down("a", 60, 1000, notice_s=20),)
    records, cluster, _ = run("fifo", TWO, jobs, Failures(0, outages), checkpoint_s=5)
    assert cluster.interruptions == []
    assert records["j"].preemptions == 1
    assert records["j"].finish_s == pytest.approx(100 + 5, abs=1.1)  # the step that began at 40 s is finished


def test_a_notice_that_is_too_short_does_not_help(run):
    """The checkpoint would take 30 s, the node is gone after 20 s."""
    outages = (down("a", 60, 1000, notice_s=20),)
    records, cluster, _ = run("fifo", TWO, [Job("j", gpu_s=100, steps=100)], Failures(0, outages), checkpoint_s=30)
    assert [one.kept_steps for one in cluster.interruptions] == [0]
    assert records["j"].finish_s == 60 + 100


def test_a_job_whose_last_step_has_ended_has_finished(run):
    """It releases its devices for another 10 s when its node fails."""
    records, cluster, _ = run(
        "fifo", TWO, [Job("j", gpu_s=50, steps=50)], Failures(0, (down("a", 55, 100),)), finish_s=10
    )
    assert cluster.interruptions == []
    assert records["j"].finish_s == 50


def test_all_nodes_of_a_gang_count(run):
    jobs = [Job("gang", gpu_s=100, gpus=4, nodes=2, steps=100)]
    records, cluster, _ = run("fifo", TWO, jobs, Failures(10, (down("b", 35, 50),)))
    (interruption,) = cluster.interruptions
    assert (interruption.kept_steps, interruption.lost_gpu_s) == (30, 20)
    assert records["gang"].finish_s == 50 + 70


@pytest.mark.parametrize("slots", [0, 1])
def test_a_start_that_a_failing_node_interrupts_begins_anew(run, slots):
    """A start takes 10 s; the node fails after 5 s of it, which ends its work."""
    outages = (down("a", 5, 1000),)
    records, cluster, _ = run(
        "fifo", TWO, [Job("j", gpu_s=20, steps=20)], Failures(0, outages), start_s=10, host_slots=slots
    )
    assert [one.lost_gpu_s for one in cluster.interruptions] == [0]
    assert records["j"].finish_s == pytest.approx(5 + 10 + 20)


def test_shared_devices_fail_as_well(run):
    shared = [Node("a", gpus=1, sharing="fair"), Node("b", gpus=1, sharing="fair")]
    jobs = [Job(name, gpu_s=20, steps=20) for name in "xy"]
    records, cluster, _ = run("muri-s", shared, jobs, Failures(5, (down("a", 12, 1000),)))
    assert {one.job_id for one in cluster.interruptions} <= {"x", "y"}
    assert cluster.interruptions and all(record.status == "finished" for record in records.values())


def test_a_job_that_never_reaches_a_checkpoint_ends_the_run_with_the_fix(run):
    random = RandomOutages(("a",), 50, 10)
    with pytest.raises(
        ClusterError, match=r"job 'j' was interrupted 1000 times in a row .* shorter checkpoint_every_s"
    ):
        run("fifo", TWO[:1], [Job("j", gpu_s=5000, steps=100)], Failures(0, (), (random,)))


RANDOM = {"gavel": "gavel", "pollux": "pollux:population=10,generations=5"}


@pytest.mark.parametrize("name", sorted(POLICIES))
def test_every_policy_lives_with_failing_nodes(run, name):
    """All jobs end, although each node fails some times, and no job is on a node that is away."""
    nodes = [Node(f"n{number}", gpus=2, cpus=64) for number in range(4)]
    gpus = (1, 1) if name.startswith("allox") else (1, 2)
    jobs = [Job(f"j{n}", gpu_s=40 + 7 * n, cpu_s=None, gpus=gpus[n % 2], steps=100, submit_s=5 * n) for n in range(16)]
    outages = RandomOutages(tuple(node.name for node in nodes), 90, 20, notice_s=5, seed=3)
    records, cluster, loop = run(RANDOM.get(name, name), nodes, jobs, Failures(10, (), (outages,)))
    assert {record.status for record in records.values()} == {"finished"}
    away = [(o.node, o.at_s, o.until_s) for node in outages.nodes for o in islice(outages.of(node), 40)]
    for span in loop.books.spans:
        assert not any(
            node == span.node and span.start_s < until - 1e-6 and span.end_s > at + 1e-6 for node, at, until in away
        ), span
    assert cluster.interruptions or loop.books.spans


@settings(max_examples=20)
@given(
    every_s=st.sampled_from([0, 5, 30]),
    times=st.lists(st.integers(1, 60), min_size=2, max_size=6),
    gpu_s=st.integers(10, 80),
)
def test_time_is_conserved(run, every_s, times, gpu_s):
    """On one node: what a job ran for is its work and what it lost."""
    marks = [sum(times[: index + 1]) for index in range(len(times))]
    outages = tuple(down("a", at_s, until_s) for at_s, until_s in list(pairwise(marks))[::2])
    records, cluster, loop = run("fifo", TWO[:1], [Job("j", gpu_s=gpu_s, steps=gpu_s)], Failures(every_s, outages))
    held_s = sum(span.end_s - span.start_s for span in loop.books.spans)
    assert held_s == pytest.approx(gpu_s + sum(one.lost_gpu_s for one in cluster.interruptions))
    finish_s = records["j"].finish_s
    assert finish_s == pytest.approx(held_s + sum(o.until_s - o.at_s for o in outages if o.at_s < finish_s))


def test_random_outages_are_exponential_and_of_each_node_alone():
    first, other = RandomOutages(("a", "b"), 1000, 50, seed=1), RandomOutages(("b",), 1000, 50, seed=1)
    found = list(islice(first.of("b"), 2000))
    assert found == list(islice(other.of("b"), 2000))
    assert found != list(islice(first.of("a"), 2000))
    announced = list(islice(RandomOutages(("b",), 1000, 50, notice_s=600, seed=1).of("b"), 2000))
    assert [one.at_s for one in announced] == [one.at_s for one in found]
    assert all(before.until_s <= after.notice_at_s <= after.at_s for before, after in pairwise(announced))
    up_s = [after.at_s - before.until_s for before, after in pairwise(found)]
    assert fmean(up_s) == pytest.approx(1000, rel=0.1)
    assert sum(each > 1000 for each in up_s) / len(up_s) == pytest.approx(0.368, abs=0.04)  # e^-1


FILE = {"nodes": [{"name": "a", "count": 2, "gpus": 1, "gpu_type": "V100", "cpus": 8}]}


def parsed(failures):
    return parse_cluster(FILE | {"failures": failures}, "c.yaml", bundled_catalogue()).failures


def test_a_cluster_file_says_what_fails():
    found = parsed(
        {"checkpoint_every_s": 600, "outages": [{"node": "a-1", "at_s": 100, "down_s": 50, "notice_s": 10}]},
    )
    assert found == Failures(600, (Outage("a-1", 90, 100, 150),))
    assert parsed({"random": [{"nodes": "a", "mtbf_s": 1000, "down_s": 5, "seed": 2}]}) == Failures(
        0, (), (RandomOutages(("a-1", "a-2"), 1000, 5, 0, 2),)
    )
    assert (
        str(parsed({"random": [{"mtbf_s": 1000, "down_s": 5}]})) == "2 nodes with an MTBF of 1000 s; checkpoints never"
    )


@pytest.mark.parametrize(
    ("failures", "says"),
    [
        ([], "failures: must be a mapping"),
        ({"mtbf": 5}, "mtbf"),
        ({"outages": {}}, r"failures\.outages: must be a list"),
        (
            {"outages": [{"node": "x", "at_s": 1, "down_s": 1}]},
            r"outages\[0\]\.node: the cluster has no node 'x'; it has a-1, a-2",
        ),
        ({"outages": [{"node": "a-1", "at_s": 0, "down_s": 1}]}, r"outages\[0\]\.at_s"),
        ({"outages": [{"node": "a-1", "at_s": 1}]}, r"outages\[0\]\.down_s"),
        ({"outages": [{"node": "a-1", "at_s": 1, "down_s": 1, "notice_s": 2}]}, r"notice_s: is longer than at_s"),
        (
            {"outages": [{"node": "a-1", "at_s": 10, "down_s": 10}, {"node": "a-1", "at_s": 15, "down_s": 1}]},
            r"outages\[1\]\.at_s: node a-1 is away then",
        ),
        ({"random": [{"nodes": "b", "mtbf_s": 5, "down_s": 5}]}, r"random\[0\]\.nodes"),
        ({"random": [{"mtbf_s": 0, "down_s": 5}]}, r"random\[0\]\.mtbf_s"),
        (
            {"random": [{"mtbf_s": 5, "down_s": 5, "notice_s": 5}]},
            r"random\[0\]\.notice_s: must be shorter than mtbf_s",
        ),
        ({"random": [{"mtbf_s": 5, "down_s": 5}] * 2}, r"random\[1\]\.nodes: node a-1 has outages of another entry"),
        ({"checkpoint_every_s": 0.1}, r"checkpoint_every_s: must be 0 \(none\) or at least 1 s"),
    ],
)
def test_what_is_wrong_is_named(failures, says):
    with pytest.raises(InputError, match=says):
        parsed(failures)


def test_only_the_simulator_has_failing_nodes(cluster_spec):
    spec = replace(cluster_spec(TWO), failures=Failures(0, (down("a", 1, 2),)))
    with pytest.raises(InputError, match=r"failures: nodes fail in the simulator only"):
        LocalCluster(spec, LocalOptions())
