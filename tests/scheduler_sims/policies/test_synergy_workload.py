"""The tool that makes a workload file of the jobs that Synergy's simulator ran."""

from __future__ import annotations

import csv
import importlib.util
import os
from pathlib import Path
from types import ModuleType

import pytest

from emulator_runtime.domain.job import JobSpec, TimedWork
from scheduler_sims.clusters.leases import Leases
from scheduler_sims.clusters.simulated import SimulatedCluster
from scheduler_sims.inputs.cluster_file import load_cluster
from scheduler_sims.inputs.truth import WorkloadTruth
from scheduler_sims.inputs.workload import Workload, load_workload
from scheduler_sims.interface.estimates import parse_estimates
from scheduler_sims.loop.scheduler_loop import SchedulerLoop
from scheduler_sims.policies.resolve import resolve_policy
from scheduler_sims.record import JobRecord

ROOT = Path(__file__).parents[3]
CLUSTER = ROOT / "examples" / "synergy-40" / "cluster.yaml"
HEADER = "job_id,model,arrival_s,total_iterations,gpus,ideal_cpus,ideal_mem_gb,fair_iter_time_s,ideal_speedup,finish_s"
ALEXNET = "0,alexnet,0.001,3000,1,12,125.0,0.6,2.94,1801"
DATA = Path(os.environ.get("EMUGPU_SCHEDULER_DATA", "")) / "synergy"


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("synergy_workload", ROOT / "tools" / "synergy_workload.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


tool = _load()


def made(folder: Path, *rows: str, options: tuple[str, ...] = (), header: str = HEADER) -> Workload:
    jobs, out = folder / "jobs.csv", folder / "workload.csv"
    jobs.write_text("\n".join([header, *rows]) + "\n", encoding="utf-8")
    assert tool.main([str(jobs), "--out", str(out), *options]) == 0
    return load_workload(out)


def work_of(job: JobSpec) -> TimedWork:
    work = job.work["gpu"]
    assert isinstance(work, TimedWork)
    return work


def test_iterations_and_submit_times_are_divided(tmp_path: Path) -> None:
    late = "1,lstm,1200.0,60000,1,1,20,0.011,1,9901"
    first, second = made(tmp_path, ALEXNET, late, options=("--divide", "60")).jobs
    assert (first.job_id, first.submit_s, first.steps) == ("job-0", 0.0, 50)
    assert work_of(first).duration_s == pytest.approx(30.0)
    assert work_of(first).sensitivity is not None
    # 0.011 s are too short for a step here: so many make one that it takes a quarter of a second
    assert (second.submit_s, second.steps, work_of(second).duration_s) == (20.0, 44, pytest.approx(11.0))


def test_no_job_is_divided_away(tmp_path: Path) -> None:
    (job,) = made(tmp_path, ALEXNET, options=("--divide", "1e5")).jobs
    assert (job.steps, work_of(job).duration_s) == (1, pytest.approx(0.018))


def test_steps_are_iterations_where_none_is_too_short(tmp_path: Path) -> None:
    (job,) = made(tmp_path, ALEXNET, options=("--least-step", "0.001")).jobs
    assert (job.steps, work_of(job).duration_s) == (3000, pytest.approx(1800.0))


@pytest.mark.parametrize(
    ("row", "said"),
    [
        (ALEXNET.replace("3000", "many"), "jobs.csv:2: has something that is no number: "),
        (ALEXNET.replace("alexnet", "gpt"), "jobs.csv:2: model: unknown model 'synergy/gpt'"),
        (ALEXNET.replace("2.94", "3.2"), "jobs.csv:2: ideal_speedup: is 3.2, and 2.94 by the profile"),
        ("0,alexnet", "jobs.csv:2: "),
    ],
)
def test_a_row_that_can_t_be_had_here(tmp_path: Path, capsys: pytest.CaptureFixture[str], row: str, said: str) -> None:
    (tmp_path / "jobs.csv").write_text(f"{HEADER}\n{row}\n", encoding="utf-8")
    assert tool.main([str(tmp_path / "jobs.csv"), "--out", str(tmp_path / "out")]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--divide", "0"), "--divide: must be from 1e-06 to 1e+06, not 0"),
        (("--least-step", "nan"), "--least-step: must be from 1e-06 to 1e+06, not nan"),
    ],
)
def test_an_option_out_of_range(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], said: str
) -> None:
    (tmp_path / "jobs.csv").write_text(f"{HEADER}\n{ALEXNET}\n", encoding="utf-8")
    assert tool.main([str(tmp_path / "jobs.csv"), "--out", str(tmp_path / "out"), *options]) == 2
    assert said in capsys.readouterr().err


def test_another_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "jobs.csv").write_text("job_id,model\n0,alexnet\n", encoding="utf-8")
    for path, said in (("jobs.csv", "has no column arrival_s, total_iterations"), ("none.csv", "none.csv")):
        assert tool.main([str(tmp_path / path), "--out", str(tmp_path / "out")]) == 2
        assert said in capsys.readouterr().err


@pytest.mark.skipif(not os.environ.get("EMUGPU_SCHEDULER_DATA"), reason="EMUGPU_SCHEDULER_DATA names no folder")
@pytest.mark.parametrize("order", ["fifo", "las", "srtf"])
@pytest.mark.parametrize(("theirs", "allocation"), [("fair", "proportional"), ("greedy", "greedy"), ("tune", "tune")])
def test_the_forty_jobs_of_the_trace_end_when_they_do_in_synergys_simulator(
    tmp_path: Path, order: str, theirs: str, allocation: str
) -> None:
    jobs, out = DATA / f"jobs_static40_{order.upper()}_{theirs}.csv", tmp_path / "workload.csv"
    assert tool.main([str(jobs), "--least-step", "0.001", "--out", str(out)]) == 0
    with jobs.open(encoding="utf-8") as file:
        wanted = [float(row["finish_s"]) for row in csv.DictReader(file)]
    found = in_rounds_of_whole_steps(load_workload(out), f"synergy:order={order},allocation={allocation},first_s=1")
    assert [record.finish_s for record in found] == wanted


def in_rounds_of_whole_steps(workload: Workload, policy: str) -> list[JobRecord]:
    """In row order, on the example's cluster: what that simulator means by a round."""
    cluster = load_cluster(CLUSTER)
    truth = WorkloadTruth(workload, cluster)
    simulated = SimulatedCluster(truth, cluster.costs, Leases(300, 1))
    estimates = parse_estimates("oracle", truth, 0)
    loop = SchedulerLoop(simulated, cluster, resolve_policy(policy)[1], estimates, workload.jobs)
    loop.run()
    return sorted(loop.books.records(), key=lambda record: record.row)
