"""examples/muri-10 as it stands: the figures in its README, and the bounds that its inputs allow."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from emulator_runtime.domain.sensitivity import HostShare
from emulator_runtime.domain.units import to_s
from emulator_runtime.workloads.step_costs.work import step_times
from scheduler_sims.experiment import Experiment
from scheduler_sims.reports.metrics import figures

EXAMPLE = Path(__file__).parents[2] / "examples" / "muri-10"
README = (EXAMPLE / "README.md").read_text(encoding="utf-8")
INTERLEAVE = f"{EXAMPLE}/interleave.py:Interleave"
LISTED, AS_RUN = "workload.csv", "as-run.csv"
PUBLISHED_ENDS_S = [22.97, 82.95, 113.48, 144.18, 188.79, 226.92, 305.32, 383.67, 480.76, 578.73]
"""Of the one queue in figure 12 of GPEmu (PVLDB 18(6) 2025), from the files of its repository."""


def loaded(name, tmp_path, edits=(), sharing="fifo"):
    """The example with edits of its workload, each (pattern, replacement), and of the cluster's mode."""
    texts = {name: (EXAMPLE / name).read_text(encoding="utf-8"), "cluster.yaml": (EXAMPLE / "cluster.yaml").read_text()}
    for pattern, replacement in edits:
        texts[name], count = re.subn(pattern, replacement, texts[name])
        assert count
    texts["cluster.yaml"] = texts["cluster.yaml"].replace("sharing: fifo", f"sharing: {sharing}")
    for file, text in texts.items():
        (tmp_path / file).write_text(text, encoding="utf-8")
    return Experiment.load(tmp_path / name, tmp_path / "cluster.yaml")


def row(title):
    """The numbers of a row of the README's table."""
    return [
        float(cell) for cell in re.search(rf"^\| {re.escape(title)} \| (.*) \|$", README, re.MULTILINE)[1].split("|")
    ]


def bound(run, sjf_s):
    """SJF's makespan over the least time of two queues: that of the GPU's work, or of a queue alone."""
    start_s, queues, device_s = run.spec.costs.start_s, {}, 0.0
    for job in run.workload.jobs:
        (configuration,) = job.configurations
        times = step_times(job.work["gpu"], job.steps, "Tesla_V100-PCIE-32GB", HostShare(configuration.cpu_milli))
        device_s += to_s(times.device_ns(0, job.steps))
        queues[job.user] = queues.get(job.user, 0.0) + start_s + to_s(times.end_ns(0, job.steps))
    return device_s, sjf_s / max(start_s + device_s, *queues.values())


@pytest.mark.parametrize("name", [LISTED, AS_RUN])
def test_the_predictions_and_bounds_of_the_readme(name, tmp_path):
    run = loaded(name, tmp_path)
    sjf, two = figures(run.simulate("sjf")), figures(run.simulate(INTERLEAVE))
    device_s, most = bound(run, sjf.makespan_s)
    makespans = [sjf.makespan_s, two.makespan_s, sjf.makespan_s / two.makespan_s, most]
    stated = row(f"predicted, `{name}`")
    assert [*makespans, sjf.mean_jct_s, two.mean_jct_s, sjf.mean_jct_s / two.mean_jct_s] == [
        pytest.approx(cell, abs=0.0501 if cell > 2 else 0.00051) for cell in stated
    ]
    assert makespans[2] <= most
    assert device_s == pytest.approx(292.0, abs=0.05)  # the same in both: the models and their epochs are


def test_the_ratios_of_the_published_row():
    sjf_s, two_s, ratio, _, sjf_jct_s, two_jct_s, jct_ratio = row("published")
    assert [sjf_s / two_s, sjf_jct_s / two_jct_s] == pytest.approx([ratio, jct_ratio], abs=0.001)


def test_each_job_ends_alone_as_in_the_published_run(tmp_path):
    """The rows are in the study's order. Its six-epoch AlexNet ran before the one of five epochs, and here, too."""
    ends_s = [job.finish_s for job in loaded(AS_RUN, tmp_path).simulate("fifo").jobs]
    assert ends_s == pytest.approx(PUBLISHED_ENDS_S, rel=0.01)
    assert sum(ends_s) / 10 == pytest.approx(252.2, abs=0.05)


def test_with_input_pipelines_that_share_the_same_eight_cpus(tmp_path):
    two = figures(loaded(AS_RUN, tmp_path, [("V100,8,", "V100,5,")]).simulate(INTERLEAVE))
    assert [two.makespan_s, two.mean_jct_s] == pytest.approx([412.4, 184.5], abs=0.05)


@pytest.mark.parametrize(
    ("name", "fair", "batches_of_256"), [(AS_RUN, 1.403, 1.403), (LISTED, 1.480, 1.580)], ids=[AS_RUN, LISTED]
)
def test_what_assumptions_change(name, fair, batches_of_256, tmp_path):
    def quarter(found):
        return f",256,{int(found[1]) // 4},{4 * float(found[2]):g}"

    larger = [(r",64,(\d+),([\d.]+)", quarter)] + ([("0.0081", "0.0324")] if name == LISTED else [])
    for edits, sharing, stated in (([], "fair", fair), (larger, "fifo", batches_of_256)):
        run = loaded(name, tmp_path, edits, sharing)
        ratio = figures(run.simulate("sjf")).makespan_s / figures(run.simulate(INTERLEAVE)).makespan_s
        assert ratio == pytest.approx(stated, abs=0.00051)


def test_a_job_of_each_queue_at_a_time_shortest_first(tmp_path):
    jobs = loaded(LISTED, tmp_path).simulate(INTERLEAVE).jobs
    for queue in ("cpu-bound", "gpu-bound"):
        turns = sorted((job for job in jobs if job.user == queue), key=lambda job: job.start_s)
        assert [job.start_s for job in turns] == pytest.approx([0.0, *(job.finish_s for job in turns[:-1])])
        steps = {job.job_id: job.steps for job in loaded(LISTED, tmp_path).workload.jobs}
        assert [steps[job.job_id] for job in turns] == sorted(steps[job.job_id] for job in turns)
