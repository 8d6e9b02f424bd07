"""Jobs whose GPUs, nodes and batch change between runs, with real processes: what is observed is what was predicted."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scheduler_sims.clusters.local import LocalOptions
from scheduler_sims.experiment import Experiment
from scheduler_sims.record import RunRecord
from scheduler_sims.reports.metrics import figures

EXAMPLE = Path(__file__).parents[4] / "examples" / "elastic-8"
WARP = LocalOptions(warp=True)
CLUSTER = """
nodes: [{name: n, count: 2, gpus: 4, gpu_type: V100, cpus: 16}]
costs: {coalesce_s: 0.1, decide_s: 0.05, start_s: 1, restore_s: 2, checkpoint_s: 1.5, serial_start_s: 0.5, finish_s: 0.75}
"""
WORKLOAD = """job_id,submit_s,num_gpus,min_gpus,max_gpus,max_nodes,cpus,model,batch_size,steps,input_cpu_s
a,0,2,1,8,2,4,resnet50,64,200,
b,5,1,1,2,1,2,mobilenet_v2,96,150,0.1
"""
POLICY = """
from dataclasses import replace
from scheduler_sims.policies.placing import FreeSpace

SIZES = {"a": [(0, (2, 1, 0)), (12, (6, 2, 100)), (40, (3, 1, 77))], "b": [(0, (1, 1, 0)), (20, (2, 1, 96))]}

class Sizes:
    def plan(self, view):
        space, start, stop, now = FreeSpace.now(view), {}, [], view.now_s + 0.5
        for job in view.jobs.values():
            gpus, nodes, batch_size = next(size for at_s, size in reversed(SIZES[job.job_id]) if at_s <= now)
            if job.queued:
                allocation = space.place(job.configurations[0].with_gpus(gpus, nodes))
                if allocation:
                    start[job.job_id] = replace(allocation, batch_size=batch_size)
            elif job.allocation.gpus != gpus:
                stop.append(job.job_id)
        wake = min((at_s for table in SIZES.values() for at_s, _ in table if at_s > now), default=None)
        return view.plan.evolve(start=start, stop=stop, wake_at_s=wake)
"""


@pytest.mark.processes
def test_progress_survives_other_gpus_and_batches(tmp_path: Path, agree: Callable[..., RunRecord]) -> None:
    for name, text in (("workload.csv", WORKLOAD), ("cluster.yaml", CLUSTER), ("sizes.py", POLICY)):
        (tmp_path / name).write_text(text)
    run = Experiment.load(tmp_path / "workload.csv", tmp_path / "cluster.yaml")
    policy = f"{tmp_path}/sizes.py:Sizes"
    predicted = run.simulate(policy)
    assert [job.preemptions for job in predicted.jobs] == [2, 1]

    def differences(observed: RunRecord, excuse: Any) -> list[object]:
        pairs = zip(predicted.jobs, observed.jobs, strict=True)
        return [
            (expected, job)
            for expected, job in pairs
            if (job.status, job.preemptions) != ("finished", expected.preemptions)
            or abs(job.jct_s - expected.jct_s) > excuse.widen(max(0.01 * expected.jct_s, 0.1))
        ]

    agree(lambda: run.observe(policy, WARP), differences)


@pytest.mark.processes
def test_the_example_is_observed_as_predicted(agree: Callable[..., RunRecord]) -> None:
    run, policy = Experiment.load(EXAMPLE / "workload.csv", EXAMPLE / "cluster.yaml"), f"{EXAMPLE}/grow.py:Grow"
    expected_s = figures(run.simulate(policy)).mean_jct_s
    assert expected_s is not None

    def differences(observed: RunRecord, excuse: Any) -> list[object]:
        found = figures(observed)
        off = found.mean_jct_s is None or abs(found.mean_jct_s / expected_s - 1) > excuse.widen(0.01, expected_s)
        return [found] if off or found.finished < len(run.workload.jobs) else []

    agree(lambda: run.observe(policy, WARP), differences)
