"""`emugpu trace --world-size` with programs that launch kernels and have no framework."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from emulator_runtime.prediction.reading import read_manifest, read_trace

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler"),
]

CALLS = Path(__file__).parents[1] / "emulator_runtime" / "cuda"
PROGRAM = """
import os, sys
sys.path.insert(0, {calls!r})
from emulator_runtime.cuda.build import built
os.environ["CORE"] = str(built() / "libemugpu_core.so")
from core_calls import *
rank = int(os.environ["RANK"])
core = Core()
stream = core.stream()
print("rank", rank, flush=True)
"""
Write = Callable[[str], Path]


@pytest.fixture
def program(tmp_path: Path) -> Write:
    """A program that is a rank, and goes on with these lines."""

    def write(more: str) -> Path:
        path = tmp_path / "program.py"
        path.write_text(PROGRAM.format(calls=str(CALLS)) + more)
        return path

    return write


def command(folder: Path, *words: str | Path) -> list[str]:
    return [sys.executable, "-m", "emugpu", "trace", "--out", str(folder), *map(str, words)]


def emugpu(folder: Path, *words: str | Path, status: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(command(folder, *words), capture_output=True, text=True, check=False)
    assert done.returncode == status, done.stdout + done.stderr
    return done


STEPS = """
for step in range(6):
    core.launch(stream, 10)
    core.work(stream, kind=1, name=b'gemm', flops=1e6 * (1 + {kind}))
"""


def test_a_layout_starts_one_rank_of_each_stage_with_what_torchrun_tells(tmp_path: Path, program: Write) -> None:
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR")
    path = program(STEPS.format(kind="0") + f"print(*(os.environ[name] for name in {names}))\n")
    done = emugpu(
        tmp_path / "out",
        "--world-size",
        "8",
        "--gpus-per-node",
        "4",
        "--layout",
        "tp=2,pp=2",
        "--",
        sys.executable,
        path,
    )
    assert "0 8 0 4 0 127.0.0.1" in done.stdout
    assert "4 8 0 4 1 127.0.0.1" in (tmp_path / "out" / "rank-4.log").read_text()
    manifest = read_manifest(tmp_path / "out")
    assert manifest.virtual is not None
    assert manifest.virtual.stands_for == {0: (0, 1, 2, 3), 4: (4, 5, 6, 7)}
    assert "stage 1" in done.stdout
    trace = read_trace(tmp_path / "out")
    assert [(rank.rank, rank.stands_for) for rank in trace.ranks] == [(0, 4), (4, 4)]
    assert trace.world_size == 8


def test_ranks_that_repeat_another_are_found(tmp_path: Path, program: Write) -> None:
    path = program(STEPS.format(kind="rank % 2"))
    done = emugpu(tmp_path / "out", "--world-size", "5", "--format", "json", "--", sys.executable, path)
    assert json.loads(done.stdout)["virtual"]["stands_for"] == {"0": "0, 2, 4", "1": "1, 3"}
    assert [rank.rank for rank in read_trace(tmp_path / "out").ranks] == [0, 1]
    assert len(list((tmp_path / "out").glob("*.records"))) == 2
    assert not (tmp_path / "out" / "rank-3.log").exists()


def test_a_repeater_is_stopped_before_its_end(tmp_path: Path, program: Write) -> None:
    """Rank 1 would go on for ever after its steps."""
    path = program(STEPS.format(kind="0") + "while rank == 1:\n    time.sleep(1)\n")
    emugpu(tmp_path / "out", "--world-size", "2", "--at-once", "1", "--", sys.executable, path)
    manifest = read_manifest(tmp_path / "out")
    assert manifest.virtual is not None
    assert manifest.virtual.stands_for == {0: (0, 1)}


def test_ranks_of_different_nodes_have_gpus_of_their_own(tmp_path: Path, program: Write) -> None:
    """Two stages, each with 30 GiB of its node's first GPU, which has 40, at the same time."""
    path = program(
        f"""
core.allocate(30 << 30)
core.launch(stream)
open({str(tmp_path)!r} + f'/allocated-{{rank}}', 'w').close()
while not os.path.exists({str(tmp_path)!r} + f'/allocated-{{2 - rank}}'):
    time.sleep(0.01)
"""
    )
    job = ("--world-size", "4", "--gpus-per-node", "2", "--layout", "tp=2,pp=2", "--at-once", "2")
    emugpu(tmp_path / "out", *job, "--", sys.executable, path)
    assert [rank.rank for rank in read_trace(tmp_path / "out").ranks] == [0, 2]


def test_a_rank_that_fails_ends_the_job_with_its_status_and_output(tmp_path: Path, program: Write) -> None:
    path = program(
        "core.launch(stream)\nif rank == 2:\n    sys.exit('no such shard')\nif rank > 2:\n    time.sleep(1000)\n"
    )
    done = emugpu(
        tmp_path / "out",
        "--world-size",
        "4",
        "--layout",
        "pp=4",
        "--at-once",
        "2",
        "--",
        sys.executable,
        path,
        status=1,
    )
    assert "no such shard" in done.stderr
    assert "rank 2 failed" in done.stderr
    assert read_manifest(tmp_path / "out").exit_status == 1


def test_a_signal_ends_all_ranks(tmp_path: Path, program: Write) -> None:
    path = program(f"open({str(tmp_path)!r} + f'/started-{{rank}}', 'w').write(str(os.getpid()))\ntime.sleep(1000)\n")
    words = command(
        tmp_path / "out", "--world-size", "2", "--at-once", "2", "--layout", "pp=2", "--", sys.executable, path
    )
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    started = [tmp_path / f"started-{rank}" for rank in range(2)]
    while process.poll() is None and not all(one.exists() and one.read_text() for one in started):
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    process.communicate()
    assert process.returncode == 128 + signal.SIGTERM
    for one in started:
        with pytest.raises(ProcessLookupError):
            os.kill(int(one.read_text()), 0)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--layout", "tp=2"), "needs --world-size"),
        (("--world-size", "8", "--layout", "tp=3"), "are 3 ranks, not 8"),
        (("--world-size", "0"), "must be from 1 to 4096"),
        (("--world-size", "2", "--gpus-per-node", "0"), "must be at least 1"),
        (("--world-size", "2", "--at-once", "0"), "must be at least 1"),
    ],
)
def test_options_that_do_not_fit(words: tuple[str, ...], message: str, tmp_path: Path) -> None:
    assert message in emugpu(tmp_path / "out", *words, "--", sys.executable, status=2).stderr
