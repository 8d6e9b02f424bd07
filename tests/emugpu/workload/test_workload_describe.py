"""`emugpu workload describe` as a user runs it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from emugpu.__main__ import main

ROWS = "".join(f"j{n},u{n % 15},{n * 3600},{1 + n % 20},{100 * (n + 1)}\n" for n in range(40))


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    (tmp_path / "w.csv").write_text("job_id,user,submit_s,num_gpus,gpu_duration_s\n" + ROWS)
    (tmp_path / "c.yaml").write_text("nodes: [{name: n, count: 2, gpus: 8, gpu_type: T4, cpus: 8}]")
    return tmp_path


def test_tables(inputs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["workload", "describe", str(inputs / "w.csv"), "--cluster", str(inputs / "c.yaml")]) == 0
    out = capsys.readouterr().out
    assert re.search(r"jobs +40 *\n", out)
    assert re.search(r"submitted within +39 h *\n", out)
    assert re.search(r"load +\d+\.\d% of 16 GPUs over that time", out)
    assert re.search(r"between arrivals \(s\) +3,600 +3,600", out)


def test_json(inputs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["workload", "describe", str(inputs / "w.csv"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["gpu_s"] == sum((1 + n % 20) * 100 * (n + 1) for n in range(40))
    assert (found["user_count"], len(found["users"]), found["load"]) == (15, 10, None)


def test_page(inputs: Path) -> None:
    pages = []
    for name in ("one", "two"):
        assert main(["workload", "describe", str(inputs / "w.csv"), "--out", str(inputs / name)]) == 0
        pages.append((inputs / name / "report.html").read_text())
    assert pages[0] == pages[1]
    data = json.loads(re.search(r'id="report-data">(.*?)</script>', pages[0], re.DOTALL).group(1))  # type: ignore[union-attr]
    assert set(data["charts"]) == set(re.findall(r"class='chart' id='(\w+)'", pages[0]))
    assert sum(data["charts"]["arrivals"]["data"][0]["y"]) == 40
    assert len(data["charts"]["sizes"]["data"][0]["x"]) == 16
    assert "16 of 20" in pages[0] and "10 of 15" in pages[0]


def test_errors(inputs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["workload", "describe", str(inputs / "none.csv")]) == 2
    assert "can't read the workload" in capsys.readouterr().err
    (inputs / "out").write_text("")
    assert main(["workload", "describe", str(inputs / "w.csv"), "--out", str(inputs / "out")]) == 2
    assert "--out: can't make the directory" in capsys.readouterr().err
