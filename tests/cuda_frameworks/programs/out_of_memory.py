"""Doubles the batch until PyTorch runs out of memory; prints its error and the largest batch."""

import torch
import torchvision

model = torchvision.models.resnet50().cuda()
batch = 16
try:
    while True:
        model(torch.randn(batch, 3, 224, 224, device="cuda")).sum().backward()
        batch *= 2
except torch.cuda.OutOfMemoryError as error:
    print(error)
print("largest", batch // 2)
torch.cuda.empty_cache()
model(torch.randn(16, 3, 224, 224, device="cuda")).sum().backward()
torch.cuda.synchronize()
print("goes on")
