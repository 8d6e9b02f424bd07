from __future__ import annotations

import argparse
import json

import pytest

from emugpu.commands import gpus
from emugpu.terminal import console
from emulator_runtime.domain.units import GIB


def run(*argv: str) -> int:
    parser = argparse.ArgumentParser(prog="emugpu")
    gpus.add_parser(parser.add_subparsers())
    args = parser.parse_args(["gpus", *argv])
    status: int = args.run(args)
    return status


def test_the_table_has_a_line_for_every_type(capsys: pytest.CaptureFixture[str]) -> None:
    assert run() == 0
    lines = {line.split()[0]: line.split() for line in capsys.readouterr().out.splitlines() if line.strip()}
    assert lines["Tesla_V100-PCIE-32GB"] == ["Tesla_V100-PCIE-32GB", "V100", "31.7", "29.4", "12", "-", "7.0", "36"]
    assert lines["NVIDIA-H100-80GB-HBM3"] == ["NVIDIA-H100-80GB-HBM3", "H100", "79.6", "73.7", "55", "450", "9.0", "-"]
    assert sum(name.startswith(("Tesla", "Quadro", "NVIDIA")) for name in lines) == 13


def test_the_table_fits_a_terminal_of_80_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console, "_PIPE_WIDTH", 80)
    assert run() == 0
    out = capsys.readouterr().out
    assert max(len(line) for line in out.splitlines()) <= 80
    assert "…" not in out


def test_json_is_in_bytes(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--json") == 0
    rows = {row["gpu_type"]: row for row in json.loads(capsys.readouterr().out)}
    assert len(rows) == 13
    a100 = rows["NVIDIA_A100-SXM4-40GB"]
    assert a100["memory_bytes"] == 40536 * 2**20
    assert 36 * GIB < a100["usable_memory_bytes"] < 37 * GIB
    assert a100["host_link_bytes_per_s"] == 25e9
    assert a100["peer_link_bytes_per_s"] == 300e9
    assert a100["profiled_models"] == 36
    assert "A100" in a100["aliases"]
    assert rows["NVIDIA-B200"]["profiled_models"] == 0
    assert all(row["source"] for row in rows.values())
