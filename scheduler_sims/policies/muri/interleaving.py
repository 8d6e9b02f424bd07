"""How long an iteration takes when jobs interleave: while one uses a resource, the others use other ones.

Zhao et al., Muri, SIGCOMM 2022, section 4.1. Jobs take turns: in each phase of an iteration every job uses another resource, and
the slowest of them sets the pace. Which job begins with which resource is chosen for the shortest iteration.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import permutations
from math import inf, isclose
from typing import NamedTuple

RESOURCES = 4
"""Storage, CPUs, GPUs and network."""

MEASURED = (1.0, 1.33 / 1.015, 1.5 / 1.015, 1.37 / 1.015)
"""How much longer groups of 1 to 4 jobs take than computed; of Muri's simulator (Rivendile/Muri at 4e69a78)."""


class Profile(NamedTuple):
    """One iteration of a job alone, and its seconds on each resource. Three stages: as in Muri's traces, without the fourth
    resource."""

    iteration_s: float
    stages: tuple[float, ...]


def iteration_s(profiles: Sequence[Profile], overheads: Sequence[float] = MEASURED) -> float:
    """Seconds of one iteration of all jobs of a group."""
    if len(profiles) == 1:
        return profiles[0].iteration_s
    return _interleaved(tuple(sorted(profiles))) * overheads[len(profiles) - 1]


@lru_cache(maxsize=1 << 16)
def efficiency(profiles: tuple[Profile, ...], overheads: tuple[float, ...] = MEASURED) -> float:
    """The share of all resources' time that a group uses, 1 at most; the weight of a pair in the matching."""
    used = sum(sum(profile.stages) for profile in profiles)
    return used / (iteration_s(profiles, overheads) * RESOURCES)


@lru_cache(maxsize=1 << 16)
def _interleaved(profiles: tuple[Profile, ...]) -> float:
    """The best order's iteration; groups of the same jobs are the same whatever their order."""
    play = _three_stages if all(len(profile.stages) == 3 for profile in profiles) else _phases
    best = min(play([profile.stages for profile in order]) for order in permutations(profiles))
    if len(profiles) == 2 and play is _three_stages:
        (a0, a1, a2), (b0, b1, b2) = (profile.stages for profile in profiles)
        best = min(best, max(a0, b1 + b2) + max(b0, a1 + a2))
    return best


def _phases(stages: Sequence[Sequence[float]]) -> float:
    """Job q uses resource i - q in phase i; a phase lasts as long as its slowest job."""
    return sum(max(times[(phase - job) % RESOURCES] for job, times in enumerate(stages)) for phase in range(RESOURCES))


def _three_stages(stages: Sequence[Sequence[float]]) -> float:
    """The same where jobs have three stages, one after the other, and every fourth phase is idle: stages may overlap phases.

    Two iterations are played, as in Muri's simulator; the second one counts, or an earlier one once it is steady.
    """
    ends = [0.0]
    for phase in range(2 * RESOURCES):
        end = 0.0
        for stage, back in ((2, 0), (1, 0), (0, 1)):
            job = (phase + 3 - stage) % RESOURCES
            if job < len(stages) and phase >= back:
                end = max(end, ends[phase - back] + stages[job][stage])
        ends.append(end)
        if phase >= RESOURCES and isclose(end - ends[phase - 3], ends[phase] - ends[phase - 4], rel_tol=1e-3):
            return end - ends[phase - 3]
    return ends[-1] - ends[RESOURCES] or inf
