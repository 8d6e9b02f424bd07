"""Jobs of the originals' simulators on the local cluster in warp: real processes take what was predicted, within 1% on average.

With EMUGPU_SCHEDULER_DATA=DIR the jobs are read from DIR/tiresias, DIR/gavel and DIR/muri.
"""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Sequence
from pathlib import Path
from statistics import mean

import pytest

from scheduler_sims.clusters.local import LocalOptions
from scheduler_sims.experiment import Experiment

DATA = Path(os.environ.get("EMUGPU_SCHEDULER_DATA", ""))
pytestmark = [
    pytest.mark.alone,
    pytest.mark.timeout(600),
    pytest.mark.skipif(not os.environ.get("EMUGPU_SCHEDULER_DATA"), reason="EMUGPU_SCHEDULER_DATA names no folder"),
]


def rows_of(name: str) -> list[dict[str, str]]:
    with (DATA / name).open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def observed_and_predicted(
    folder: Path, policy: str, header: str, lines: Sequence[str], nodes: str, profiles: Path | None = None
) -> tuple[dict[str, float], dict[str, float]]:
    """The JCT of each job, from both clusters."""
    (folder / "workload.csv").write_text("\n".join([header, *lines]) + "\n", encoding="utf-8")
    (folder / "cluster.yaml").write_text(f"nodes: [{nodes}]\n", encoding="utf-8")
    experiment = Experiment.load(folder / "workload.csv", folder / "cluster.yaml", profiles=profiles)
    options = LocalOptions(warp=True, profiles=str(profiles or ""))
    runs = experiment.observe(policy, options), experiment.simulate(policy)
    observed, predicted = ({job.job_id: job.jct_s for job in run.jobs} for run in runs)
    print(f"{policy}: mean JCT observed {mean(observed.values()):.1f} s, predicted {mean(predicted.values()):.1f} s")
    return observed, predicted


def test_sixty_jobs_of_tiresias(tmp_path: Path) -> None:
    """16 GPUs; steps of a second, at whose ends jobs stop. Its simulator's mean JCT within 1% as well."""
    rows = rows_of("tiresias/jobs_60job_n4g4_dlas-gpu_count.csv")
    lines = [f"{r['job_id']},{r['submit_s']},{r['num_gpu']},{r['duration_s']},{r['duration_s']}" for r in rows]
    header, nodes = "job_id,submit_s,num_gpus,gpu_duration_s,steps", "{name: all, gpus: 16, gpu_type: V100, cpus: 64}"
    observed, predicted = observed_and_predicted(tmp_path, "tiresias:fidelity=as_coded", header, lines, nodes)
    assert observed == pytest.approx(predicted, rel=0.01, abs=0.5)
    assert mean(observed.values()) == pytest.approx(mean(float(row["jct_s"]) for row in rows), rel=0.01)


def test_twenty_jobs_of_gavel(tmp_path: Path) -> None:
    """Three types of GPU, on which each job has another speed; rounds of 360 s. A hundred steps are one here: real processes do
    each of them."""
    rows = rows_of("gavel/jobs_medium_test-444-max_min_fairness_perf.csv")
    types = ("v100", "p100", "k80")
    models = {
        f"job-{row['job_id']}": {
            "sample_bytes": 1,
            "memory": {"knots": [{"batch": 1, "peak_bytes": 1_000_000_000, "persistent_bytes": 500_000_000}]},
            "gpus": {
                kind.upper(): {"knots": [{"batch": 1, "forward_s": time_s / 3, "backward_s": time_s * 2 / 3}]}
                for kind in types
                for time_s in [100 / float(row[f"{kind}_steps_per_s"])]
            },
        }
        for row in rows
    }
    profiles = tmp_path / "profiles.json"
    profiles.write_text(json.dumps({"models": models}), encoding="utf-8")
    lines = [f"{row['job_id']},job-{row['job_id']},1,{max(1, round(int(row['total_steps']) / 100))}" for row in rows]
    nodes = ", ".join(f"{{name: {kind}, gpus: 4, gpu_type: {kind.upper()}, cpus: 64}}" for kind in types)
    observed, predicted = observed_and_predicted(
        tmp_path, "gavel:objective=max-min", "job_id,model,batch_size,steps", lines, nodes, profiles
    )
    # On average only: a job that ends a step earlier or later may free its GPU for another round.
    assert mean(observed.values()) == pytest.approx(mean(predicted.values()), rel=0.01)


@pytest.mark.parametrize("trace", ["m1", "m2"])
def test_the_worked_cases_of_muri(tmp_path: Path, trace: str) -> None:
    """Jobs share a GPU: the second resource of the trace is the GPU, the others are the host's, for which the GPU waits."""
    rows = rows_of(f"muri/input_{trace}.csv")
    lines = []
    for row in rows:
        step_s, gpu_s = float(row["iteration_time_ms"]) / 1000, float(row["res1_time_ms"]) / 1000
        steps = int(row["iterations"])
        submit_s = float(row["submit_time_ms"]) / 1000
        lines.append(f"{row['job_id']},{submit_s},{row['num_gpu']},{step_s * steps},{step_s - gpu_s},{steps}")
    header = "job_id,submit_s,num_gpus,gpu_duration_s,host_s,steps"
    nodes = "{name: n, gpus: 2, gpu_type: V100, cpus: 64, sharing: fifo}"
    observed, predicted = observed_and_predicted(tmp_path, "muri-l", header, lines, nodes)
    assert observed == pytest.approx(predicted, rel=0.01)
