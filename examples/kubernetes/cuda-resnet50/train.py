"""ResNet-50 on JPEG files, with mixed precision, checkpoints, and DistributedDataParallel under torchrun. Nothing of emugpu is in it."""

import argparse
import os
import statistics
import time
from pathlib import Path

import numpy
import torch
import torchvision
from PIL import Image
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler


def write_images(folder: Path, count: int) -> None:
    """Random JPEG files of two classes, unless they are there."""
    random = numpy.random.default_rng(0)
    for number in range(count):
        path = folder / str(number % 2) / f"{number}.jpg"
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            pixels = random.integers(0, 256, (8, 8, 3), dtype=numpy.uint8)
            unfinished = path.with_suffix(f".{os.getpid()}")
            Image.fromarray(pixels).resize((256, 256)).save(unfinished, "jpeg")
            unfinished.replace(path)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--images", type=int, default=512)
    parser.add_argument("--data", type=Path, default=Path("/data"))
    parser.add_argument("--checkpoint-every", type=int, default=20)
    args = parser.parse_args()

    rank, ranks = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    torch.cuda.set_device(device)
    if ranks > 1:
        torch.distributed.init_process_group("nccl")
    write_images(args.data / "images", args.images)
    transform = torchvision.transforms.Compose(
        [
            torchvision.transforms.RandomCrop(224),
            torchvision.transforms.RandomHorizontalFlip(),
            torchvision.transforms.PILToTensor(),
        ]
    )
    images = torchvision.datasets.ImageFolder(str(args.data / "images"), transform)
    sampler = DistributedSampler(images) if ranks > 1 else None
    loader = DataLoader(
        images,
        args.batch_size,
        shuffle=sampler is None,
        sampler=sampler,
        num_workers=args.workers,
        pin_memory=True,
        drop_last=True,
        persistent_workers=args.workers > 0,
    )
    model = torchvision.models.resnet50(num_classes=1000).to(device)
    if ranks > 1:
        model = DistributedDataParallel(model, device_ids=[device.index])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scaler = torch.amp.GradScaler("cuda")
    criterion = torch.nn.CrossEntropyLoss()

    checkpoint, step = args.data / "checkpoint.pt", 0
    if checkpoint.exists():
        state = torch.load(checkpoint, map_location=device, weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        scaler.load_state_dict(state["scaler"])
        step = state["step"]
    memory_gib = torch.cuda.get_device_properties(device).total_memory / 2**30
    print(f"rank {rank}: {torch.cuda.get_device_name(device)}, {memory_gib:.0f} GiB, from step {step}", flush=True)

    times, last = [], time.monotonic()
    while step < args.steps:
        for batch, labels in loader:
            pixels = batch.to(device, non_blocking=True).float().div_(255)
            labels = labels.to(device, non_blocking=True)
            optimizer.zero_grad()
            with torch.autocast("cuda", dtype=torch.float16):
                loss = criterion(model(pixels), labels)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            step += 1
            now = time.monotonic()
            times.append(now - last)
            last = now
            if step % 10 == 0:
                mean_ms = 1000 * statistics.mean(times[-10:])
                print(f"rank {rank}: step {step}: {mean_ms:.1f} ms, loss {loss.item():.3f}", flush=True)
            if rank == 0 and step % args.checkpoint_every == 0:
                module = model.module if ranks > 1 else model
                state = {"model": module.state_dict(), "optimizer": optimizer.state_dict()}
                unfinished = checkpoint.with_suffix(".new")
                torch.save(state | {"scaler": scaler.state_dict(), "step": step}, unfinished)
                unfinished.replace(checkpoint)
            if step == args.steps:
                break
    torch.cuda.synchronize()
    peak_mib = torch.cuda.max_memory_allocated() / 2**20
    print(
        f"rank {rank}: finished {step} steps, {1000 * statistics.median(times):.1f} ms each, {peak_mib:.0f} MiB",
        flush=True,
    )
    if ranks > 1:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
