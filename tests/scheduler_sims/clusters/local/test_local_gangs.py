"""Jobs of several nodes with real processes: each node's manager grants its part, and what is observed is what was predicted."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scheduler_sims.clusters.base import Event, Happening
from scheduler_sims.clusters.local import LocalCluster, LocalOptions
from scheduler_sims.clusters.local.grants import Grants
from scheduler_sims.experiment import Experiment
from scheduler_sims.loop.scheduler_loop import SchedulerLoop
from scheduler_sims.policies.resolve import resolve_policy
from scheduler_sims.record import RunRecord

EXAMPLE = Path(__file__).parents[4] / "examples" / "gangs-24"
WARP = LocalOptions(warp=True)
CLUSTER = """
nodes: [{name: n, gpus: 2, gpu_type: V100, cpus: 16, count: 3}]
costs: {coalesce_s: 0.1, decide_s: 0.05, start_s: 1, restore_s: 2, checkpoint_s: 1.5, serial_start_s: 0.5, finish_s: 0.75}
"""
WORKLOAD = """job_id,submit_s,num_gpus,nodes,cpus,gpu_duration_s,model,batch_size,steps,speedup,best_cpus
long,0,2,1,4,90,,,90,,
wide,2,4,2,8,60,,,60,,
all,20,6,3,12,8,,,8,,
model,25,4,2,8,,resnet50,64,80,,
one,30,1,1,2,5,,,5,,
"""


def experiment(tmp_path: Path, workload: str = WORKLOAD) -> Experiment:
    (tmp_path / "workload.csv").write_text(workload)
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    return Experiment.load(tmp_path / "workload.csv", tmp_path / "cluster.yaml")


@pytest.mark.processes
@pytest.mark.parametrize("policy", ["fifo", "srtf", "las:threshold_s=40,quantum_s=5"])
def test_gangs_are_observed_as_predicted(tmp_path: Path, agree: Callable[..., RunRecord], policy: str) -> None:
    run = experiment(tmp_path)
    predicted = run.simulate(policy)
    assert policy == "fifo" or sum(job.preemptions for job in predicted.jobs) > 0

    def differences(observed: RunRecord, excuse: Any) -> list[object]:
        found: list[object] = []
        for expected, job in zip(predicted.jobs, observed.jobs, strict=True):
            facts = (expected.job_id, "finished", expected.preemptions)
            same = (job.job_id, job.status, job.preemptions) == facts
            # Where jobs come late, another device may be free.
            same &= excuse.late_s > 0 or job.devices == expected.devices
            allowed_s = excuse.widen(max(0.01 * expected.jct_s, 0.1))
            if not same or abs(job.jct_s - expected.jct_s) > allowed_s:
                found.append((expected, job))
        return found

    agree(lambda: run.observe(policy, WARP), differences)


@pytest.mark.processes
@pytest.mark.parametrize(("joined", "nodes"), [(1, 1), (2, 2), (4, 2)])
def test_gradients_take_the_links_that_the_cluster_states(
    tmp_path: Path, agree: Callable[..., RunRecord], joined: int, nodes: int
) -> None:
    """Of VGG-16, whose exchange takes a large part of a step: over the hosts' links, the network, NVLink."""
    (tmp_path / "workload.csv").write_text(
        f"job_id,num_gpus,nodes,model,batch_size,steps\na,{2 * nodes},{nodes},vgg16,16,100\n"
    )
    (tmp_path / "cluster.yaml").write_text(
        f"nodes: [{{name: n, count: 2, gpus: 2, gpu_type: A100, cpus: 8, nvlink_domain: {joined}}}]\n"
    )
    run = Experiment.load(tmp_path / "workload.csv", tmp_path / "cluster.yaml")
    expected = run.simulate("fifo").jobs[0].jct_s

    def differences(observed: RunRecord, excuse: Any) -> list[object]:
        found = observed.jobs[0].jct_s
        return [] if abs(found - expected) <= excuse.widen(max(0.01 * expected, 0.1)) else [(expected, found)]

    agree(lambda: run.observe("fifo", WARP), differences)


