"""Unmodified training programs on emulated GPUs, with the releases of PyTorch in `tests/support/torch_releases.py`."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from emulator_runtime.prediction.reading import read_manifest, read_trace
from emulator_runtime.prediction.records import Await, Collective, HostWaits, Launch, Memory
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


def test_a_trace_has_the_ranks_of_torchrun_with_what_they_do(run_program: RunProgram, tmp_path: Path) -> None:
    run_program(*TORCHRUN, PROGRAMS / "ddp.py", by="trace", options=("--gpus", "2", "--out", "trace"))
    assert read_manifest(tmp_path / "trace").exit_status == 0
    ranks = read_trace(tmp_path / "trace").ranks
    assert [rank.rank for rank in ranks] == [0, 1]
    calls = []
    for rank in ranks:
        kinds = Counter(type(record) for record in rank.records)
        assert kinds[Launch] > 2000
        assert kinds[HostWaits] > 0
        assert kinds[Await] > 0, "gradients are reduced on a stream of their own"
        convolutions = [record for record in rank.records if isinstance(record, Launch) and record.work.kind == 2]
        assert len(convolutions) >= (20 * 3 - 1) * 4  # ResNet-18 forward and backward, four steps
        calls.append([(one.operation, one.number, one.bytes) for one in rank.records if isinstance(one, Collective)])
        assert [device for _, device in rank.communicators[1].members] == [0, 1]
        assert max(record.used_bytes for record in rank.records if isinstance(record, Memory)) > 500 << 20
    assert calls[0] == calls[1]
    assert sum(size for operation, _, size in calls[0] if operation == "all_reduce") > 4 * 11_689_512 * 4


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
