"""The parts of a sweep: expansion of policies, points, statistics, evaluation of a point."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from emugpu.sweep.evaluation import GRID, Outcome, evaluate, jain
from emugpu.sweep.page import cell, difference
from emugpu.sweep.plan import AS_IT_IS, Condition, Inputs, Point, Sweep, expanded
from emugpu.sweep.running import SweepJournal
from emugpu.sweep.statistics import Interval, lines
from emulator_runtime.domain.errors import EmuGpuError
from scheduler_sims.generators.generate import Recipe

ROWS = "job_id,submit_s,num_gpus,gpu_duration_s\na,0,1,100\nb,10,1,50\nc,20,1,10\nd,100,1,40\n"


@pytest.fixture
def inputs(tmp_path: Path) -> Inputs:
    (tmp_path / "w.csv").write_text(ROWS)
    (tmp_path / "c.yaml").write_text("nodes: [{name: n, gpus: 1, gpu_type: T4, cpus: 8}]")
    return Inputs(tmp_path / "c.yaml", tmp_path / "w.csv")


def test_alternatives_of_options() -> None:
    assert expanded(["fifo", "las:threshold_s=300|3000"]) == ["fifo", "las:threshold_s=300", "las:threshold_s=3000"]
    assert expanded(["p:a=1|2,b=x|y"]) == ["p:a=1,b=x", "p:a=1,b=y", "p:a=2,b=x", "p:a=2,b=y"]
    with pytest.raises(EmuGpuError, match="--policy: fifo is named twice"):
        expanded(["fifo", "fifo"])


def test_a_point_of_a_trace_as_it_is(inputs: Inputs) -> None:
    one = evaluate(inputs, Point(AS_IT_IS, 0, "oracle", "fifo"))
    # a 0-100, b 100-150, c 150-160, d 160-200 on one GPU
    assert one.figures["mean_jct_s"] == (100 + 140 + 140 + 100) / 4
    assert one.figures["makespan_s"] == 200
    assert one.figures["utilisation"] == 1
    assert one.figures["fairness"] == pytest.approx(jain([1, 140 / 50, 140 / 10, 100 / 40]))
    assert (len(one.jct_s), one.jct_s[0], one.jct_s[-1], one.error) == (len(GRID), 100, 140, "")
    assert 0 < one.policy_s < one.wall_s


def test_warm_up_and_cool_down_leave_out_jobs_but_not_the_clusters_time(inputs: Inputs) -> None:
    one = evaluate(replace(inputs, warm_up=1, cool_down=1), Point(AS_IT_IS, 0, "oracle", "fifo"))
    assert (one.figures["mean_jct_s"], one.figures["finished"], one.figures["makespan_s"]) == (140, 2, 200)


def test_the_load_scales_submissions(inputs: Inputs) -> None:
    low = evaluate(inputs, Point(0.02, 0, "oracle", "fifo"))  # 200 GPU-seconds in 10,000 s
    assert low.figures["mean_jct_s"] == 50  # nobody waits
    assert low.figures["makespan_s"] == 10_040


def test_windows_of_a_trace_depend_on_the_seed(inputs: Inputs) -> None:
    two = replace(inputs, jobs=2)
    firsts = {evaluate(two, Point(AS_IT_IS, seed, "oracle", "fifo")).figures["makespan_s"] for seed in range(12)}
    # windows (a, b): 150 s; (b, c): 60 s; (c, d): from 20 to 140 is 120 s
    assert firsts == {150, 60, 120}


def test_policies_get_the_same_generated_jobs(inputs: Inputs) -> None:
    generated = Inputs(inputs.cluster, recipe=Recipe("poisson/exponential", 50))
    fifo, sjf = (evaluate(generated, Point(0.9, 3, "oracle", policy)).figures for policy in ("fifo", "sjf"))
    assert fifo["makespan_s"] == pytest.approx(sjf["makespan_s"], rel=0.05)
    assert fifo["mean_jct_s"] > sjf["mean_jct_s"]  # type: ignore[operator]


def test_mm1_has_the_mean_that_theory_says(inputs: Inputs) -> None:
    """M/M/1 at load 0.5: an hour of service is two hours in the system (Kleinrock, Queueing Systems I, 3.26)."""
    generated = Inputs(inputs.cluster, recipe=Recipe("poisson/exponential", 4000), warm_up=100)
    means = [evaluate(generated, Point(0.5, seed, "oracle", "fifo")).figures["mean_jct_s"] or 0 for seed in range(4)]
    assert sum(means) / 4 == pytest.approx(7200, rel=0.1)


def test_errors_become_outcomes(inputs: Inputs) -> None:
    one = evaluate(replace(inputs, jobs=9), Point(AS_IT_IS, 0, "oracle", "fifo"))
    assert one.error == "--jobs: must be 1 to 4, the workload's jobs, not 9"


def test_jain() -> None:
    assert jain([2, 2, 2]) == 1
    assert jain([1, 0, 0, 0]) == 0.25
    assert jain([]) is None


def test_intervals_by_student() -> None:
    interval = Interval.of([1.0, 2.0, 3.0, 4.0])
    assert interval is not None and interval.half is not None
    assert (interval.mean, interval.count) == (2.5, 4)
    assert interval.half == pytest.approx(3.182446 * 1.290994 / 2, rel=1e-5)  # t(3, 0.975) s / sqrt(4)
    assert Interval.of([5.0]) == Interval(5.0, None, 1)
    assert Interval.of([]) is None
    assert Interval(-0.1, 0.05, 3).certain and not Interval(0.1, 0.2, 3).certain and not Interval(1, None, 1).certain


def outcome(value: float) -> Outcome:
    return Outcome({"mean_jct_s": value, "preemptions": None}, (value, value))


def test_differences_are_taken_seed_by_seed(inputs: Inputs) -> None:
    sweep = Sweep(inputs, [AS_IT_IS], range(2), ["oracle"], ["one", "two"])
    values = {("one", 0): 100.0, ("one", 1): 1000.0, ("two", 0): 90.0, ("two", 1): 900.0}
    outcomes = {Point(AS_IT_IS, seed, "oracle", policy): outcome(value) for (policy, seed), value in values.items()}
    first, second = lines(sweep, outcomes)
    assert second.differences["mean_jct_s"].mean == pytest.approx(-0.1)
    assert second.differences["mean_jct_s"].half == pytest.approx(0, abs=1e-9)  # though the means differ by far more
    assert second.figures["mean_jct_s"].mean == 495 and second.figures["mean_jct_s"].half > 1000  # type: ignore[operator]
    assert "preemptions" not in second.figures and second.jct_s == (495, 495)
    assert first.differences["mean_jct_s"].mean == 0


def test_missing_and_failed_points_leave_their_seeds_out(inputs: Inputs) -> None:
    sweep = Sweep(inputs, [AS_IT_IS], range(3), ["oracle"], ["one", "two"])
    one = [Point(AS_IT_IS, seed, "oracle", "one") for seed in range(3)]
    two = [Point(AS_IT_IS, seed, "oracle", "two") for seed in range(3)]
    outcomes = {one[0]: outcome(10), one[1]: Outcome(error="no"), two[0]: outcome(20), two[1]: outcome(30)}
    first, second = lines(sweep, outcomes)
    assert (first.figures["mean_jct_s"].count, second.figures["mean_jct_s"].count) == (1, 2)
    assert (second.differences["mean_jct_s"].count, second.differences["mean_jct_s"].mean) == (1, 1)


def test_cells() -> None:
    assert cell("mean_jct_s", Interval(1234.5, 12.34, 5)) == "1,234 ± 12.3"
    assert cell("utilisation", Interval(0.876, None, 1)) == "87.6%"
    assert cell("utilisation", None) == "–"
    assert difference(Interval(-0.123, 0.011, 5)) == "−12.3% ± 1.10%"


def test_conditions_in_words() -> None:
    assert str(Condition(0.8, "oracle")) == "load 0.8"
    assert str(Condition(AS_IT_IS, "error:0.2")) == "as it is, estimates error:0.2"


def test_the_journal_knows_files_by_their_contents(inputs: Inputs, tmp_path: Path) -> None:
    policy = tmp_path / "mine.py"
    policy.write_text("class Mine: ...\n")
    sweep = Sweep(inputs, [AS_IT_IS], [0], ["oracle"], [f"{policy}:Mine", "fifo"])
    journal = SweepJournal(tmp_path / "j", sweep)
    assert journal.read() == {}
    for point in sweep.points():
        journal.append(point, outcome(5))
    assert SweepJournal(tmp_path / "j", sweep).read() == {point: outcome(5) for point in sweep.points()}
    policy.write_text("class Mine: pass\n")
    assert [point.policy for point in SweepJournal(tmp_path / "j", sweep).read()] == [
        "fifo"
    ]  # the other is another policy now
    inputs.cluster.write_text("nodes: [{name: n, gpus: 2, gpu_type: T4, cpus: 8}]")
    with pytest.raises(EmuGpuError, match="is of another sweep"):
        SweepJournal(tmp_path / "j", sweep).read()
    (tmp_path / "k").write_text((tmp_path / "j").read_text().splitlines()[0] + '\n{"point": {}}\n')
    inputs.cluster.write_text("nodes: [{name: n, gpus: 1, gpu_type: T4, cpus: 8}]")
    with pytest.raises(EmuGpuError, match="isn't what this command writes"):
        SweepJournal(tmp_path / "k", sweep).read()
