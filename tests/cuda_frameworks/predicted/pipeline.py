"""A transformer in as many stages as there are ranks, each with three layers of width 1,024; one forward, one backward (1F1B)."""

import os

import measured
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

MICRO_BATCHES = 8

timed = measured.Steps()
dist.init_process_group("nccl")
rank, ranks = dist.get_rank(), dist.get_world_size()
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
layers = [nn.TransformerEncoderLayer(1024, 16, 4096, batch_first=True) for _ in range(3)]
stage = PipelineStage(nn.Sequential(*layers).to(device), rank, ranks, device)
schedule = Schedule1F1B(stage, MICRO_BATCHES, loss_fn=nn.functional.mse_loss)
optimizer = torch.optim.AdamW(stage.submod.parameters())
batch = torch.randn(MICRO_BATCHES * 4, 512, 1024, device=device)
for _ in range(measured.steps()):
    if rank == 0:
        schedule.step(batch)
    elif rank == ranks - 1:
        schedule.step(target=batch)
    else:
        schedule.step()
    optimizer.step()
    optimizer.zero_grad()
    timed.ended()
timed.report()
dist.destroy_process_group()
