"""Jobs that share devices on the local cluster, against the simulator: real processes in warp time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from emulator_runtime.domain.errors import PolicyError
from emulator_runtime.sharing.modes import MODES
from scheduler_sims.clusters.local import LocalOptions
from scheduler_sims.experiment import Experiment
from scheduler_sims.loop.scheduler_loop import SchedulerLoop
from scheduler_sims.policies.resolve import resolve_policy
from scheduler_sims.record import RunRecord
from tests.support.kills_its_managers import KillsItsManagers

Agree = Callable[..., RunRecord]
pytestmark = [pytest.mark.processes, pytest.mark.timeout(180)]
SALUS = Path(__file__).parents[4] / "examples" / "salus-3"
TOGETHER = f"{SALUS}/together.py:Together"
MURI = SALUS.parent / "muri-10"
WARP = LocalOptions(warp=True)
SHARED = [name for name, mode in MODES.items() if mode.shared]
SALUS_FINISH_S = {"first": 440.6, "second": 498.3, "third": 514.9}
"""As published with GPEmu's Salus case study (PVLDB 18(6) 2025), counted from the first job's first batch."""


def experiment(tmp_path: Path, workload: str, sharing: str, gpus: int = 1) -> Experiment:
    (tmp_path / "workload.csv").write_text(workload)
    (tmp_path / "cluster.yaml").write_text(
        f"nodes: [{{name: n, gpus: {gpus}, gpu_type: V100, cpus: 8, sharing: {sharing}}}]\n"
        "costs: {checkpoint_s: 0.5, stop_s: 0.25}\n"
    )
    return Experiment.load(tmp_path / "workload.csv", tmp_path / "cluster.yaml")


MIXED = """job_id,submit_s,gpu_duration_s,steps,host_s,model,batch_size
long,0,20,50,,,
host,1,10,20,0.1,,
short,2.5,4,40,,,
model,3,,30,,resnet50,32
late,9,3,30,,,
"""


# A job that starts some milliseconds late may be served one step of another job later.
def off(predicted: RunRecord, observed: RunRecord, excuse: Any, tolerance_s: float = 0.2) -> list[object]:
    pairs = zip(predicted.jobs, observed.jobs, strict=True)
    return [(p, o) for p, o in pairs if o.status != "finished" or abs(o.jct_s - p.jct_s) > excuse.widen(tolerance_s)]


def observed_as_predicted(run: Experiment, policy: str, agree: Agree) -> RunRecord:
    """The prediction, after a run in warp time has agreed with it."""
    predicted = run.simulate(policy)
    agree(lambda: run.observe(policy, WARP), lambda observed, excuse: off(predicted, observed, excuse))
    return predicted


@pytest.mark.parametrize("sharing", SHARED)
def test_every_way_to_share_is_observed_as_predicted(tmp_path: Path, agree: Agree, sharing: str) -> None:
    run = experiment(tmp_path, MIXED, sharing)
    observed_as_predicted(run, f"{TOGETHER}:most=4", agree)


def test_the_published_finish_times_of_salus(agree: Agree) -> None:
    run = Experiment.load(SALUS / "workload.csv", SALUS / "cluster.yaml")
    predicted = run.simulate(TOGETHER)
    finishes = {job.job_id: job.submit_s + job.jct_s for job in predicted.jobs}
    assert finishes == pytest.approx(SALUS_FINISH_S, rel=0.01)
    observed = agree(
        lambda: run.observe(TOGETHER, WARP), lambda observed, excuse: off(predicted, observed, excuse, 0.5)
    )
    assert {job.job_id: job.submit_s + job.jct_s for job in observed.jobs} == pytest.approx(SALUS_FINISH_S, rel=0.01)


@pytest.mark.parametrize("workload", ["workload.csv", "as-run.csv"])
def test_the_two_queues_of_muri(agree: Agree, workload: str) -> None:
    """Steps of both queues alternate on the device; each job's input is prepared meanwhile."""
    run = Experiment.load(MURI / workload, MURI / "cluster.yaml")
    observed_as_predicted(run, f"{MURI}/interleave.py:Interleave", agree)


