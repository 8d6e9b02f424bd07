"""Ten unmodified programs of several frameworks, each recorded with one command and predicted with another."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from emulator_runtime.domain.units import MIB
from tests.cuda_frameworks.conftest import HERE, RunProgram
from tests.support.torch_releases import NEWEST

pytestmark = [pytest.mark.frameworks, pytest.mark.processes, NEWEST, pytest.mark.timeout(400)]

TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node")
ACCELERATE = ("-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2", "--num_machines", "1")
ACCELERATE += ("--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", "0")


@dataclass(frozen=True, slots=True)
class Case:
    """A program of the folder with the words before and behind its name."""

    program: str
    gpus: int = 1
    launcher: tuple[str, ...] = ()
    words: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.program.removesuffix(".py").replace("/", "-")


CASES = (
    Case("programs/resnet50.py", words=("--batch", "16")),
    Case("programs/gpt2.py"),
    Case("programs/lightning_fit.py"),
    Case("programs/compiled.py"),
    Case("programs/graphs.py"),
    Case("programs/overlap.py"),
    Case("programs/ddp.py", 2, (*TORCHRUN, "2")),
    Case("programs/fsdp.py", 2, (*TORCHRUN, "2")),
    Case("programs/accelerate_fit.py", 2, ACCELERATE),
    Case("predicted/pipeline.py", 4, (*TORCHRUN, "4"), ("--steps", "4")),
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_program_is_traced_and_predicted(case: Case, run_program: RunProgram, tmp_path: Path) -> None:
    words = (*case.launcher, HERE / case.program, *case.words)
    run_program(
        *words, by="trace", options=("--gpus", str(case.gpus), "--out", "trace"), timeout_s=380, **_variables(tmp_path)
    )
    printed = _emugpu(
        tmp_path, "predict", "trace", "--gpu", "A100", "--gpu", "H100", "--samples", "8", "--format", "json"
    )
    a100, h100 = json.loads(printed)
    for found in (a100, h100):
        assert found["gpus"] == case.gpus
        assert 0 < found["step_s"] < found["total_s"]
        assert found["samples_per_s"] == pytest.approx(8 / found["step_s"])
        assert found["memory_bytes"] > 300 * MIB
        assert sum(found["step_seconds"].values()) == pytest.approx(
            sum(rank["step_s"] for rank in found["ranks"]) / case.gpus, rel=1e-6
        )
        assert found["out_of_memory_ranks"] == []
    assert (a100["step_seconds"]["communication"] > 0) == (case.gpus > 1)
    if case.gpus == 4:
        assert a100["bubble_part"] > 0.1, "a pipeline waits for its stages"


def _variables(folder: Path) -> dict[str, str]:
    return {"HF_HUB_OFFLINE": "1", "HF_HOME": str(folder), "PYTHONPATH": str(HERE.parents[1])}


def _emugpu(folder: Path, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "emugpu", *words], cwd=folder, capture_output=True, text=True, check=False, timeout=170
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
