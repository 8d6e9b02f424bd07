"""What the surrogate expects of configurations that nobody has evaluated."""

from __future__ import annotations

import itertools
from random import Random

import pytest

from emugpu.search.recipe import Configuration
from emugpu.search.surrogate import Observation, Surrogate

KNOBS = {"tp": (1, 2, 4, 8), "batch": (1, 2, 4, 8, 16), "mode": ("slow", "fast"), "one": ("only",)}
GRID: list[Configuration] = [dict(zip(KNOBS, values, strict=True)) for values in itertools.product(*KNOBS.values())]
ROOM = 80.0


def time_of(one: Configuration) -> float:
    return float(one["tp"]) ** 0.5 * (1 + 4 / float(one["batch"])) * (2 if one["mode"] == "slow" else 1)  # type: ignore[arg-type]


def need_of(one: Configuration) -> float:
    return 10.0 * float(one["batch"]) / float(one["tp"]) + 5  # type: ignore[arg-type]


def observed(one: Configuration, room: float = 1e9) -> Observation:
    fits = need_of(one) <= room
    return Observation(one, time_of(one) if fits else None, need_of(one) if fits else None, fits)


def rest(known: list[Observation]) -> list[Configuration]:
    return [one for one in GRID if one not in [other.configuration for other in known]]


@pytest.mark.parametrize("seed", range(4))
def test_the_first_ones_are_unlike_each_other(seed: int) -> None:
    surrogate, chosen = Surrogate(KNOBS, Random(seed)), list[Configuration]()
    for _ in range(3):
        chosen.append(surrogate.unlike([one for one in GRID if one not in chosen], chosen))
    assert {one["mode"] for one in chosen} == {"slow", "fast"}
    assert len({one["tp"] for one in chosen}) > 1
    assert len({one["batch"] for one in chosen}) > 1


def searched(seed: int, room: float, count: int) -> list[Observation]:
    surrogate, known = Surrogate(KNOBS, Random(seed)), list[Observation]()
    for step in range(count):
        left = rest(known)
        if step < 4 or not any(one.value for one in known):
            chosen = surrogate.unlike(left, [one.configuration for one in known])
        else:
            chosen = surrogate.best(left, known, [room] * len(left))
        known.append(observed(chosen, room))
    return known


@pytest.mark.parametrize("seed", range(4))
def test_a_dozen_of_forty_find_the_best(seed: int) -> None:
    best = min(GRID, key=time_of)
    assert best in [one.configuration for one in searched(seed, 1e9, 10)]


@pytest.mark.parametrize("seed", range(4))
def test_those_that_are_chosen_at_the_same_time_teach_something_each(seed: int) -> None:
    """Four at once, after six: they differ in more than one step of one knob, and one is as good as the four of one by one."""
    surrogate, known = Surrogate(KNOBS, Random(seed)), searched(seed, 1e9, 6)
    left, chosen = rest(known), list[Configuration]()
    for _ in range(4):
        chosen.append(surrogate.best(left, known, [1e9] * len(left), chosen))
        left = [one for one in left if one not in chosen]
    apart = [
        sum(abs(KNOBS[name].index(one[name]) - KNOBS[name].index(other[name])) for name in KNOBS)  # type: ignore[arg-type]
        for one, other in itertools.combinations(chosen, 2)
    ]
    assert max(apart) > 1
    assert min(time_of(one) for one in chosen) <= 1.5 * min(time_of(one) for one in GRID)


@pytest.mark.parametrize("seed", range(4))
def test_the_best_is_found_at_the_border_of_what_fits(seed: int) -> None:
    """The fastest ones don't fit, and what runs out of memory doesn't say how much it would need."""
    assert need_of(min(GRID, key=time_of)) > ROOM
    known = searched(seed, ROOM, 12)
    assert sum(not one.fits for one in known) <= len(known) / 2
    best = min((one for one in GRID if need_of(one) <= ROOM), key=time_of)
    found = min(one.value for one in known if one.value is not None)
    assert found <= 1.02 * time_of(best)


def test_what_failed_is_no_better_than_the_worst() -> None:
    """All of mode fast fail: after some of them, the surrogate turns to the other mode."""
    surrogate = Surrogate(KNOBS, Random(0))
    known = [
        Observation(one, None if one["mode"] == "fast" else time_of(one), None, fits=True)
        for one in GRID
        if one["tp"] in (1, 8) and one["batch"] in (1, 4)
    ]
    left = rest(known)
    assert surrogate.best(left, known, [ROOM] * len(left))["mode"] == "slow"


def test_a_grid_of_one_knob_with_one_value() -> None:
    only: Configuration = {"one": "only"}
    assert Surrogate({"one": ("only",)}, Random(0)).unlike([only], []) == only
