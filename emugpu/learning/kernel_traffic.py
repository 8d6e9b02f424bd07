"""Bytes that a program's own kernel reads and writes, by its name as a profiler shows it.

The core does the same with mangled names (cuda/src/core/kernels.c says where the numbers come from); a test compares both. No
profiler gives what it records beyond names: the arguments of a depthwise convolution's gradient.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod

Sizes = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class _Family:
    """`elements`: of a thread, or of a block if `by_block`. `tensors`: where the name doesn't say. `template`: the second number
    of the template is the number of elements."""

    part: str
    elements: float
    tensors: float
    slowness: float = 1.0
    by_block: bool = False
    template: bool = False


_FAMILIES = (
    _Family("vectorized_elementwise_kernel", 8, 2),
    _Family("unrolled_elementwise_kernel", 8, 2),
    _Family("elementwise_kernel<128, ", 4, 2, template=True),
    _Family("multi_tensor_apply_kernel", 40000, 2, by_block=True),
    _Family("conv_depthwise2d_grad_weight_kernel", 1, 2, 4.4),
    _Family("conv_depthwise2d", 1, 2, 4.4),
    _Family("max_pool_backward_nchw", 3.2, 3),
    _Family("max_pool_forward_nchw", 1, 7),
    _Family("CatArrayBatchedCopy", 4, 2),
    _Family("reduce_kernel", 4, 1),
    _Family("", 1, 3),
)
_ARRAY = re.compile(r"(?:array<char\*, |TensorListMetadata<)(\d+)")
_HALF = ("c10::Half", "c10::BFloat16", "__nv_bfloat16")


def kernel_bytes(name: str, grid: Sizes, block: Sizes) -> float:
    """Of a kernel with this demangled name."""
    family = next(each for each in _FAMILIES if each.part in name)
    elements = family.elements
    if family.template and (number := re.match(r"\d+", name.split(family.part, 1)[1])) and int(number[0]) > 0:
        elements = int(number[0])
    element_bytes = 2 if any(half in name for half in _HALF) else 4
    units = prod(grid) if family.by_block else prod(grid) * prod(block)
    return units * elements * element_bytes * _tensors(name, family) * family.slowness


def _tensors(name: str, family: _Family) -> float:
    stated = _ARRAY.search(name)
    if stated and int(stated[1]) > 0:
        return int(stated[1])
    is_binary = family.template and ("BinaryFunctor" in name or "Functor_add" in name)
    return 3 if is_binary else family.tensors
