"""Generated workloads: their distributions, their seeds, their load; and what changes do to a workload."""

from __future__ import annotations

from itertools import islice, pairwise
from random import Random
from statistics import mean

import pytest

from emulator_runtime.domain.errors import EmuGpuError
from emulator_runtime.profiles.table import ProfileTable
from scheduler_sims.generators.arrivals import DAY_S, diurnal, poisson
from scheduler_sims.generators.changes import (
    Taken,
    at_load,
    everything,
    faster,
    from_zero,
    load_of,
    sample,
    window,
)
from scheduler_sims.generators.generate import Recipe, as_workload, jobs_at_load, jobs_at_rate
from scheduler_sims.generators.mixes import exponential, philly, uniform
from scheduler_sims.inputs.workload import parse_workload


def test_poisson_has_the_rate_and_no_memory() -> None:
    times = list(islice(poisson(Random(1), 0.5), 20_000))
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert mean(gaps) == pytest.approx(2, rel=0.03)
    assert sum(gap > 2 for gap in gaps) / len(gaps) == pytest.approx(0.3679, abs=0.01)


def test_diurnal_has_the_same_rate_and_follows_the_day() -> None:
    times = list(islice(diurnal(Random(1), 1000 / DAY_S), 50_000))
    assert times == sorted(times)
    assert len(times) / times[-1] == pytest.approx(1000 / DAY_S, rel=0.02)
    night = sum(time % DAY_S < DAY_S / 4 or time % DAY_S > 3 * DAY_S / 4 for time in times) / len(times)
    assert night == pytest.approx(0.5 - 0.8 / 3.14159, abs=0.01)  # the integral of the rate over half a day


def test_mixes() -> None:
    jobs = [philly(Random(f"{n}")) for n in range(5000)]
    assert [sum(gpus == size for gpus, _ in jobs) / 5000 for size in (1, 2, 4, 8)] == pytest.approx(
        [0.7, 0.1, 0.15, 0.05], abs=0.02
    )
    assert sum(duration < 60_000 for _, duration in jobs) / 5000 == pytest.approx(0.8, abs=0.02)
    assert min(d for _, d in jobs) >= 60 * 10**1.5 and max(d for _, d in jobs) <= 600_000
    chance = Random(3)
    assert mean(exponential(chance)[1] for _ in range(5000)) == pytest.approx(3600, rel=0.05)
    assert {uniform(chance)[0] for _ in range(100)} == {1, 2, 4, 8}


def test_a_seed_gives_the_same_jobs_whatever_the_load() -> None:
    recipe = Recipe("poisson/philly", 200)
    low, high = (jobs_at_load(recipe, 7, load, 16) for load in (0.5, 1.0))
    assert [(a.gpus, a.duration_s, a.user) for a in low] == [(b.gpus, b.duration_s, b.user) for b in high]
    assert [a.submit_s for a in low] == pytest.approx([2 * b.submit_s for b in high])
    assert low == jobs_at_load(recipe, 7, 0.5, 16)
    assert low != jobs_at_load(recipe, 8, 0.5, 16)


@pytest.mark.parametrize("kind", ["poisson/philly", "diurnal/uniform"])
def test_the_load_is_the_one_asked_for(kind: str) -> None:
    jobs = jobs_at_load(Recipe(kind, 4000), 1, 0.8, 64)
    assert sum(job.gpus * job.duration_s for job in jobs) / (64 * jobs[-1].submit_s) == pytest.approx(0.8, rel=0.05)


def test_as_a_workload() -> None:
    text = as_workload(jobs_at_rate(Recipe("at-once/uniform", 20, users=2), 1, 60), "generated", gpus_per_node=4)
    workload = parse_workload(text, "text", "generated", ProfileTable.bundled())
    assert len(workload.jobs) == 20
    assert {job.user for job in workload.jobs} == {"user-0", "user-1"}
    assert {(c.gpus, c.min_tasks) for job in workload.jobs for c in job.configurations} == {
        (1, 1),
        (2, 1),
        (4, 1),
        (4, 2),
    }
    assert {job.submit_s for job in workload.jobs} == {0}


@pytest.mark.parametrize(
    ("recipe", "problem"),
    [
        ({"kind": "poison/philly"}, "--kind: unknown arrivals 'poison'; did you mean poisson"),
        ({"kind": "poisson"}, "--kind: unknown mix ''"),
        ({"jobs": 0}, "--jobs: must be 1 to 1000000, not 0"),
        ({"users": 0}, "--users: must be at least 1"),
    ],
)
def test_wrong_recipes(recipe: dict[str, object], problem: str) -> None:
    with pytest.raises(EmuGpuError, match=problem):
        Recipe(**recipe)  # type: ignore[arg-type]


def test_too_slow_arrivals_are_an_error() -> None:
    with pytest.raises(EmuGpuError, match="the last job would come after"):
        jobs_at_rate(Recipe(jobs=10), 1, 1e-6)


JOBS = everything([30.0, 10.0, 20.0, 20.0])


def test_changes() -> None:
    assert [one.index for one in JOBS] == [1, 2, 3, 0]
    assert from_zero(JOBS)[-1] == Taken(0, 20)
    assert faster(from_zero(JOBS), 2)[-1] == Taken(0, 10)
    gpu_s = [100.0, 200.0, 300.0, 400.0]
    assert load_of(JOBS, gpu_s, 10) == 1000 / (10 * 20)
    assert load_of(at_load(from_zero(JOBS), gpu_s, 10, 0.25), gpu_s, 10) == pytest.approx(0.25)


def test_windows_and_samples_differ_by_seed_only() -> None:
    jobs = everything([float(n) for n in range(1000)])
    windows = [window(jobs, 100, seed) for seed in (1, 1, 2)]
    assert windows[0] == windows[1] != windows[2]
    assert [one.index for one in windows[0]] == list(range(windows[0][0].index, windows[0][0].index + 100))
    samples = [sample(jobs, 0.3, seed) for seed in (1, 1, 2)]
    assert samples[0] == samples[1] != samples[2]
    assert len(samples[0]) == pytest.approx(300, abs=50)
    assert len(window(jobs, 1000, 3)) == 1000
    assert len(sample(jobs, 1e-9, 3)) == 1


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (lambda: window(JOBS, 5, 1), "--jobs: must be 1 to 4, the workload's jobs, not 5"),
        (lambda: sample(JOBS, 0, 1), "--sample: must be above 0"),
        (lambda: at_load(JOBS, [1.0] * 4, 1, 0), "--load: must be above 0, not 0"),
        (lambda: load_of(everything([5.0, 5.0]), [1.0] * 2, 1), "--load: can't be set: all jobs come at once"),
        (lambda: faster(JOBS, 1e-9), "--load: 1e-09 times as many"),
    ],
)
def test_wrong_changes(change: object, problem: str) -> None:
    with pytest.raises(EmuGpuError, match=problem):
        change()  # type: ignore[operator]
