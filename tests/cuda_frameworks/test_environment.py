"""Environments with PyTorch: what is there isn't installed again; without a package index the reason is told."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cuda_frameworks import environment
from tests.support.torch_releases import RELEASES

RELEASE = RELEASES["2.15.0"]


def test_without_a_package_index_the_reason_is_told(tmp_path: Path) -> None:
    environ = os.environ | {"EMUGPU_CACHE": str(tmp_path), "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": ""}
    command = [sys.executable, "-m", "tests.cuda_frameworks.environment", RELEASE.torch]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 1
    assert done.stdout == ""
    assert "error: torch 2.15.0: pip ended with status 1, see above. It needs a package index" in done.stderr
    assert not (tmp_path / "torch" / RELEASE.torch / environment.COMPLETE).exists()


def test_a_complete_environment_is_used_as_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMUGPU_CACHE", str(tmp_path))
    called: list[list[str]] = []

    def pip(command: list[str], **options: object) -> subprocess.CompletedProcess[str]:
        called.append(command)
        return subprocess.CompletedProcess(command, 0)

    monkeypatch.setattr(environment.subprocess, "run", pip)
    monkeypatch.setattr(environment.venv, "create", lambda path, **options: path.mkdir(parents=True))
    for _ in range(2):
        assert environment.ensure(RELEASE) == tmp_path / "torch" / RELEASE.torch
    assert len(called) == 1
    assert {"--no-deps", "torch==2.15.0", "torchvision==0.29.2", "triton==3.9.0"} <= set(called[0])


def test_an_unknown_release_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert environment.main(["1.0"]) == 2
    assert "no release 1.0; there are 2.15.0, 2.10.0" in capsys.readouterr().err
