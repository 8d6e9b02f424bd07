"""examples/synergy-40 as it stands: the workload is the one that its generator draws, and the table in its README is ours."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

from scheduler_sims.experiment import Experiment
from scheduler_sims.reports.metrics import figures

EXAMPLE = Path(__file__).parents[2] / "examples" / "synergy-40"
README = (EXAMPLE / "README.md").read_text(encoding="utf-8")


def test_the_workload_is_what_the_generator_draws() -> None:
    generator = runpy.run_path(str(EXAMPLE / "generate.py"))
    assert (EXAMPLE / "workload.csv").read_text(encoding="utf-8") == generator["HEAD"] + "".join(generator["rows"]())


@pytest.mark.parametrize("order", ["LAS", "SRTF", "FIFO"])
@pytest.mark.parametrize("allocation", ["proportional", "greedy", "TUNE"])
def test_the_table_of_the_readme(order: str, allocation: str) -> None:
    row = re.search(rf"^\| {order} \| {allocation} \| (.*) \|$", README, re.MULTILINE)
    assert row is not None
    mean, _, p95, makespan, gpus, cpus, moves = (cell.strip(" *%").replace(",", "") for cell in row[1].split("|"))
    run = Experiment.load(EXAMPLE / "workload.csv", EXAMPLE / "cluster.yaml")
    found = figures(run.simulate(f"synergy:order={order.lower()},allocation={allocation.lower()}"))
    assert (found.finished, found.failed, found.preemptions) == (40, 0, float(moves))
    assert [found.mean_jct_s, found.p95_jct_s, found.makespan_s] == pytest.approx(
        [float(mean), float(p95), float(makespan)], abs=0.51
    )
    assert [found.utilisation, found.cpu_utilisation] == pytest.approx([float(gpus) / 100, float(cpus) / 100], abs=6e-4)
