"""A kernel in Triton, which reads its source from this file."""

import torch
import triton
from triton import language as tl


@triton.jit
def _add(left, right, result, count, BLOCK: tl.constexpr):  # noqa: N803
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < count
    tl.store(result + places, tl.load(left + places, inside) + tl.load(right + places, inside), inside)


def add(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    result = torch.empty_like(left)
    _add[(triton.cdiv(len(left), 256),)](left, right, result, len(left), BLOCK=256)
    return result