@pytest.mark.processes
def test_each_step_of_a_gang_runs_once(tmp_path: Path) -> None:
    run = experiment(tmp_path)
    cluster = LocalCluster(run.spec, WARP)
    with cluster:
        SchedulerLoop(cluster, run.spec, resolve_policy("srtf")[1], run.estimates, run.workload.jobs).run()
    assert cluster.steps_run == {job.job_id: job.steps for job in run.workload.jobs}


class Struck(LocalCluster):
    """Kills a process as soon as the first job has started."""

    victim: Callable[[], int] | None = None

    def __enter__(self) -> Struck:
        return self

    def wait(self, until_ns: int | None) -> list[Event]:
        events = super().wait(until_ns)
        if self.victim is not None and any(event.what is Happening.STARTED for event in events):
            os.kill(self.victim(), signal.SIGKILL)
            self.victim = None
        return events


@pytest.mark.processes
def test_a_gang_whose_process_dies_leaves_all_its_nodes(tmp_path: Path) -> None:
    run = experiment(tmp_path, "job_id,num_gpus,nodes,gpu_duration_s\nwide,6,3,600\nnext,6,3,1\n")
    with Struck(run.spec, WARP) as cluster:
        cluster.victim = lambda: cluster.job_pids()["wide"]
        loop = SchedulerLoop(cluster, run.spec, resolve_policy("fifo")[1], run.estimates, run.workload.jobs)
        loop.run()
    status = {job.job_id: (job.status, job.reason) for job in loop.books.records()}
    assert status["next"] == ("finished", "")
    assert status["wide"][0] == "failed"
    assert "its process ended" in status["wide"][1]


@pytest.mark.processes
def test_a_gang_lives_through_a_manager_s_restart(tmp_path: Path) -> None:
    run = experiment(tmp_path, "job_id,num_gpus,nodes,gpu_duration_s,steps\nwide,4,2,20,20\n")
    with Struck(run.spec, WARP) as cluster:
        cluster.victim = lambda: cluster.manager_pids()["n-2"]
        loop = SchedulerLoop(cluster, run.spec, resolve_policy("fifo")[1], run.estimates, run.workload.jobs)
        loop.run()
        notes = cluster.notes()
    assert [job.status for job in loop.books.records()] == ["finished"]
    assert any("the sharing manager of n-2 was restarted" in note for note in notes)


# --- what managers say, put together -----------------------------------------------------------------------------------


def event(what: Happening, at_ns: int = 5, steps: int = 3, reason: str = "") -> Event:
    return Event(at_ns, what, "g", 0, steps, reason)


def test_a_gang_has_started_when_all_its_nodes_say_so() -> None:
    grants = Grants()
    grants.begin("g", ["a", "b"])
    assert grants.combine("a", event(Happening.STARTED)) is None
    assert grants.combine("a", event(Happening.STARTED)) is None  # a process that has connected again
    assert grants.combine("c", event(Happening.STARTED)) is None
    assert grants.combine("b", event(Happening.STARTED, 7)) == event(Happening.STARTED, 7)
    assert grants.combine("b", event(Happening.STARTED, 8)) is None


def test_it_has_ended_when_the_last_one_does_with_the_steps_that_all_have_done() -> None:
    grants = Grants()
    grants.begin("g", ["a", "b", "c"])
    assert grants.combine("b", event(Happening.STOPPED, 9, 7)) is None
    assert grants.nodes("g") == ("a", "c")
    assert grants.combine("b", event(Happening.STOPPED)) is None
    assert grants.combine("a", event(Happening.STOPPED, 8, 6)) is None
    assert grants.combine("c", event(Happening.STOPPED, 4, 7)) == event(Happening.STOPPED, 9, 6)
    assert grants.nodes("g") == ()
    assert grants.combine("a", event(Happening.STOPPED)) is None


def test_one_failure_is_the_whole_job_s() -> None:
    grants = Grants()
    grants.begin("g", ["a", "b"])
    assert grants.combine("a", event(Happening.FINISHED)) is None
    assert grants.combine("b", event(Happening.FAILED, 9, 2, "lost")) == event(Happening.FAILED, 9, 2, "lost")
