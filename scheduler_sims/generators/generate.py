"""Generates a workload by a seed. Chance is split by purpose, so that another rate or load changes only when jobs come."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from random import Random

from emulator_runtime.domain.errors import InputError, UnknownNameError
from emulator_runtime.domain.units import MAX_SECONDS
from scheduler_sims.generators.arrivals import ARRIVALS
from scheduler_sims.generators.mixes import MIXES
from scheduler_sims.traces.importing import Choices, workload_text
from scheduler_sims.traces.job import TraceJob

DEFAULT_KIND = "poisson/philly"
MOST_JOBS = 1_000_000


@dataclass(frozen=True, slots=True)
class Recipe:
    """What is generated: so many jobs of `users` users, of a kind ARRIVALS/MIX."""

    kind: str = DEFAULT_KIND
    jobs: int = 1000
    users: int = 10

    def __post_init__(self) -> None:
        arrivals, _, mix = self.kind.partition("/")
        if arrivals not in ARRIVALS:
            raise UnknownNameError("--kind", "arrivals", arrivals, ARRIVALS)
        if mix not in MIXES:
            raise UnknownNameError("--kind", "mix", mix, MIXES)
        if not 1 <= self.jobs <= MOST_JOBS:
            raise InputError("--jobs", f"must be 1 to {MOST_JOBS}, not {self.jobs}")
        if self.users < 1:
            raise InputError("--users", f"must be at least 1, not {self.users}")


def jobs_at_rate(recipe: Recipe, seed: int, jobs_per_hour: float) -> list[TraceJob]:
    """The jobs at a mean rate of arrivals."""
    return _placed(recipe, _mix(recipe, seed), seed, jobs_per_hour / 3600)


def jobs_at_load(recipe: Recipe, seed: int, load: float, gpus: int) -> list[TraceJob]:
    """The jobs at the rate at which they need this part of so many GPUs. The rate is that of these very jobs, so that their load
    varies with the seed only as their arrivals do."""
    jobs = _mix(recipe, seed)
    gpu_s = sum(count * duration_s for count, duration_s in jobs)
    return _placed(recipe, jobs, seed, len(jobs) * load * gpus / gpu_s)


def as_workload(jobs: list[TraceJob], title: str, gpus_per_node: int = 8) -> str:
    """The text of a workload file."""
    return workload_text(title, jobs, Choices(gpus_per_node=gpus_per_node))


def _mix(recipe: Recipe, seed: int) -> list[tuple[int, float]]:
    mix, chance = MIXES[recipe.kind.partition("/")[2]], Random(f"{seed}/jobs")
    return [mix(chance) for _ in range(recipe.jobs)]


def _placed(recipe: Recipe, jobs: list[tuple[int, float]], seed: int, rate: float) -> list[TraceJob]:
    arrivals, of_users = ARRIVALS[recipe.kind.partition("/")[0]], Random(f"{seed}/users")
    times = list(islice(arrivals(Random(f"{seed}/arrivals"), rate), len(jobs)))
    if times[-1] > MAX_SECONDS:
        raise InputError(
            "--jobs",
            f"the last job would come after {times[-1]:g} s, later than {MAX_SECONDS:g} s; a higher load or rate helps",
        )
    width = len(str(len(jobs) - 1))
    return [
        TraceJob(f"job-{number:0{width}}", time, duration_s, gpus, f"user-{of_users.randrange(recipe.users)}")
        for number, ((gpus, duration_s), time) in enumerate(zip(jobs, times, strict=True))
    ]
