from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from emulator_runtime.prediction.reading import read_manifest, read_processes, read_trace
from emulator_runtime.prediction.records import Launch

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler"),
]

CALLS = Path(__file__).parents[1] / "emulator_runtime" / "cuda"
PROGRAM = """
import sys
sys.path.insert(0, {calls!r})
from emulator_runtime.cuda.build import built
import os
os.environ["CORE"] = str(built() / "libemugpu_core.so")
from core_calls import *
core = Core()
stream = core.stream()
core.launch(stream, 100)
core.synchronize(stream)
print("done", flush=True)
"""


@pytest.fixture
def program(tmp_path: Path) -> Callable[[str], Path]:
    """A program that launches a kernel a hundred times, prints "done", and goes on with these lines."""

    def write(more: str = "") -> Path:
        path = tmp_path / "program.py"
        path.write_text(PROGRAM.format(calls=str(CALLS)) + more)
        return path

    return write


def command(*words: str | Path) -> list[str]:
    return [sys.executable, "-m", "emugpu", "trace", *map(str, words)]


def emugpu(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*words), capture_output=True, text=True, check=False)


@pytest.fixture
def started(tmp_path: Path, program: Callable[[str], Path]) -> Iterator[subprocess.Popen[str]]:
    """`emugpu trace` of a program that goes on for ever, in a process group of its own, as a terminal would have it."""
    path = program("while True:\n    core.launch(stream)\n    time.sleep(0.01)\n")
    words = command("--out", tmp_path / "out", "--", sys.executable, path)
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0)
    assert process.stdout is not None
    assert process.stdout.readline() == "done\n"
    yield process
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def launches(folder: Path) -> int:
    return sum(isinstance(record, Launch) for record in read_trace(folder).ranks[0].records)


def test_a_program_is_recorded_and_summed_up(tmp_path: Path, program: Callable[..., Path]) -> None:
    done = emugpu("--gpu-type", "H100", "--gpus", "2", "--out", tmp_path / "out", "--", sys.executable, program())
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("done\n")
    assert f"recorded in {tmp_path / 'out'}" in done.stdout
    row = next(line.split() for line in done.stdout.splitlines() if line.strip().startswith("0 "))
    assert (row[0], row[3], row[4], row[5]) == ("0", "100", "1", "0")
    manifest = read_manifest(tmp_path / "out")
    assert (manifest.gpus, manifest.exit_status, manifest.command[0]) == (2, 0, sys.executable)
    assert "H100" in manifest.gpu_type
    assert launches(tmp_path / "out") == 100


def test_json_is_all_of_standard_output(tmp_path: Path, program: Callable[..., Path]) -> None:
    done = emugpu("--format", "json", "--out", tmp_path / "out", "--", sys.executable, program())
    assert "done" in done.stderr
    found = json.loads(done.stdout)
    (process,) = found["processes"]
    assert (process["rank"], process["launches"], process["complete"]) == (0, 100, True)
    assert process["peak_memory_bytes"] > 100 << 20


def test_programs_that_are_recorded_have_an_nvidia_smi_which_leaves_no_records(
    tmp_path: Path, program: Callable[..., Path]
) -> None:
    script = f"nvidia-smi -L && {sys.executable} {program()}"
    done = emugpu("--gpus", "2", "--gpu-type", "T4", "--out", tmp_path / "out", "--", "sh", "-c", script)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("GPU 0: Tesla T4 (UUID: GPU-")
    assert len(read_trace(tmp_path / "out").ranks) == 1


