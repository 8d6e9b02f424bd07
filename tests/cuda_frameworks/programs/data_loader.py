"""Loads JPEG files in worker processes, through pinned memory, onto a GPU; each picture arrives as it was read."""

import io
from pathlib import Path

import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms.v2 import functional


class Pictures(Dataset):
    def __init__(self) -> None:
        self.files = []
        for shade in range(48):
            content = io.BytesIO()
            Image.new("RGB", (64, 64), (shade, shade, shade)).save(content, "JPEG")
            self.files.append(Path(f"{shade}.jpeg"))
            self.files[-1].write_bytes(content.getvalue())

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return functional.pil_to_tensor(Image.open(self.files[index]).resize((32, 32))), index


loader = DataLoader(
    Pictures(), 8, shuffle=True, num_workers=2, pin_memory=True, persistent_workers=True, prefetch_factor=2
)
for _ in range(2):
    seen = 0
    for pictures, shades in loader:
        assert pictures.is_pinned()
        moved = pictures.to("cuda", non_blocking=True)
        assert torch.equal(moved.cpu(), pictures) and torch.equal(pictures[:, 0, 0, 0].long(), shades)
        seen += len(moved)
    print("pictures", seen)
