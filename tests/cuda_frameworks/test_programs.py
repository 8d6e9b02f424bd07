"""Unmodified training programs on emulated GPUs, with the releases of PyTorch in `tests/support/torch_releases.py`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.cuda_frameworks.conftest import HERE, RunProgram

pytestmark = [pytest.mark.frameworks, pytest.mark.processes, pytest.mark.timeout(400)]

PROGRAMS = HERE / "programs"
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")


def test_resnet50(run_program: RunProgram) -> None:
    printed = run_program(PROGRAMS / "resnet50.py").stdout
    assert len(re.findall(r"step \d loss -?\d+\.\d+", printed)) == 4
    assert 3000 < int(printed.split()[-1]) < 8000


def test_gpt2_with_the_trainer_of_hugging_face(run_program: RunProgram, tmp_path: Path) -> None:
    printed = run_program(PROGRAMS / "gpt2.py", HF_HUB_OFFLINE="1", timeout_s=380).stdout
    assert "steps 8 " in printed
    assert "resumed 10" in printed
    for step in (4, 8):
        assert (tmp_path / "out" / f"checkpoint-{step}" / "model.safetensors").stat().st_size > 100 << 20


def test_lightning(run_program: RunProgram, tmp_path: Path) -> None:
    assert "steps 16 on cuda:0" in run_program(PROGRAMS / "lightning_fit.py").stdout
    assert list((tmp_path / "out").rglob("*.ckpt"))


def test_two_ranks_of_distributed_data_parallel(run_program: RunProgram, tmp_path: Path) -> None:
    printed = run_program(*TORCHRUN, PROGRAMS / "ddp.py", options=("--gpus", "2")).stdout
    for rank in range(2):
        assert f"rank {rank} of 2: together 2.0" in printed
    assert (tmp_path / "model.pt").stat().st_size > 40 << 20


def test_two_ranks_of_fully_sharded_data_parallel(run_program: RunProgram, tmp_path: Path) -> None:
    printed = run_program(*TORCHRUN, PROGRAMS / "fsdp.py", options=("--gpus", "2")).stdout
    for rank in range(2):
        assert f"rank {rank} has 0.50" in printed
    assert {path.name for path in (tmp_path / "checkpoint").iterdir()} >= {".metadata", "__0_0.distcp", "__1_0.distcp"}


def test_cuda_graphs(run_program: RunProgram) -> None:
    assert "replayed 20" in run_program(PROGRAMS / "graphs.py").stdout


def test_torch_compile(run_program: RunProgram) -> None:
    printed = run_program(PROGRAMS / "compiled.py", timeout_s=380).stdout
    assert re.search(r"graphs [1-9]\d* breaks 0", printed), printed


def test_data_loader_with_workers_and_pinned_memory(run_program: RunProgram) -> None:
    assert run_program(PROGRAMS / "data_loader.py").stdout.count("pictures 48") == 2


def test_a_checkpoint_loads_without_emulated_gpus(run_program: RunProgram) -> None:
    assert "saved" in run_program(PROGRAMS / "checkpoint.py").stdout
    assert "loaded 9 tensors" in run_program(PROGRAMS / "checkpoint.py", "load", emulated=False).stdout


def test_out_of_memory_is_an_error_of_pytorch(run_program: RunProgram) -> None:
    printed = run_program(PROGRAMS / "out_of_memory.py", options=("--memory", "16GiB")).stdout
    assert re.search(r"CUDA out of memory. Tried to allocate [\d.]+ [MG]iB", printed), printed
    assert "GPU 0 has a total capacity of 16.00 GiB" in printed
    assert "largest 128" in printed
    assert "goes on" in printed


@pytest.mark.alone
def test_loading_overlaps_with_the_gpu_unless_the_program_waits(run_program: RunProgram) -> None:
    """Prints the times: on a quiet machine 100 to 103 ms, and 157 to 163 ms where the program waits."""
    means = {}
    for words in ((), ("item",)):
        printed = run_program(PROGRAMS / "overlap.py", *words, options=("--time", "1ms")).stdout
        means[words] = float(printed.split()[-1])
        print(printed)
    assert means[()] >= 99, "a step takes as long as the GPU needs"
    assert means["item",] >= 159, "loading and the step follow each other"
    assert means[()] < means["item",] - 30
