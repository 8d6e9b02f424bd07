"""Training programs that are predicted and also run on emulated GPUs, where they really wait: both take what the estimator says.

The programs are in the folder `tests/cuda_frameworks/predicted`. GPU types are slow ones, so that the host's speed hardly counts.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from emulator_runtime.prediction.prediction import Conditions, Predictor
from emulator_runtime.prediction.reading import read_trace

FOLDER = Path(__file__).parents[1] / "cuda_frameworks" / "predicted"


@dataclass(frozen=True, slots=True)
class Program:
    """A program of `FOLDER` and its emulated GPUs; torchrun starts it if it has several."""

    name: str
    gpus: int
    gpu_type: str

    def command(self, python: Path, steps: int) -> list[str]:
        launcher = [] if self.gpus == 1 else ["-m", "torch.distributed.run", "--nproc-per-node", str(self.gpus)]
        if launcher:
            launcher += ["--master-port", str(_free_port())]
        return [str(python), *launcher, str(FOLDER / f"{self.name}.py"), "--steps", str(steps)]


PROGRAMS = (
    Program("resnet50", 1, "P100"),
    Program("gpt2", 1, "T4"),
    Program("ddp", 4, "P100"),
    Program("fsdp", 4, "P100"),
    Program("pipeline", 4, "P100"),
)


@dataclass(frozen=True, slots=True)
class Figures:
    """Of the rank that has the longest steps and of the one that has most memory."""

    step_s: float
    memory_bytes: int


def predicted(program: Program, python: Path, folder: Path, steps: int = 6) -> Figures:
    """Traces the program in `folder` and predicts it."""
    _emugpu("trace", ["--out", "trace"], program, python, folder, steps)
    alone = Conditions(shared_links=False)  # emulated GPUs don't share their links
    found = Predictor(read_trace(folder / "trace")).predict(program.gpu_type, alone)
    assert found.step_s is not None
    return Figures(found.step_s, found.memory_bytes)


def observed(program: Program, python: Path, folder: Path, steps: int = 6) -> Figures:
    """Runs the program, which measures itself."""
    lines = _emugpu("run", [], program, python, folder, steps).split("{")  # ranks may share a line
    ranks = [json.loads("{" + line[: line.index("}") + 1]) for line in lines[1:] if line.startswith('"rank"')]
    assert len(ranks) == program.gpus, lines
    return Figures(max(rank["step_s"] for rank in ranks), max(rank["memory_bytes"] for rank in ranks))


def _emugpu(command: str, options: list[str], program: Program, python: Path, folder: Path, steps: int) -> str:
    """What it prints. Raises AssertionError with that if it fails."""
    gpus = ["--gpus", str(program.gpus), "--gpu-type", program.gpu_type]
    words = [sys.executable, "-m", "emugpu", command, *options, *gpus, "--", *program.command(python, steps)]
    done = subprocess.run(words, capture_output=True, text=True, cwd=folder, env=_environment(folder), check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _environment(folder: Path) -> dict[str, str]:
    root = str(Path(__file__).parents[2])
    others = os.environ.get("PYTHONPATH")
    return os.environ | {
        "PYTHONPATH": root if others is None else f"{root}{os.pathsep}{others}",
        "OMP_NUM_THREADS": "1",
        "HF_HOME": str(folder),
    }


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
