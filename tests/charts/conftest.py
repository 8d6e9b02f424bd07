from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.yaml_documents import documents

CHART = Path(__file__).parents[2] / "charts" / "emugpu"
Objects = dict[tuple[str, str], dict[str, Any]]


@pytest.fixture(scope="session")
def helm() -> str:
    """The helm binary, from KUBE_ASSETS or the path."""
    assets = os.environ.get("KUBE_ASSETS")
    found = (shutil.which("helm", path=assets) if assets else None) or shutil.which("helm")
    if found is None:
        pytest.skip("helm is neither in KUBE_ASSETS nor on the path")
    return found


@pytest.fixture(scope="session")
def helm_run(helm: str) -> Callable[..., subprocess.CompletedProcess[str]]:
    """helm with the arguments; the chart's directory stands for CHART."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [helm, *(str(CHART) if argument == "CHART" else argument for argument in arguments)]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)

    return run


@pytest.fixture(scope="session")
def render(helm_run: Callable[..., subprocess.CompletedProcess[str]]) -> Callable[..., Objects]:
    """The chart's objects by (kind, name), for `--set` texts."""
    known: dict[tuple[str, ...], Objects] = {}

    def objects(*sets: str, arguments: tuple[str, ...] = ()) -> Objects:
        key = (*sets, *arguments)
        if key not in known:
            options = [part for text in sets for part in ("--set-json", text)]
            done = helm_run("template", "emugpu", "CHART", "--namespace", "emugpu", *options, *arguments)
            assert done.returncode == 0, done.stderr
            rendered = documents(done.stdout)
            known[key] = {(d["kind"], d["metadata"]["name"]): d for d in rendered}
            assert len(known[key]) == len(rendered)
        return known[key]

    return objects
