"""Trains a transformer whose parameters are sharded; each rank prints its share of them, and saves a distributed checkpoint."""

import os

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoints
from torch import nn
from torch.distributed.checkpoint.state_dict import get_model_state_dict
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

dist.init_process_group("cpu:gloo,cuda:nccl")  # objects, of which checkpoints consist, are gathered on the CPU
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
model = nn.TransformerEncoder(nn.TransformerEncoderLayer(256, 8, 1024, batch_first=True), 4).cuda()
total = sum(parameter.numel() for parameter in model.parameters())
precision = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
for layer in model.layers:
    fully_shard(layer, mp_policy=precision)
fully_shard(model, mp_policy=precision)
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(3):
    model(torch.randn(4, 64, 256, device="cuda")).pow(2).mean().backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
share = sum(parameter.to_local().numel() for parameter in model.parameters()) / total
checkpoints.save(get_model_state_dict(model), checkpoint_id="checkpoint")
print(f"rank {dist.get_rank()} has {share:.2f}")
dist.destroy_process_group()
