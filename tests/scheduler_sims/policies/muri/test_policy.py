"""Muri-S and Muri-L on shared devices: groups, where they run, and what they gain."""

from __future__ import annotations

from dataclasses import replace
from statistics import mean

import pytest

from scheduler_sims.experiment import Experiment
from scheduler_sims.interface.view import Phase
from scheduler_sims.policies.resolve import resolve_policy
from scheduler_sims.testing import Job, Node, cluster_view

CLUSTER = "nodes:\n  - {name: n, count: 1, gpus: 2, gpu_type: Tesla-T4, cpus: 16, sharing: SHARING}\n"
ROWS = "job_id,submit_s,num_gpus,gpu_duration_s,host_s,steps\n"


def run(tmp_path, policy, rows, sharing="fifo"):
    (tmp_path / "jobs.csv").write_text(ROWS + "\n".join(rows) + "\n")
    (tmp_path / "cluster.yaml").write_text(CLUSTER.replace("SHARING", sharing))
    experiment = Experiment.load(tmp_path / "jobs.csv", tmp_path / "cluster.yaml")
    return {record.job_id: record for record in experiment.simulate(policy).jobs}


HALF = [f"j{number},0,1,100,0.5,100" for number in range(4)]
"""Steps of 1 s, half of which the host works and the GPU waits."""


@pytest.mark.parametrize("policy", ["muri-s", "muri-l"])
def test_jobs_whose_gpus_wait_half_the_time_share_them(tmp_path, policy):
    together = run(tmp_path, policy, HALF)
    alone = run(tmp_path, "srsf", HALF, "exclusive")
    assert all(record.start_s == 0 for record in together.values())
    assert max(record.finish_s for record in together.values()) == pytest.approx(100, abs=2)
    assert max(record.finish_s for record in alone.values()) == pytest.approx(200, abs=2)
    assert len({record.devices for record in together.values()}) == 2


def test_without_matching_the_first_jobs_share_until_the_rest_fits(tmp_path):
    found = run(tmp_path, "muri-s:matching=false", HALF)
    (shared,), (alone,) = found["j0"].devices, found["j3"].devices
    assert shared != alone
    assert found["j1"].devices == (shared,)
    assert found["j2"].devices == (shared, alone)  # it moves when j3 has ended
    assert found["j3"].finish_s == pytest.approx(100, abs=2)


def test_on_exclusive_devices_muri_s_is_srsf(tmp_path):
    rows = [f"j{number},{number * 7},{1 + number % 2},{20 + 13 * number},0,100" for number in range(8)]
    muri, srsf = (
        {job_id: record.finish_s for job_id, record in run(tmp_path, policy, rows, "exclusive").items()}
        for policy in ("muri-s", "srsf")
    )
    assert mean(muri.values()) == pytest.approx(mean(srsf.values()), rel=0.05)


def test_while_all_jobs_fit_none_shares(tmp_path):
    found = run(tmp_path, "muri-s", HALF[:2])
    assert {record.devices for record in found.values()} == {("n/0",), ("n/1",)}


def test_only_jobs_of_as_many_gpus_share(tmp_path):
    rows = ["wide-0,0,2,100,0.5,100", "wide-1,0,2,100,0.5,100", "one,0,1,100,0.5,100"]
    found = run(tmp_path, "muri-l", rows)
    assert found["wide-0"].devices == found["wide-1"].devices
    assert found["one"].start_s > 0


def test_a_group_stays_where_its_members_run():
    """Two jobs run on a device each; a third one of the same kind joins the one that was submitted next to it, which isn't
    stopped."""
    policy = resolve_policy("muri-s")[1]
    nodes = [Node("n", gpus=2, sharing="fifo")]
    jobs = [Job("a", gpu_s=50, on="n/0"), Job("b", gpu_s=40, on="n/1", row=9), Job("c", gpu_s=30, row=1)]
    view = shared(cluster_view(nodes, jobs))
    plan = policy.plan(view)
    assert not plan.stopped
    assert set(plan.started) == {"c"}
    assert plan.started["c"].tasks[0].shares[0].milli == 250


def test_a_group_whose_cpus_do_not_fit_goes_without_its_last_job():
    policy = resolve_policy("muri-s")[1]
    nodes = [Node("n", gpus=1, cpus=4, sharing="fifo")]
    view = cluster_view(nodes, [Job(name, gpu_s=10, cpus=3) for name in "ab"])
    plan = policy.plan(shared(view))
    assert len(plan.started) == 1


def test_between_decisions_stopped_jobs_only_go_where_they_were_planned():
    policy = resolve_policy("muri-s")[1]
    nodes = [Node("n", gpus=2)]
    first = [Job("long", gpu_s=900, gpus=2, on="n/0 n/1"), Job("short", gpu_s=10, gpus=2, row=5)]
    plan = policy.plan(cluster_view(nodes, first))
    assert (set(plan.stopped), set(plan.started)) == ({"long"}, {"short"})
    then = [Job("long", gpu_s=900, gpus=2), Job("short", gpu_s=10, gpus=2, row=5), Job("new", gpu_s=1, gpus=2, row=6)]
    view = replace(cluster_view(nodes, then, after=plan), triggers=frozenset({"stopped"}))
    again = policy.plan(replace(view, plan=view.plan.full({}), state=plan.state))
    assert set(again.started) == {"short"}
    assert view.jobs["long"].phase is Phase.QUEUED


def shared(view):
    """The view with running jobs on a quarter of their devices, as they are where devices are shared."""
    jobs = {}
    for job_id, job in view.jobs.items():
        if job.allocation is not None:
            tasks = tuple(
                replace(task, shares=tuple(replace(share, milli=250) for share in task.shares))
                for task in job.allocation.tasks
            )
            job = replace(job, allocation=replace(job.allocation, tasks=tasks))
        jobs[job_id] = job
    running = {job_id: job.allocation for job_id, job in jobs.items() if job.allocation}
    nodes = {
        name: replace(node, devices=tuple(replace(d, sharing="fifo") for d in node.devices))
        for name, node in view.nodes.items()
    }
    return replace(view, jobs=jobs, nodes=nodes, plan=view.plan.full(running))
