"""The figures beside published ones in examples/ are what `python examples/figures.py` draws."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
MODULE = runpy.run_path(str(EXAMPLES / "figures.py"))


@pytest.mark.parametrize("example", MODULE["FIGURES"])
def test_a_figure_is_current(example):
    assert MODULE["FIGURES"][example]() == (EXAMPLES / example / "figure.svg").read_text(encoding="utf-8")
    assert "(figure.svg)" in (EXAMPLES / example / "README.md").read_text(encoding="utf-8")
