"""Trains ResNet-50 for some steps in mixed precision; prints the loss and the peak of memory in MiB."""

import argparse

import torch
import torchvision

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=64)
parser.add_argument("--steps", type=int, default=4)
args = parser.parse_args()

device = torch.device("cuda")
model = torchvision.models.resnet50().to(device, memory_format=torch.channels_last)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)
criterion = torch.nn.CrossEntropyLoss(label_smoothing=0.1)
scaler = torch.amp.GradScaler()
images = torch.randn(args.batch, 3, 224, 224).pin_memory()
labels = torch.randint(0, 1000, (args.batch,)).pin_memory()

for step in range(args.steps):
    x = images.to(device, non_blocking=True, memory_format=torch.channels_last)
    y = labels.to(device, non_blocking=True)
    with torch.autocast("cuda", dtype=torch.float16):
        loss = criterion(model(x), y)
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    schedule.step()
    print(f"step {step} loss {loss.item():.3f}")
print("peak", torch.cuda.max_memory_allocated() >> 20)
