"""Trains with DistributedDataParallel; each rank prints its steps, and what the ranks have together."""

import os

import torch
import torch.distributed as dist
import torchvision
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

dist.init_process_group("nccl")
rank, local_rank = dist.get_rank(), int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local_rank)
model = torch.nn.SyncBatchNorm.convert_sync_batchnorm(torchvision.models.resnet18()).cuda()
model = DistributedDataParallel(model, device_ids=[local_rank])
optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
data = TensorDataset(torch.randn(32, 3, 64, 64), torch.randint(0, 1000, (32,)))
sampler = DistributedSampler(data)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for images, labels in DataLoader(data, 8, sampler=sampler, pin_memory=True):
        loss = torch.nn.functional.cross_entropy(model(images.cuda(non_blocking=True)), labels.cuda(non_blocking=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
together = torch.tensor([1.0]).cuda()
dist.all_reduce(together)
if rank == 0:
    torch.save(model.module.state_dict(), "model.pt")
dist.barrier()
print(f"rank {rank} of {dist.get_world_size()}: together {together.item()}")
dist.destroy_process_group()