def test_nvidia_smi_of_a_job_shows_a_ranks_node(tmp_path: Path, program: Callable[..., Path]) -> None:
    script = f"nvidia-smi -L && {sys.executable} {program()}"
    options = ("--world-size", "2", "--gpus-per-node", "2", "--gpu-type", "T4", "--out", tmp_path / "out")
    done = emugpu(*options, "--", "sh", "-c", script)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Tesla T4 (UUID: GPU-") == 2


def test_several_processes_are_ranks(tmp_path: Path, program: Callable[..., Path]) -> None:
    script = f"for rank in 1 0; do RANK=$rank {sys.executable} {program()} & done; wait"
    done = emugpu("--gpus", "2", "--out", tmp_path / "out", "--", "sh", "-c", script)
    assert done.returncode == 0, done.stderr
    assert [rank.rank for rank in read_trace(tmp_path / "out").ranks] == [0, 1]


def test_a_program_that_fails_leaves_its_records_and_status(tmp_path: Path, program: Callable[..., Path]) -> None:
    done = emugpu("--out", tmp_path / "out", "--", sys.executable, program("sys.exit(7)"))
    assert done.returncode == 7
    assert launches(tmp_path / "out") == 100
    assert read_manifest(tmp_path / "out").exit_status == 7


def test_a_program_that_is_killed_leaves_its_records(tmp_path: Path, program: Callable[..., Path]) -> None:
    done = emugpu("--out", tmp_path / "out", "--", sys.executable, program("os.kill(os.getpid(), 9)"))
    assert done.returncode == 128 + 9
    assert "*" in done.stdout
    assert launches(tmp_path / "out") == 100


def test_ctrl_c_ends_the_program_and_keeps_the_records(started: subprocess.Popen[str], tmp_path: Path) -> None:
    os.killpg(started.pid, signal.SIGINT)
    output, errors = started.communicate(timeout=60)
    assert started.returncode in (1, 130), errors
    assert "KeyboardInterrupt" in errors
    assert f"recorded in {tmp_path / 'out'}" in output
    assert launches(tmp_path / "out") >= 100


def test_sigterm_is_passed_on(started: subprocess.Popen[str], tmp_path: Path) -> None:
    started.terminate()
    started.communicate(timeout=60)
    assert started.returncode == 128 + 15
    assert launches(tmp_path / "out") >= 100
    assert not read_processes(tmp_path / "out")[0].complete


def test_a_second_recording_takes_the_place_of_the_first(tmp_path: Path, program: Callable[..., Path]) -> None:
    for _ in range(2):
        assert emugpu("--out", tmp_path / "out", "--", sys.executable, program()).returncode == 0
    assert len(read_processes(tmp_path / "out")) == 1


def test_a_folder_with_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("")
    done = emugpu("--out", tmp_path, "--", "true")
    assert done.returncode == 2
    assert "has files that are not of a trace; name another folder" in done.stderr


def test_a_program_without_gpus_leaves_nothing_to_predict(tmp_path: Path) -> None:
    done = emugpu("--out", tmp_path / "out", "--", "true")
    assert done.returncode == 2
    assert "the program used none of its GPUs" in done.stderr
    assert emugpu("--out", tmp_path / "out", "--", "false").returncode == 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "needs a program"),
        (["--", "nosuchprogram"], "there is no program nosuchprogram"),
        (["--gpus", "0", "--", "ls"], "--gpus: must be from 1 to 64"),
        (["--gpu-type", "X99", "--", "ls"], "--gpu-type: unknown GPU type 'X99'"),
    ],
)
def test_wrong_options_are_one_line(words: list[str], message: str) -> None:
    done = emugpu(*words)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_beginning_and_the_end_of_the_process_are_in_the_trace(
    program: Callable[[str], Path], tmp_path: Path
) -> None:
    began = time.monotonic()
    done = emugpu("--out", tmp_path / "out", "--", sys.executable, program("time.sleep(0.2)\n"))
    whole_ns = (time.monotonic() - began) * 1e9
    assert done.returncode == 0, done.stderr
    (rank,) = read_trace(tmp_path / "out").ranks
    assert 10_000_000 < rank.before_ns < whole_ns, "a Python that imports emugpu"
    assert 190_000_000 < rank.after_ns < whole_ns - rank.before_ns
