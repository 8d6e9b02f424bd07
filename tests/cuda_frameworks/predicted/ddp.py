"""ResNet-50 with DistributedDataParallel."""

import os

import measured
import torch
import torch.distributed as dist
import torchvision
from torch.nn.parallel import DistributedDataParallel

timed = measured.Steps()
dist.init_process_group("nccl")
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
model = DistributedDataParallel(torchvision.models.resnet50().cuda())
optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
images, labels = torch.randn(96, 3, 224, 224).pin_memory(), torch.randint(0, 1000, (96,)).pin_memory()
for _ in range(measured.steps()):
    x, y = images.cuda(non_blocking=True), labels.cuda(non_blocking=True)
    loss = torch.nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    timed.ended()
timed.report()
dist.destroy_process_group()
