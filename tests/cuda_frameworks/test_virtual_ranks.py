"""Jobs with virtual ranks beside the same jobs with all of their ranks: `emugpu trace` of both, then their predictions."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from emulator_runtime.prediction.prediction import BUBBLE, Prediction, Predictor
from emulator_runtime.prediction.reading import read_manifest, read_trace
from tests.support.predicted_programs import FOLDER, Figures, Program, predicted
from tests.support.torch_releases import NEWEST, TorchRelease

pytestmark = [pytest.mark.frameworks, pytest.mark.processes, pytest.mark.alone, NEWEST, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
GPU = "K80"
"""So slow that the host's own time, which differs from run to run, is hidden behind the GPU."""


def trace(folder: Path, *words: str | Path) -> dict[str, Any]:
    """What `emugpu trace` says of a program."""
    command = [sys.executable, "-m", "emugpu", "trace", "--format", "json", "--gpu-type", GPU, "--out", folder, *words]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return dict(json.loads(done.stdout))


def prediction(folder: Path) -> Prediction:
    return Predictor(read_trace(folder)).predict(GPU)


def with_all_ranks(program: str, release: TorchRelease, folder: Path) -> Figures:
    """What the same program is predicted with four ranks that are all recorded."""
    folder.mkdir()
    return predicted(Program(program, 4, GPU), release.python, folder)


def same(virtual: Prediction, real: Figures) -> None:
    """Within the 2% by which steps differ from run to run, with the host's own time; memory doesn't."""
    assert virtual.step_s == pytest.approx(real.step_s, rel=0.02)
    assert virtual.memory_bytes == pytest.approx(real.memory_bytes, rel=0.005)


def test_one_rank_stands_for_all_of_data_parallel_training(release: TorchRelease, tmp_path: Path) -> None:
    done = trace(
        tmp_path / "v",
        "--world-size",
        "4",
        "--gpus-per-node",
        "4",
        "--layout",
        "dp=4",
        "--",
        release.python,
        FOLDER / "ddp.py",
    )
    assert done["virtual"]["stands_for"] == {"0": "0-3"}
    assert len(done["processes"]) == 1
    found = prediction(tmp_path / "v")
    assert found.world_size == 4
    same(found, with_all_ranks("ddp", release, tmp_path / "r"))


def test_a_pipeline_of_four_stages_is_four_traces_of_eight_ranks(release: TorchRelease, tmp_path: Path) -> None:
    """Stages tell each other their shapes by objects, forth and back, so all four run at once."""
    layout = ("--world-size", "8", "--gpus-per-node", "8", "--layout", "dp=2,pp=4", "--at-once", "4")
    program = FOLDER / "pipeline.py"
    text = program.read_text().replace("stage = PipelineStage(", PIPELINES + "stage = PipelineStage(")
    text = (
        text.replace("rank, ranks, device)", "rank // 2, 4, device, group=pipeline)")
        .replace("if rank == 0:", "if rank < 2:")
        .replace("elif rank == ranks - 1:", "elif rank >= 6:")
        .replace("import measured", IMPORT + "import measured")
    )
    (tmp_path / "pipelines.py").write_text(text)
    done = trace(tmp_path / "v", *layout, "--", release.python, tmp_path / "pipelines.py")
    assert done["virtual"]["stands_for"] == {"0": "0-1", "2": "2-3", "4": "4-5", "6": "6-7"}
    found, real = prediction(tmp_path / "v"), with_all_ranks("pipeline", release, tmp_path / "r")
    assert found.world_size == 8
    same(found, real)
    assert found.seconds[BUBBLE] > 0


IMPORT = f"import sys\nsys.path.insert(0, {str(FOLDER)!r})\n"
PIPELINES = """
groups = [dist.new_group(list(range(replica, 8, 2))) for replica in range(2)]
pipeline = groups[rank % 2]
"""


def test_without_a_layout_repeaters_are_found(release: TorchRelease, tmp_path: Path) -> None:
    """Ranks 0 and 2 train a network, 1 and 3 another one: two traces, each for two."""
    program = tmp_path / "program.py"
    program.write_text(TWO_KINDS)
    done = trace(tmp_path / "v", "--world-size", "4", "--gpus-per-node", "4", "--", release.python, program)
    assert done["virtual"]["stands_for"] == {"0": "0, 2", "1": "1, 3"}
    assert read_manifest(tmp_path / "v").virtual is not None
    assert prediction(tmp_path / "v").world_size == 4


TWO_KINDS = """
import os, torch, torch.distributed as dist
dist.init_process_group("cpu:gloo,cuda:nccl")
rank = dist.get_rank()
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
pairs = [dist.new_group([0, 2]), dist.new_group([1, 3])]
dist.all_reduce(torch.ones(1))
names = [f"run of rank {rank}"]
dist.broadcast_object_list(names, src=0)
assert names == ["run of rank 0"], names
layer = torch.nn.Linear(512, 512 * (1 + rank % 2), device=device)
batch = torch.randn(64, 512, device=device)
for _ in range(6):
    layer(batch).sum().backward()
    dist.all_reduce(layer.weight.grad, group=pairs[rank % 2])
    dist.all_reduce(torch.ones(8, device=device))
dist.barrier()
torch.cuda.synchronize()
dist.destroy_process_group()
"""


def test_objects_of_a_rank_that_is_not_there_are_an_error_that_says_so(release: TorchRelease, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "import torch, torch.distributed as dist\n"
        "dist.init_process_group('nccl')\n"
        "torch.ones(1, device='cuda')\n"
        "if dist.get_rank() == 0:\n    dist.recv_object_list([None], src=1)\n"
    )
    command = [
        sys.executable,
        "-m",
        "emugpu",
        "trace",
        "--world-size",
        "2",
        "--layout",
        "dp=2",
        "--out",
        tmp_path / "v",
    ]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    words = [*map(str, command), "--", str(release.python), str(program)]
    done = subprocess.run(words, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 1
    assert "rank 0 needs objects of rank 1, which isn't recorded" in done.stderr