def test_a_job_that_is_stopped_leaves_the_device_to_the_other_and_comes_back(tmp_path: Path, agree: Agree) -> None:
    policy = tmp_path / "turns.py"
    policy.write_text(
        "from scheduler_sims.interface.plan import Allocation, DeviceShare, TaskPlacement\n"
        "class Turns:\n"
        "    # Job a pauses from 3 to 9 s.\n"
        "    def plan(self, view):\n"
        "        node, start, stop = next(iter(view.nodes.values())), {}, []\n"
        "        for job in view.jobs.values():\n"
        "            pauses = job.job_id == 'a' and 3 <= view.now_s < 9\n"
        "            if job.allocation is not None and pauses:\n"
        "                stop.append(job.job_id)\n"
        "            elif job.allocation is None and not pauses and job.job_id in {j.job_id for j in view.queued()}:\n"
        "                share = DeviceShare(node.devices[0].uuid, node.devices[0].gpu_type, 500)\n"
        "                start[job.job_id] = Allocation('gpu', (TaskPlacement(node.name, (share,), 1000),))\n"
        "        wake_at_s = 3 if view.now_s < 3 else 9 if view.now_s < 9 else None\n"
        "        return view.plan.evolve(start=start, stop=stop, wake_at_s=wake_at_s)\n"
    )
    run = experiment(tmp_path, "job_id,gpu_duration_s,steps\na,6,60\nb,8,40\n", "fifo")
    predicted = observed_as_predicted(run, f"{policy}:Turns", agree)
    assert [job.preemptions for job in predicted.jobs] == [1, 0]


def test_a_gang_shares_the_devices_of_two_nodes(tmp_path: Path, agree: Agree) -> None:
    """Each of its steps needs a turn on both devices."""
    policy = tmp_path / "wide.py"
    policy.write_text(
        "from scheduler_sims.interface.plan import Allocation, DeviceShare, TaskPlacement\n"
        "class Wide:\n"
        "    def plan(self, view):\n"
        "        nodes, start = list(view.nodes.values()), {}\n"
        "        for job in view.queued():\n"
        "            way = job.configurations[0]\n"
        "            shares = [(node.name, DeviceShare(node.devices[0].uuid, node.devices[0].gpu_type, 500)) for node in nodes]\n"
        "            tasks = tuple(TaskPlacement(name, (share,), way.cpu_milli) for name, share in shares[:way.min_tasks])\n"
        "            start[job.job_id] = Allocation(way.name, tasks)\n"
        "        return view.plan.evolve(start=start)\n"
    )
    (tmp_path / "workload.csv").write_text(
        "job_id,submit_s,num_gpus,nodes,gpu_duration_s,steps\ngang,0,2,2,10,20\nsingle,1,1,1,6,40\n"
    )
    (tmp_path / "cluster.yaml").write_text(
        "nodes: [{name: n, count: 2, gpus: 1, gpu_type: T4, cpus: 8, sharing: fifo}]\ncosts: {start_s: 0}\n"
    )
    run = Experiment.load(tmp_path / "workload.csv", tmp_path / "cluster.yaml")
    predicted = observed_as_predicted(run, f"{policy}:Wide", agree)
    assert [job.jct_s for job in predicted.jobs] > [10.0, 6.0]


def test_a_part_of_an_exclusive_device_is_refused(tmp_path: Path) -> None:
    policy = tmp_path / "parts.py"
    policy.write_text(
        "from scheduler_sims.interface.plan import Allocation, DeviceShare, TaskPlacement\n"
        "class Parts:\n"
        "    def plan(self, view):\n"
        "        start = {}\n"
        "        for job in view.queued():\n"
        "            node = next(iter(view.nodes.values()))\n"
        "            share = DeviceShare(node.devices[0].uuid, node.devices[0].gpu_type, 500)\n"
        "            task = TaskPlacement(node.name, (share,), job.configurations[0].cpu_milli)\n"
        "            start[job.job_id] = Allocation('gpu', (task,))\n"
        "        return view.plan.evolve(start=start)\n"
    )
    run = experiment(tmp_path, "job_id,gpu_duration_s\na,5\n", "exclusive")
    with pytest.raises(PolicyError, match="a part of a device that is exclusive"):
        run.observe(f"{policy}:Parts", WARP)


@pytest.mark.parametrize("sharing", ["fifo", "weighted", "srtf"])
def test_a_manager_that_is_killed_loses_and_doubles_nothing(tmp_path: Path, sharing: str) -> None:
    """Three jobs of 40 s share a device at 40 emulated seconds per second; meanwhile their manager is killed four times."""
    run = experiment(tmp_path, "job_id,gpu_duration_s,steps\na,40,200\nb,40,100\nc,40,400\n", sharing)
    cluster = KillsItsManagers(run.spec, LocalOptions(speed=40))
    loop = SchedulerLoop(cluster, run.spec, resolve_policy(TOGETHER)[1], run.estimates, run.workload.jobs)
    with cluster:
        loop.run()
    cluster.killer.join()
    assert [record.status for record in loop.books.records()] == ["finished"] * 3
    assert cluster.steps_run == {"a": 200, "b": 100, "c": 400}
    last_s = max(record.finish_s or 0 for record in loop.books.records())
    assert 120 <= last_s < 240  # no device time is given twice, and a restart doesn't cost more than it takes
