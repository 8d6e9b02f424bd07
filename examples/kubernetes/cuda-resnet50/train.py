"""ResNet-50 on JPEG files with mixed precision and checkpoints; with DistributedDataParallel under torchrun."""

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

RANK, RANKS = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
DEVICE = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--images", type=int, default=512)
    parser.add_argument("--data", type=Path, default=Path("/data"))
    parser.add_argument("--checkpoint-every", type=int, default=20)
    parser.add_argument("--amp", action=argparse.BooleanOptionalAction, default=True, help="mixed precision")
    return parser.parse_args()


def write_images(folder, count):
    """Random JPEG files of two classes, unless they are there."""
    random = numpy.random.default_rng(0)
    for number in range(count):
        path = folder / str(number % 2) / f"{number}.jpg"
        pixels = random.integers(0, 256, (8, 8, 3), dtype=numpy.uint8)
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            unfinished = path.with_suffix(f".{RANK}")
            Image.fromarray(pixels).resize((256, 256)).save(unfinished, "jpeg")
            unfinished.replace(path)


def batches(args):
    """Batches of pixels and labels without end."""
    transforms = torchvision.transforms
    steps = (transforms.RandomCrop(224), transforms.RandomHorizontalFlip(), transforms.PILToTensor())
    images = torchvision.datasets.ImageFolder(str(args.data / "images"), transforms.Compose(steps))
    sampler = DistributedSampler(images) if RANKS > 1 else None
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
    while True:
        yield from loader


def main():
    args = arguments()
    torch.cuda.set_device(DEVICE)
    if RANKS > 1:
        torch.distributed.init_process_group("nccl")
    write_images(args.data / "images", args.images)
    model = torchvision.models.resnet50(num_classes=1000).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scaler = torch.amp.GradScaler("cuda", enabled=args.amp)
    kept = {"model": model, "optimizer": optimizer, "scaler": scaler}
    checkpoint, first = args.data / "checkpoint.pt", 0
    if checkpoint.exists():
        state = torch.load(checkpoint, map_location=DEVICE, weights_only=True)
        for name, each in kept.items():
            each.load_state_dict(state[name])
        first = state["step"]
    print(f"rank {RANK}: {torch.cuda.get_device_name(DEVICE)}, from step {first}", flush=True)

    parallel = DistributedDataParallel(model, device_ids=[DEVICE.index]) if RANKS > 1 else model
    criterion = torch.nn.CrossEntropyLoss()
    times, last = [], time.monotonic()
    for step, (batch, classes) in zip(range(first + 1, args.steps + 1), batches(args), strict=False):
        pixels = batch.to(DEVICE, non_blocking=True).float().div_(255)
        labels = classes.to(DEVICE, non_blocking=True)
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16, enabled=args.amp):
            loss = criterion(parallel(pixels), labels)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        now = time.monotonic()
        times.append(now - last)
        last = now
        if step % 10 == 0:
            step_ms = 1000 * statistics.mean(times[-10:])
            print(f"rank {RANK}: step {step}: {step_ms:.1f} ms, loss {loss.item():.3f}", flush=True)
        if RANK == 0 and step % args.checkpoint_every == 0:
            states = {name: each.state_dict() for name, each in kept.items()}
            torch.save(states | {"step": step}, checkpoint.with_suffix(".new"))
            checkpoint.with_suffix(".new").replace(checkpoint)
    torch.cuda.synchronize()
    step_ms, peak_mib = 1000 * statistics.median(times), torch.cuda.max_memory_allocated() / 2**20
    print(f"rank {RANK}: finished {args.steps} steps, {step_ms:.1f} ms each, {peak_mib:.0f} MiB", flush=True)
    if RANKS > 1:
        torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
