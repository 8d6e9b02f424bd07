from __future__ import annotations

import pytest

from emulator_runtime.domain.sensitivity import HostShare
from emulator_runtime.domain.units import GIB
from emulator_runtime.profiles.synergy import PROPORTIONAL, SYNERGY_MODELS

# msr-fiddle/synergy 1bb2bed, simulator/models/*_1.py: cpus, mem, iter_time, speedup.
PUBLISHED = {
    "alexnet": (12, 125, 0.6, 2.94),
    "shufflenet": (12, 125, 0.615, 2.89),
    "res18": (9, 62.5, 0.64, 2.4),
    "m5": (6, 187.5, 0.6, 2.5),
    "mobilenet": (6, 62.5, 0.71, 1.55),
    "res50": (4, 62.5, 0.78, 1.15),
    "deepspeech": (3, 62.5, 0.757, 1),
    "transformer": (1, 20, 0.67, 1),
    "gnmt": (1, 20, 0.12, 1),
    "lstm": (1, 20, 0.011, 1),
}


def gib(cpus, memory):
    return HostShare(round(cpus * 1000), round(memory * GIB))


@pytest.mark.parametrize("name", PUBLISHED)
def test_best_shares_and_speeds_are_the_published_ones(name):
    cpus, memory, step_s, speedup = PUBLISHED[name]
    model = SYNERGY_MODELS[f"synergy/{name}"]
    assert model.step_s == step_s
    assert model.sensitivity.best == gib(cpus, memory)
    assert model.sensitivity.speed(model.sensitivity.best) == speedup
    assert model.sensitivity.speed(PROPORTIONAL) == 1.0
    assert model.sensitivity.speed(model.least(1)) == 1.0


def test_there_are_no_others():
    assert set(SYNERGY_MODELS) == {f"synergy/{name}" for name in PUBLISHED}


@pytest.mark.parametrize(
    ("name", "cpus", "memory", "speed"),
    [
        ("alexnet", 1, 62.5, 0.3),
        ("alexnet", 9, 250, 2),
        ("alexnet", 12, 62.5, 2),
        ("alexnet", 24, 125, 2.94),
        ("m5", 5, 62.5, 1.4),
        ("m5", 6, 62.5, 1.5),
        ("m5", 12, 125, 2),
        ("m5", 24, 250, 2.5),
        ("res18", 6, 62.5, 1.75),
        ("mobilenet", 4, 187.5, 1.3),
        ("res50", 2, 62.5, 0.74),
        ("shufflenet", 6, 20.83, 0.1),
        ("deepspeech", 2, 62.5, 0.66),
    ],
)
def test_cells_of_the_published_matrices(name, cpus, memory, speed):
    assert SYNERGY_MODELS[f"synergy/{name}"].sensitivity.speed(gib(cpus, memory)) == speed


def test_the_least_of_two_gpus_is_twice_that_of_one():
    assert SYNERGY_MODELS["synergy/alexnet"].least(2) == gib(6, 125)
    assert SYNERGY_MODELS["synergy/gnmt"].least(2) == gib(2, 40)
