"""What the programs have in common: their options, and the loop."""

import argparse
from collections.abc import Callable, Iterable

import torch
from torch import Tensor


def options() -> argparse.Namespace:
    """--batch and --steps."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch", type=int, default=32, help="samples of a step")
    parser.add_argument("--steps", type=int, default=6)
    return parser.parse_args()


def train(
    steps: int,
    batches: Iterable[tuple[Tensor, Tensor]],
    loss_of: Callable[[Tensor, Tensor], Tensor],
    optimizer: torch.optim.Optimizer,
) -> None:
    """Steps on batches from pinned memory, as a data loader would give them; the loss is read every tenth step."""
    for step, (inputs, targets) in zip(range(steps), batches, strict=False):
        optimizer.zero_grad()
        loss = loss_of(inputs.cuda(non_blocking=True), targets.cuda(non_blocking=True))
        loss.backward()
        optimizer.step()
        if step % 10 == 9:
            loss.item()
    torch.cuda.synchronize()
