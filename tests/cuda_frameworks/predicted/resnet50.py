"""ResNet-50 on one GPU, in mixed precision."""

import measured
import torch
import torchvision

timed = measured.Steps()
model = torchvision.models.resnet50().cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
scaler = torch.amp.GradScaler()
images, labels = torch.randn(64, 3, 224, 224).pin_memory(), torch.randint(0, 1000, (64,)).pin_memory()
for _ in range(measured.steps()):
    x, y = images.cuda(non_blocking=True), labels.cuda(non_blocking=True)
    with torch.autocast("cuda", dtype=torch.float16):
        loss = torch.nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    loss.item()
    timed.ended()
timed.report()
