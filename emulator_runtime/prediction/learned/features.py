"""What a learned estimator goes by: numbers that describe a kernel or library call.

The names of the features are in the estimator's file, so that one that was trained with other features goes on to work. A name
with `*`, such as `kind=convolution*log_mflop`, is the product of features.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from math import prod

from emulator_runtime.prediction.estimators import demangled
from emulator_runtime.prediction.records import Work, WorkKind
from emulator_runtime.profiles.cuda_properties import PRECISIONS

KINDS = {kind.name.lower(): kind for kind in WorkKind}
_TOKEN, _TIMES = "token=", "*"
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9]{2,}")
_TEMPLATE = re.compile(r"([A-Za-z]\w*)<(\d+)\b")
_ELEMENT_BYTES = {"fp64": 8, "fp32": 4, "tf32": 4, "fp16": 2, "bf16": 2, "fp8": 1, "int8": 1}

Feature = Callable[[Work, float], float]
"""Of a piece of work and its time in nanoseconds by the roofline."""


def _log(value: float) -> float:
    """Of 1 or more: what is absent counts as 1 operation, byte or thread."""
    return math.log(max(value, 1.0))


def _log_inverse(value: float) -> float:
    """The logarithm of 1 + 8 / value, which is 0 for a dimension that is large or absent."""
    return math.log1p(8 / value) if value > 0 else 0.0


def input_uses(work: Work) -> float:
    """How many positions of the output use each element of a convolution's input: the size of the filter by that of the stride,
    9 for 3x3 filters with a stride of 1; 0 for other work. It follows from operations and bytes, which have one formula
    (cuda/src/libraries/mathematics/work_formulas.c). The filter is counted as that of one group, which is little beside the rest.
    """
    if work.kind != WorkKind.CONVOLUTION or not work.columns or not work.depth:
        return 0.0
    positions = work.flops / (2 * work.columns * work.depth)
    elements = work.bytes / _ELEMENT_BYTES[PRECISIONS[work.precision]]
    inputs = elements - positions * work.columns - work.columns * work.depth
    return positions * work.depth / inputs if inputs > 0 else 0.0


NUMBERS: Mapping[str, Feature] = {
    "log_operations": lambda work, ns: _log(work.flops),
    "log_bytes": lambda work, ns: _log(work.bytes),
    "log_intensity": lambda work, ns: _log(work.flops) - _log(work.bytes),
    "log_columns": lambda work, ns: _log(work.columns),
    "log_depth": lambda work, ns: _log(work.depth),
    "narrow": lambda work, ns: _log_inverse(work.columns),
    "shallow": lambda work, ns: _log_inverse(work.depth),
    "log_blocks": lambda work, ns: _log(prod(work.grid)),
    "log_threads_per_block": lambda work, ns: _log(prod(work.block)),
    "log_roofline_ns": lambda work, ns: _log(ns),
    "log_input_uses": lambda work, ns: _log(10 * input_uses(work)),
    "log_mb": lambda work, ns: _log(work.bytes) - math.log(1e6),
    "log_gflop": lambda work, ns: _log(work.flops) - math.log(1e9),
    "pointwise": lambda work, ns: float(0.9 < input_uses(work) < 1.1),
    "dense_3x3": lambda work, ns: float(8.5 < input_uses(work) < 9.5),
    "strided": lambda work, ns: float(0 < input_uses(work) <= 0.9 or 1.1 <= input_uses(work) <= 8.5),
    "large_filter": lambda work, ns: float(input_uses(work) >= 9.5),
}


def _of_kind(kind: int) -> Feature:
    return lambda work, ns: float(work.kind == kind)


def _of_precision(number: int) -> Feature:
    return lambda work, ns: float(work.precision == number)


CATEGORIES: Mapping[str, Feature] = {
    **{f"kind={name}": _of_kind(kind) for name, kind in KINDS.items()},
    **{f"precision={name}": _of_precision(number) for number, name in enumerate(PRECISIONS)},
}


def token_feature(word: str) -> str:
    """The name of the feature that is 1 for works in whose name this word is, else 0."""
    return _TOKEN + word


@cache
def words(name: str) -> frozenset[str]:
    """The words of at least three characters in a kernel's name, without capitals, and templates with their first number, such
    as `conv_depthwise2d_forward_kernel<5`. Names of C++ may be mangled."""
    plain = demangled(name)
    templates = {f"{template}<{number}".lower() for template, number in _TEMPLATE.findall(plain)}
    return frozenset({word.lower() for word in _WORD.findall(plain.replace("_", " "))} | templates)


def feature(name: str) -> Feature | None:
    """The feature of this name; None: there is none."""
    if _TIMES in name:
        parts = [feature(part) for part in name.split(_TIMES)]
        known = [part for part in parts if part is not None]
        return _product(known) if len(known) == len(parts) else None
    if name.startswith(_TOKEN):
        word = name[len(_TOKEN) :]
        return lambda work, ns: float(word in words(work.name))
    return NUMBERS.get(name) or CATEGORIES.get(name)


def _product(parts: Sequence[Feature]) -> Feature:
    return lambda work, ns: prod(part(work, ns) for part in parts)


Identity = tuple[int, str, int, float, float, float, tuple[int, int, int], tuple[int, int, int]]
"""Equal for works that take the same time."""


def identity(work: Work) -> Identity:
    """Kind, name, precision, amount, narrow side, depth, grid and block. Which function made a matrix product doesn't count, nor
    do blanks in names of C++. The amount is that of operations; without any that of bytes, except for a program's own kernels,
    whose bytes follow from the rest."""
    is_own = work.kind == WorkKind.KERNEL
    name = "" if work.kind == WorkKind.PRODUCT else demangled(work.name).replace(" ", "")
    amount = work.flops or (0.0 if is_own else work.bytes)
    return work.kind, name, work.precision, amount, work.columns, work.depth, work.grid, work.block


def vector(features: Sequence[Feature], work: Work, roofline_ns: float) -> list[float]:
    """Their values."""
    return [each(work, roofline_ns) for each in features]
