"""Jobs that share storage, links and network on the local cluster, against the simulator: real processes in warp time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scheduler_sims.clusters.local import LocalOptions
from scheduler_sims.experiment import Experiment
from scheduler_sims.loop.scheduler_loop import SchedulerLoop
from scheduler_sims.policies.resolve import resolve_policy
from scheduler_sims.record import RunRecord
from tests.support.kills_its_managers import KillsItsManagers

Agree = Callable[..., RunRecord]
pytestmark = [pytest.mark.processes, pytest.mark.timeout(180)]
EXAMPLES = Path(__file__).parents[4] / "examples"
WARP = LocalOptions(warp=True)
ALL = "storage: 1, network: 1, links: [{gpus: [0, 1]}, {gpus: [2, 3], speed: 2}]"


def experiment(
    tmp_path: Path, rows: str, resources: str = ALL, sharing: str = "exclusive", count: int = 1
) -> Experiment:
    header = "job_id,submit_s,num_gpus,nodes,gpu_duration_s,steps,host_s,fetch_s,transfer_s,exchange_s,cpus\n"
    (tmp_path / "workload.csv").write_text(header + rows)
    (tmp_path / "cluster.yaml").write_text(
        f"nodes: [{{name: n, count: {count}, gpus: 4, gpu_type: V100, cpus: 64, sharing: {sharing}, {resources}}}]\n"
        "costs: {checkpoint_s: 0.5, stop_s: 0.25}\n"
    )
    return Experiment.load(tmp_path / "workload.csv", tmp_path / "cluster.yaml")


def off(predicted: RunRecord, observed: RunRecord, excuse: Any) -> list[object]:
    """Jobs whose JCT isn't within 1% of the prediction."""
    pairs = zip(predicted.jobs, observed.jobs, strict=True)
    return [
        (p, o)
        for p, o in pairs
        if o.status != "finished" or abs(o.jct_s - p.jct_s) > p.jct_s * excuse.widen(0.01, p.jct_s)
    ]


def observed_as_predicted(run: Experiment, policy: str, agree: Agree) -> RunRecord:
    """The prediction, after a run in warp time has agreed with it."""
    predicted = run.simulate(policy)
    agree(lambda: run.observe(policy, WARP), lambda observed, excuse: off(predicted, observed, excuse))
    return predicted


def test_two_jobs_that_share_only_storage(tmp_path: Path, agree: Agree) -> None:
    """Fetches of 0.8 s take 1.6 s for both at once; so do ten of them, and the last step takes 1 s."""
    run = experiment(tmp_path, "a,0,1,1,10,10,,0.8,,,1\nb,0,1,1,10,10,,0.8,,,1\n")
    predicted = observed_as_predicted(run, "fifo", agree)
    assert [job.jct_s for job in predicted.jobs] == pytest.approx([17.0, 17.0])


MIXED = """alone,0,1,1,20,50,,0.05,0.02,0.1,1
stalls,1,1,1,10,20,0.1,1.1,,,1
wide,2.5,2,1,15,40,,0.2,0.3,,1
gang,3,2,2,30,30,,0.2,0.1,0.4,2
late,9,1,1,3,30,,,,0.2,1
"""


def test_all_stages_of_jobs_that_come_and_go(tmp_path: Path, agree: Agree) -> None:
    """Among them a gang, each of whose nodes fetches, copies and exchanges for itself."""
    run = experiment(tmp_path, MIXED, count=2)
    predicted = observed_as_predicted(run, "fifo", agree)
    own = experiment(tmp_path, MIXED, "labels: {}", count=2).simulate("fifo")
    assert all(job.jct_s >= alone.jct_s - 1e-6 for job, alone in zip(predicted.jobs, own.jobs, strict=True))
    assert sum(job.jct_s for job in predicted.jobs) > 1.1 * sum(job.jct_s for job in own.jobs)


@pytest.mark.parametrize("sharing", ["fifo", "mps"])
def test_stages_beside_shared_devices(tmp_path: Path, agree: Agree, sharing: str) -> None:
    # No two are ready at one moment, and the order of two steps is no matter in so long a run: hosts are late by milliseconds.
    rows = "a,0,1,1,40.4,80,,0.217,0.103,0.1,1\nb,0.05,1,1,48.3,120,,0.309,,0.053,1\nc,2,1,1,20.7,40,0.1,,0.411,,1\n"
    run = experiment(tmp_path, rows, sharing=sharing)
    observed_as_predicted(run, f"{EXAMPLES}/salus-3/together.py:Together:most=3", agree)


def test_preempted_jobs(tmp_path: Path, agree: Agree) -> None:
    """A stop takes effect when the next step would be issued, which may have to wait for its input."""
    rows = "long,0,4,1,20,20,,0.9,0.1,0.1,1\nshort,5,4,1,3,10,,0.1,,,1\nmiddle,6,2,1,4,10,,0.8,,,1\n"
    predicted = observed_as_predicted(experiment(tmp_path, rows), "srtf", agree)
    assert predicted.jobs[0].preemptions == 1


def test_a_manager_that_is_killed_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """Two jobs with fetches of 0.16 s each step; meanwhile their manager is killed four times."""
    run = experiment(tmp_path, "a,0,1,1,20,100,,0.16,,0.02,1\nb,0,1,1,20,100,,0.16,,0.02,1\n")
    cluster = KillsItsManagers(run.spec, LocalOptions(speed=10))
    loop = SchedulerLoop(cluster, run.spec, resolve_policy("fifo")[1], run.estimates, run.workload.jobs)
    with cluster:
        loop.run()
    cluster.killer.join()
    assert [record.status for record in loop.books.records()] == ["finished"] * 2
    assert cluster.steps_run == {"a": 100, "b": 100}
    last_s = max(record.finish_s or 0 for record in loop.books.records())
    assert 32 < last_s < 60  # no fetch is served twice as fast, and a restart doesn't cost more than it takes
