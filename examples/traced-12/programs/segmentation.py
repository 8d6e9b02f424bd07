"""Segmentation of images: a U-Net of four levels."""

from itertools import repeat

import torch
import training
from torch import Tensor, nn

CHANNELS = (64, 128, 256, 512)


def block(inputs: int, outputs: int) -> nn.Module:
    """Two convolutions."""
    layers: list[nn.Module] = []
    for channels in (inputs, outputs):
        layers += [
            nn.Conv2d(channels, outputs, 3, padding=1, bias=False),
            nn.BatchNorm2d(outputs),
            nn.ReLU(inplace=True),
        ]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    """Each level down halves the image; on the way up, it is joined with what the level had."""

    def __init__(self) -> None:
        super().__init__()
        pairs = list(zip((3, *CHANNELS), CHANNELS, strict=False))
        self.down = nn.ModuleList(block(*pair) for pair in pairs)
        self.up = nn.ModuleList(nn.ConvTranspose2d(high, low, 2, 2) for low, high in pairs[1:])
        self.joined = nn.ModuleList(block(2 * low, low) for low, _ in pairs[1:])
        self.head = nn.Conv2d(CHANNELS[0], 2, 1)

    def forward(self, image: Tensor) -> Tensor:
        levels: list[Tensor] = []
        for layer in self.down:
            image = layer(nn.functional.max_pool2d(image, 2) if levels else image)
            levels.append(image)
        for index in reversed(range(len(self.up))):
            image = self.joined[index](torch.cat([levels[index], self.up[index](image)], 1))
        return self.head(image)


given = training.options()
model = UNet().cuda()
batch = torch.randn(given.batch, 3, 192, 192).pin_memory(), torch.randint(0, 2, (given.batch, 192, 192)).pin_memory()
training.train(
    given.steps,
    repeat(batch),
    lambda images, masks: nn.functional.cross_entropy(model(images), masks),
    torch.optim.Adam(model.parameters(), 1e-3),
)
