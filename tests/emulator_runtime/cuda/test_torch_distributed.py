"""Unmodified PyTorch on two emulated GPUs: DDP, FSDP of both kinds, DataParallel, objects, NVML. Needs an installed PyTorch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.torch_releases import RELEASES, installed

pytestmark = [pytest.mark.frameworks, pytest.mark.processes]

_ROOT = Path(__file__).parents[3]
_RUN_S = 170

_TRAINING = """
import functools, os, time, torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy
from torch.nn.parallel import DistributedDataParallel
rank = int(os.environ["RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
objects = [None, None]
dist.all_gather_object(objects, {"rank": rank})
assert objects == [{"rank": 0}, {"rank": 1}], objects
one = [{"a": 1} if rank == 0 else None]
dist.broadcast_object_list(one)
assert one == [{"a": 1}], one
total = torch.tensor([rank + 1.0], device="cuda")
dist.all_reduce(total)
assert total.item() == 3.0
moved = torch.tensor([7, 8, 9]).cuda() if rank == 0 else torch.zeros(3, dtype=torch.int64).cuda()
dist.send(moved, 1) if rank == 0 else dist.recv(moved, 0)
assert moved.tolist() == [7, 8, 9]
batch = torch.randn(8, 32, 128, device="cuda")
def layers():
    return nn.Sequential(*[nn.TransformerEncoderLayer(128, 4, 256, batch_first=True) for _ in range(2)]).cuda()
def sharded(model):
    for layer in model:
        fully_shard(layer)
    return fully_shard(model)
policy = functools.partial(size_based_auto_wrap_policy, min_num_params=10_000)
wrappers = (DistributedDataParallel, lambda m: FullyShardedDataParallel(m, auto_wrap_policy=policy, device_id=rank), sharded)
for wrap in wrappers:
    model = wrap(layers())
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(3):
        model(batch).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.cuda.synchronize()
    began_s = time.monotonic()
    time.sleep(0.5 * rank)
    model(batch).sum().backward()
    torch.cuda.synchronize()
    assert time.monotonic() - began_s >= 0.45, "the straggler delays both"
    dist.barrier()
dist.destroy_process_group()
print(f"done {rank}\\n", end="", flush=True)  # in one piece: two processes write
"""

_DATA_PARALLEL = """
import torch
from torch import nn
from torch.cuda import nccl
model = nn.DataParallel(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8)).cuda())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(3):
    model(torch.randn(16, 64, device="cuda")).sum().backward()
    optimizer.step()
values = [torch.tensor([float(i + 1)], device=f"cuda:{i}") for i in range(2)]
nccl.all_reduce(values)
torch.cuda.synchronize()
assert [value.item() for value in values] == [3.0, 3.0]
print("done", torch.cuda.device_count(), flush=True)
"""


def _run(command: list[str], directory: Path) -> str:
    environment = {
        **os.environ,
        "PYTHONPATH": str(_ROOT),
        "EMUGPU_CUDA_STATISTICS": str(directory),
        "NCCL_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
    }
    done = subprocess.run(
        [sys.executable, "-m", "emugpu", "run", "--gpus", "2", "--", *command],
        env=environment,
        capture_output=True,
        text=True,
        timeout=_RUN_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


@pytest.mark.parametrize("release", RELEASES)
def test_ddp_and_fsdp_train_on_two_gpus(release: str, tmp_path: Path) -> None:
    program = tmp_path / "train.py"
    program.write_text(_TRAINING, encoding="utf-8")
    command = [
        str(installed(release).python),
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        str(program),
    ]
    assert sorted(line for line in _run(command, tmp_path).splitlines() if line.startswith("done")) == [
        "done 0",
        "done 1",
    ]


@pytest.mark.parametrize("release", RELEASES)
def test_data_parallel_drives_two_gpus_from_one_process(release: str, tmp_path: Path) -> None:
    assert "done 2" in _run([str(installed(release).python), "-c", _DATA_PARALLEL], tmp_path)
