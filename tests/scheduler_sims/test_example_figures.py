"""What examples/ have from programs is current: figures beside published ones (`python examples/figures.py`), drawn workloads."""

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


@pytest.mark.parametrize("example", ["gangs-24", "llm-12", "services-2"])
def test_a_workload_is_what_its_generator_draws(example):
    generator = runpy.run_path(str(EXAMPLES / example / "generate.py"))
    workload = (EXAMPLES / example / "workload.csv").read_text(encoding="utf-8")
    assert generator["HEAD"] + "".join(generator["rows"]()) == workload
