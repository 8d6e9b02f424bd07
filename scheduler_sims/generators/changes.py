"""Which jobs of a workload are taken, and when they come: another load, a part of it, a sample. Chance is a seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from emulator_runtime.domain.errors import InputError
from emulator_runtime.domain.units import MAX_SECONDS


@dataclass(frozen=True, slots=True)
class Taken:
    """A job of the workload: its index there, and its new submission in seconds."""

    index: int
    submit_s: float


def everything(submit_s: Sequence[float]) -> list[Taken]:
    """All jobs in the order of submission."""
    return sorted(
        (Taken(index, time) for index, time in enumerate(submit_s)), key=lambda one: (one.submit_s, one.index)
    )


def window(jobs: Sequence[Taken], count: int, seed: int) -> list[Taken]:
    """`count` successive jobs, from a place that the seed chooses. Raises InputError if there are fewer."""
    if not 1 <= count <= len(jobs):
        raise InputError("--jobs", f"must be 1 to {len(jobs)}, the workload's jobs, not {count}")
    first = Random(f"{seed}/window").randrange(len(jobs) - count + 1)
    return list(jobs[first : first + count])


def sample(jobs: Sequence[Taken], share: float, seed: int) -> list[Taken]:
    """Each job with probability `share`, at its own time, so that the rate is `share` times as high. At least one job."""
    if not 0 < share <= 1:
        raise InputError("--sample", f"must be above 0 and at most 1, not {share:g}")
    chance = Random(f"{seed}/sample")
    return [one for one in jobs if chance.random() < share] or list(jobs[:1])


def from_zero(jobs: Sequence[Taken]) -> list[Taken]:
    """The same, with the first submission at 0."""
    return [Taken(one.index, one.submit_s - jobs[0].submit_s) for one in jobs]


def faster(jobs: Sequence[Taken], factor: float) -> list[Taken]:
    """Submissions `factor` times as fast, so that the load is that much higher; durations stay."""
    if not factor > 0 or jobs[-1].submit_s / factor > MAX_SECONDS:
        raise InputError("--load", f"{factor:g} times as many jobs a second don't end within {MAX_SECONDS:g} s")
    return [Taken(one.index, one.submit_s / factor) for one in jobs]


def load_of(jobs: Sequence[Taken], gpu_s: Sequence[float], gpus: int) -> float:
    """GPU-seconds needed over GPU-seconds there are until the last submission. `gpu_s`: of each job of the workload.

    Raises InputError if all jobs come at once or there are no GPUs, so that there is no load.
    """
    span_s = jobs[-1].submit_s - jobs[0].submit_s
    if span_s <= 0 or gpus <= 0:
        raise InputError("--load", "can't be set: all jobs come at once, or the cluster has no GPU")
    return sum(gpu_s[one.index] for one in jobs) / (gpus * span_s)


def at_load(jobs: Sequence[Taken], gpu_s: Sequence[float], gpus: int, load: float) -> list[Taken]:
    """Submissions faster or slower, so that the load is `load`. Raises InputError."""
    if not load > 0:
        raise InputError("--load", f"must be above 0, not {load:g}")
    return faster(jobs, load / load_of(jobs, gpu_s, gpus))
