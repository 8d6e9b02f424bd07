"""Predictions of training programs beside what the same programs take on emulated GPUs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.predicted_programs import PROGRAMS, Program, observed, predicted
from tests.support.torch_releases import NEWEST, TorchRelease

pytestmark = [pytest.mark.frameworks, pytest.mark.processes, pytest.mark.alone, NEWEST, pytest.mark.timeout(400)]

BUSY = 1.15
"""How much longer a step may take where the program has to wait for a core; more where other work keeps us from it."""


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.name)
def test_a_prediction_is_what_the_program_takes(
    program: Program, release: TorchRelease, tmp_path: Path, slowdown: Callable[[], float]
) -> None:
    expected = predicted(program, release.python, tmp_path)
    before = slowdown()
    found = observed(program, release.python, tmp_path)
    longest_s = BUSY * max(1.0, before, slowdown()) * expected.step_s
    assert 0.98 * expected.step_s <= found.step_s <= longest_s
    assert found.memory_bytes == pytest.approx(expected.memory_bytes, rel=0.01)
