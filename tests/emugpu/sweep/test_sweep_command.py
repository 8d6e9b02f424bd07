"""`emugpu sweep` as a user runs it: the same bytes in parallel, going on, Ctrl-C, one line for each mistake."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from emugpu.__main__ import main

CLUSTER = "nodes: [{name: n, count: 2, gpus: 4, gpu_type: T4, cpus: 8}]"
SLOW = """
import sys
from emulator_runtime.timing.host import monotonic_ns
from scheduler_sims.policies.fifo import Fifo


class Slow(Fifo):
    def plan(self, view):
        until_ns = monotonic_ns() + 20_000_000
        while monotonic_ns() < until_ns:
            pass
        return super().plan(view)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "c.yaml").write_text(CLUSTER)
    return tmp_path


def sweep(folder: Path, *arguments: str, out: str = "out") -> int:
    return main(
        ["sweep", "--cluster", str(folder / "c.yaml"), "--out", str(folder / out), "--gpus-per-node", "4", *arguments]
    )


GENERATED = ("--jobs", "40", "--seeds", "2", "--load", "0.5", "0.9", "--kind", "poisson/uniform")


@pytest.mark.processes
def test_the_same_bytes_however_many_processes(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    policies = ("--policy", "fifo", "--policy", "las:threshold_s=300|3000")
    for out, workers in (("one", "1"), ("three", "3")):
        assert sweep(folder, *policies, *GENERATED, "--workers", workers, out=out) == 0
    for name in ("results.csv", "summary.json", "report.html"):
        assert (folder / "one" / name).read_bytes() == (folder / "three" / name).read_bytes()
    rows = (folder / "one" / "results.csv").read_text().splitlines()
    assert len(rows) == 1 + 2 * 3 * 2
    assert rows[1].startswith("0.5,oracle,fifo,0,")
    summary = json.loads((folder / "one" / "summary.json").read_text())
    assert (summary["baseline"], len(summary["lines"]), summary["missing"], summary["failed"]) == ("fifo", 6, 0, [])
    assert len((folder / "one" / "timing.csv").read_text().splitlines()) == 13
    page = (folder / "one" / "report.html").read_text()
    data = json.loads(re.search(r'id="report-data">(.*?)</script>', page, re.DOTALL).group(1))  # type: ignore[union-attr]
    assert set(data["charts"]) == set(re.findall(r"class='chart' id='([\w-]+)'", page))
    assert "las:threshold_s=3000" in capsys.readouterr().out


@pytest.mark.processes
def test_a_sweep_goes_on_and_grows(folder: Path) -> None:
    assert sweep(folder, "--policy", "fifo", *GENERATED, "--workers", "1") == 0
    journal = folder / "out" / "points.jsonl"
    lines = journal.read_text().splitlines(keepends=True)
    assert len(lines) == 1 + 4
    known = json.loads(lines[1])
    known["outcome"]["figures"]["mean_jct_s"] = 12345.0  # to see that it isn't evaluated again
    journal.write_text("".join([lines[0], json.dumps(known) + "\n", lines[2], lines[3][:-30]]))
    assert sweep(folder, "--policy", "fifo", "--policy", "sjf", *GENERATED, "--workers", "1") == 0
    assert len(journal.read_text().splitlines()) == 1 + 8
    results = (folder / "out" / "results.csv").read_text()
    assert results.count("12345,") == 1
    assert len(results.splitlines()) == 1 + 8


def group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.processes
def test_ctrl_c_keeps_what_is_done(folder: Path) -> None:
    (folder / "slow.py").write_text(SLOW)
    command = [
        sys.executable,
        "-m",
        "emugpu",
        "sweep",
        "--cluster",
        str(folder / "c.yaml"),
        "--policy",
        f"{folder}/slow.py:Slow",
    ]
    command += ["--jobs", "20", "--seeds", "60", "--gpus-per-node", "4", "--workers", "1", "--out", str(folder / "out")]
    journal = folder / "out" / "points.jsonl"
    with subprocess.Popen(command, start_new_session=True, stderr=subprocess.PIPE, text=True) as process:
        while not journal.exists() or len(journal.read_text().splitlines()) < 3:
            assert process.poll() is None
            time.sleep(0.05)
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all processes
        err = process.communicate()[1]
    assert process.returncode == 130
    assert re.search(r"emugpu: \d+ points are done and kept; the same command goes on", err)
    assert "Traceback" not in err
    assert 3 <= len(journal.read_text().splitlines()) < 61
    deadline_s = time.monotonic() + 20
    while group_lives(process.pid):  # multiprocessing's own helper ends when it sees that we have
        assert time.monotonic() < deadline_s
        time.sleep(0.05)


@pytest.mark.processes
def test_failed_points_are_named_and_tried_again(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "bad.py").write_text(
        "from scheduler_sims.policies.fifo import Fifo\n"
        "class Bad(Fifo):\n    def plan(self, view):\n        raise ValueError('no')\n"
    )
    assert sweep(folder, "--policy", "fifo", "--policy", f"{folder}/bad.py:Bad", *GENERATED, "--workers", "1") == 1
    assert "bad.py:Bad, seed 0: policy Bad: the policy failed at" in capsys.readouterr().err
    summary = json.loads((folder / "out" / "summary.json").read_text())
    assert (len(summary["failed"]), len(summary["lines"])) == (4, 2)
    assert len((folder / "out" / "points.jsonl").read_text().splitlines()) == 1 + 4


@pytest.mark.processes
def test_a_killed_process_is_one_line_and_what_is_done_is_kept(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "killed.py").write_text(
        "import os\nfrom scheduler_sims.policies.fifo import Fifo\n"
        "class Killed(Fifo):\n    def plan(self, view):\n        os._exit(9)\n"
    )
    assert (
        sweep(folder, "--policy", "fifo", "--policy", f"{folder}/killed.py:Killed", *GENERATED, "--workers", "1") == 2
    )
    assert "emugpu: a process of the sweep was killed, perhaps for its memory" in capsys.readouterr().err
    assert len((folder / "out" / "points.jsonl").read_text().splitlines()) == 1 + 2  # those of fifo before it


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--policy", "fifoo"], "--policy: unknown policy 'fifoo'"),
        (["--policy", "sjf", "--estimates", "none"], "policy sjf needs estimates"),
        (["--policy", "fifo", "--estimates", "guess"], "--estimates: 'guess' is none of"),
        (["--policy", "fifo", "--load", "0"], "--load: must be above 0"),
        (["--policy", "fifo", "--load", "1", "1"], "--load: names a value twice"),
        (["--policy", "fifo", "--seeds", "0"], "--seeds: must be at least 1, not 0"),
        (["--policy", "fifo", "--workers", "0"], "--workers: must be at least 1, not 0"),
        (["--policy", "fifo", "--kind", "poisson/none"], "--kind: unknown mix 'none'"),
        (["--policy", "fifo", "--jobs", "9", "--warm-up", "9"], "--warm-up: and --cool-down leave none of 9 jobs"),
        (["--policy", "fifo", "--gpus-per-node", "8", "--kind", "poisson/uniform"], "8 GPUs"),
    ],
)
def test_errors_before_anything_runs(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], problem: str
) -> None:
    assert sweep(folder, *arguments) == 2
    err = capsys.readouterr().err
    assert problem in err and err.count("\n") == 1
    assert not (folder / "out" / "points.jsonl").exists()


def test_a_trace_with_a_job_that_doesnt_fit(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "w.csv").write_text("job_id,num_gpus,submit_s,gpu_duration_s\na,1,0,5\nb,5,3,5\n")
    assert sweep(folder, str(folder / "w.csv"), "--policy", "fifo", "--jobs", "1") == 2  # whichever job seed 0 chooses
    err = capsys.readouterr().err
    assert "w.csv:3: job 'b' is larger than the cluster" in err and "w.csv --fitting leaves such jobs out" in err


def test_errors_with_a_trace(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "w.csv").write_text("job_id,submit_s,gpu_duration_s\na,0,5\nb,3,5\n")
    for arguments, problem in (
        ([], "--seeds: all seeds would give the same runs of this trace"),
        (["--kind", "poisson/philly"], "--kind: says what is generated"),
        (["--jobs", "7"], "--jobs: must be 1 to 2"),
        (["--sample", "2"], "--sample: must be above 0 and at most 1"),
    ):
        assert sweep(folder, str(folder / "w.csv"), "--policy", "fifo", *arguments) == 2
        assert problem in capsys.readouterr().err
