"""A transformer of 12 layers of width 1,024, whose parameters are sharded."""

import os

import measured
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

timed = measured.Steps()
dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
model = nn.TransformerEncoder(nn.TransformerEncoderLayer(1024, 16, 4096, batch_first=True), 12).cuda()
precision = MixedPrecisionPolicy(param_dtype=torch.float16, reduce_dtype=torch.float32)
for layer in model.layers:
    fully_shard(layer, mp_policy=precision)
fully_shard(model, mp_policy=precision)
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(measured.steps()):
    model(torch.randn(16, 512, 1024, device="cuda")).pow(2).mean().backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    timed.ended()
timed.report()
dist.destroy_process_group()
