"""Recommendation: embeddings of 8 features, and a wide network that ranks."""

from itertools import repeat

import torch
import training
from torch import nn

FEATURES, VALUES, WIDTH = 8, 20_000, 4096

given = training.options()
embedding = nn.EmbeddingBag(FEATURES * VALUES, WIDTH // FEATURES, mode="mean")
model = nn.Sequential(
    embedding,
    nn.Linear(WIDTH // FEATURES, WIDTH),
    nn.ReLU(),
    *(layer for _ in range(3) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU())),
    nn.Linear(WIDTH, 1),
).cuda()
batch = (
    torch.randint(0, FEATURES * VALUES, (given.batch, FEATURES)).pin_memory(),
    torch.rand(given.batch, 1).pin_memory(),
)
training.train(
    given.steps,
    repeat(batch),
    lambda features, clicks: nn.functional.binary_cross_entropy_with_logits(model(features), clicks),
    torch.optim.SGD(model.parameters(), 0.01),
)
