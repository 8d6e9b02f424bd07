"""ResNet-50 on images."""

from itertools import repeat

import torch
import torchvision
import training

given = training.options()
model = torchvision.models.resnet50().cuda()
batch = torch.randn(given.batch, 3, 224, 224).pin_memory(), torch.randint(0, 1000, (given.batch,)).pin_memory()
training.train(
    given.steps,
    repeat(batch),
    lambda images, labels: torch.nn.functional.cross_entropy(model(images), labels),
    torch.optim.SGD(model.parameters(), 0.1, momentum=0.9),
)
