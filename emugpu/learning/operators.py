"""Which library call an operator of PyTorch makes, by the shapes of its arguments.

The kernels of cuBLAS and cuDNN aren't in a traced program, where one library call is one piece of work. Here the same piece of
work is made of the operator that a profiler saw, so that the time of its kernels is that of the call. The counts of operations
and bytes are those of the emulated libraries (cuda/src/libraries/mathematics/work_formulas.c); a test compares both.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from emulator_runtime.prediction.records import Work, WorkKind
from emulator_runtime.profiles.cuda_properties import PRECISIONS

Shape = tuple[int, ...]
FORWARD, BACKWARD_DATA, BACKWARD_FILTER = (
    "convolution_forward",
    "convolution_backward_data",
    "convolution_backward_filter",
)
_TYPES = {
    "float": ("fp32", 4),
    "c10::Half": ("fp16", 2),
    "c10::BFloat16": ("bf16", 2),
    "double": ("fp64", 8),
}


@dataclass(frozen=True, slots=True)
class Operator:
    """A call of an operator. `shapes`, `types`: of its arguments, empty for what is no tensor. `values`: arguments as text, empty
    for tensors; all empty if the trace has none."""

    name: str
    shapes: Sequence[Shape]
    types: Sequence[str]
    values: Sequence[str]

    def value(self, index: int) -> object:
        """An argument that is no tensor, such as [1, 1] or True. Raises ValueError if the trace hasn't it."""
        text = self.values[index] if index < len(self.values) else ""
        return json.loads(text.replace("True", "true").replace("False", "false"))

    def numbers(self, index: int, count: int) -> list[int]:
        """An argument with so many numbers; one stands for all. Raises ValueError."""
        value = self.value(index)
        numbers: list[Any] = value if isinstance(value, list) else [value]
        if not all(type(each) is int for each in numbers) or len(numbers) not in (1, count):
            raise ValueError(f"argument {index} of {self.name} isn't {count} numbers")
        return numbers * (count // len(numbers))


@dataclass(frozen=True, slots=True)
class LibraryCall:
    """A piece of work, and what the names of its kernels have where an operator makes several calls ("dgrad")."""

    work: Work
    marks: tuple[str, ...] = ()


class UnknownShapesError(Exception):
    """The operator is known, but the trace hasn't the arguments that tell what it did."""


def library_calls(operator: Operator, kernels: Sequence[str]) -> list[LibraryCall] | None:
    """The calls that it makes; None: it isn't known to make any. `kernels`: names of its kernels, by which TF32 shows.

    Raises UnknownShapesError.
    """
    known = _OPERATORS.get(operator.name)
    if known is None:
        return None
    try:
        return known(operator, kernels)
    except (ValueError, IndexError, KeyError, ZeroDivisionError) as error:
        raise UnknownShapesError(operator.name) from error


def _number_format(operator: Operator, argument: int, kernels: Sequence[str]) -> tuple[int, int]:
    """Number of the precision, and bytes of an element."""
    name, size = _TYPES[operator.types[argument]]
    if name == "fp32" and any("tf32" in kernel.lower() or "s1688" in kernel for kernel in kernels):
        name = "tf32"
    return PRECISIONS.index(name), size


def _product(a: int, b: int) -> Callable[[Operator, Sequence[str]], list[LibraryCall]]:
    """A matrix product of the arguments with these numbers, possibly a batch of them."""

    def calls(operator: Operator, kernels: Sequence[str]) -> list[LibraryCall]:
        *batch, m, k = operator.shapes[a]
        *_, k_again, n = operator.shapes[b]
        if k != k_again:
            raise ValueError("these matrices have no product")
        precision, size = _number_format(operator, a, kernels)
        count = prod(batch)
        amount_bytes = float((m * k + k * n + m * n) * count * size)
        name = "gemm_batched" if batch else "gemm"
        flops = 2.0 * m * n * k * count
        return [LibraryCall(Work(name, WorkKind.PRODUCT, flops, amount_bytes, precision, float(min(m, n)), float(k)))]

    return calls


def _convolution_work(name: str, image: Shape, filter_: Shape, result: Shape, number_format: tuple[int, int]) -> Work:
    """`image`: batch, channels, sizes. `filter_`: channels out, channels of a group, sizes. `result`: as the image."""
    precision, size = number_format
    channels_out, channels_each, *filter_sizes = filter_
    groups = image[1] // channels_each
    positions = result[0] * prod(result[2:])
    filter_elements = prod(filter_)
    elements = prod(image) + filter_elements + positions * channels_out
    return Work(
        name,
        WorkKind.CONVOLUTION,
        flops=2.0 * positions * filter_elements,
        bytes=float(elements * size),
        precision=precision,
        columns=channels_out / groups,
        depth=float(channels_each * prod(filter_sizes)),
    )


def _convolution(operator: Operator, kernels: Sequence[str]) -> list[LibraryCall]:
    """aten::cudnn_convolution(input, weight, padding, stride, dilation, groups, ...)"""
    image, filter_ = operator.shapes[:2]
    dimensions = len(image) - 2
    padding, stride, dilation = (operator.numbers(index, dimensions) for index in (2, 3, 4))
    sizes = [
        (size + 2 * pad - (spread * (width - 1) + 1)) // step + 1
        for size, width, pad, step, spread in zip(image[2:], filter_[2:], padding, stride, dilation, strict=True)
    ]
    result = (image[0], filter_[0], *sizes)
    work = _convolution_work(FORWARD, image, filter_, result, _number_format(operator, 0, kernels))
    return [LibraryCall(work)]


def _convolution_backward(operator: Operator, kernels: Sequence[str]) -> list[LibraryCall]:
    """aten::convolution_backward(grad_output, input, weight, ..., output_mask)"""
    result, image, filter_ = operator.shapes[:3]
    mask = operator.value(10) if len(operator.values) > 10 and operator.values[10] else [True, True, True]
    if not isinstance(mask, list) or len(mask) < 2:
        raise ValueError("the output mask isn't one")
    number_format = _number_format(operator, 0, kernels)
    wanted = (
        (mask[0], BACKWARD_DATA, ("dgrad", "bwd_data", "backward_data", "bprop")),
        (mask[1], BACKWARD_FILTER, ("wgrad", "bwd_filter", "backward_filter")),
    )
    return [
        LibraryCall(_convolution_work(name, image, filter_, result, number_format), marks)
        for is_wanted, name, marks in wanted
        if is_wanted
    ]


def _normalisation(name: str, passes: int, argument: int) -> Callable[[Operator, Sequence[str]], list[LibraryCall]]:
    """Passes over a tensor of this size: forward two that read and one that writes, backward four and one."""

    def calls(operator: Operator, kernels: Sequence[str]) -> list[LibraryCall]:
        _, size = _TYPES[operator.types[argument]]
        amount_bytes = float(passes * prod(operator.shapes[argument]) * size)
        if not operator.shapes[argument]:
            raise ValueError("no tensor")
        return [LibraryCall(Work(name, WorkKind.MEMORY_BOUND, bytes=amount_bytes, precision=PRECISIONS.index("fp32")))]

    return calls


def _attention(
    name: str, queries: int, causal: int, products: tuple[int, int], passes: int
) -> Callable[[Operator, Sequence[str]], list[LibraryCall]]:
    """`queries`, `causal`: numbers of arguments; keys and values follow queries. `products`: of the size of keys, of values."""

    def calls(operator: Operator, kernels: Sequence[str]) -> list[LibraryCall]:
        (batch, heads, count, key_size), (_, key_heads, keys, _), (*_rest, value_size) = operator.shapes[
            queries : queries + 3
        ]
        precision, size = _number_format(operator, queries, kernels)
        pairs = batch * heads * count * keys / (2 if operator.value(causal) is True else 1)
        flops = 2.0 * pairs * (products[0] * key_size + products[1] * value_size)
        elements = batch * (heads * count + key_heads * keys) * (key_size + value_size)
        return [LibraryCall(Work(name, WorkKind.ATTENTION, flops, float(passes * elements * size), precision))]

    return calls


_OPERATORS: Mapping[str, Callable[[Operator, Sequence[str]], list[LibraryCall]]] = {
    "aten::mm": _product(0, 1),
    "aten::addmm": _product(1, 2),
    "aten::_addmm_activation": _product(1, 2),
    "aten::bmm": _product(0, 1),
    "aten::baddbmm": _product(1, 2),
    "aten::cudnn_convolution": _convolution,
    "aten::convolution_backward": _convolution_backward,
    "aten::cudnn_batch_norm": _normalisation("batch_norm_forward", 3, 0),
    "aten::cudnn_batch_norm_backward": _normalisation("batch_norm_backward", 5, 0),
    "aten::_scaled_dot_product_cudnn_attention": _attention("attention_forward", 0, 6, (1, 1), 1),
    "aten::_scaled_dot_product_cudnn_attention_backward": _attention("attention_backward", 1, 14, (3, 2), 2),
}
