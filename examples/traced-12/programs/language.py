"""A language model: 6 layers of a decoder-only transformer with 256 tokens of context."""

from itertools import repeat

import torch
import training
from torch import Tensor, nn

WIDTH, TOKENS, WORDS = 512, 256, 20_000


class LanguageModel(nn.Module):
    """Predicts the next word at each place."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(TOKENS, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 8, 4 * WIDTH, activation="gelu", batch_first=True, norm_first=True)
        self.layers, self.head = nn.TransformerEncoder(layer, 6, enable_nested_tensor=False), nn.Linear(WIDTH, WORDS)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(TOKENS))
        self.register_buffer("order", torch.arange(TOKENS))

    def forward(self, words: Tensor) -> Tensor:
        return self.head(self.layers(self.words(words) + self.places(self.order), mask=self.mask, is_causal=True))


given = training.options()
model = LanguageModel().cuda()
batch = tuple(torch.randint(0, WORDS, (given.batch, TOKENS)).pin_memory() for _ in range(2))
training.train(
    given.steps,
    repeat(batch),
    lambda words, nexts: nn.functional.cross_entropy(model(words).flatten(0, 1), nexts.flatten()),
    torch.optim.AdamW(model.parameters(), 3e-4),
)
