"""Which host resources make a row's job faster: from a profiled family of models, or from columns of the row's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil

from emulator_runtime.domain.errors import InputError, UnknownNameError
from emulator_runtime.domain.job import TimedWork
from emulator_runtime.domain.sensitivity import HostShare, Sensitivity
from emulator_runtime.domain.units import GIB
from emulator_runtime.profiles.synergy import FAMILY, SYNERGY_MODELS

COLUMNS = ("speedup", "best_cpus", "best_memory_gib")


@dataclass(frozen=True, slots=True)
class Host:
    """What a row's job needs of each of its nodes beside devices: the least, and the best (0: not known)."""

    least: HostShare
    best: HostShare


def named_family(model: str) -> bool:
    """Whether a model is one of those whose speed depends on CPUs and memory."""
    return model.startswith(FAMILY)


def of_family(model: str, length: tuple[int, float | None], gpus: int, place: str) -> tuple[TimedWork, Host]:
    """Work and needs of a job that trains a model of the family for (steps, seconds at speed 1 where the row gives them).

    Raises UnknownNameError at `place`.
    """
    if model not in SYNERGY_MODELS:
        raise UnknownNameError(place, "model", model, SYNERGY_MODELS)
    known = SYNERGY_MODELS[model]
    sensitivity = known.sensitivity.times(gpus)
    steps, duration_s = length
    return TimedWork(duration_s or known.step_s * steps, sensitivity), Host(known.least(gpus), sensitivity.best)


def of_columns(
    duration_s: float, least: HostShare, nodes: int, number: Callable[[str, float], float], place: str
) -> tuple[TimedWork, Host]:
    """Work and needs of a row that says itself how much faster it is with how much. Raises InputError at `place`.

    `number(column, default)` reads a cell; cells are of all `nodes` together. A row that gives none of these columns says
    nothing about its best.
    """
    speedup, best_cpus, best_memory_gib = (
        number("speedup", 1.0),
        number("best_cpus", 0.0),
        number("best_memory_gib", 0.0),
    )
    if speedup == 1 and not best_cpus and not best_memory_gib:
        return TimedWork(duration_s), Host(least, HostShare(0))
    best = HostShare(
        ceil(round(best_cpus * 1000) / nodes) or least.cpu_milli,
        ceil(round(best_memory_gib * GIB) / nodes) or least.memory_bytes,
    )
    if speedup < 1:
        raise InputError(f"{place}: speedup", f"must be >= 1, not {speedup:g}: it is what more CPUs and memory bring")
    if best.cpu_milli < least.cpu_milli or best.memory_bytes < least.memory_bytes:
        raise InputError(f"{place}: best_cpus", "best_cpus and best_memory_gib must be at least cpus and memory_gib")
    if speedup > 1 and best == least:
        raise InputError(f"{place}: speedup", "give best_cpus or best_memory_gib too: with how much is it that fast?")
    if best.memory_bytes > least.memory_bytes == 0:
        raise InputError(f"{place}: best_memory_gib", "give memory_gib too: with how much is it as slow as stated?")
    sensitivity = Sensitivity.between(least, best, speedup) if speedup > 1 else None
    return TimedWork(duration_s, sensitivity), Host(least, best)
