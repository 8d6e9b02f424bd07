"""How long a training step takes by a roofline whose constants and corrections are parameters, and how that changes with each.

The step is that of prediction/steps.py: a stream does its works in order, each no sooner than the host could launch it, and the
host waits where the program did. Between two waits the end is the latest of those that each work has if the stream doesn't idle
after it: the time until the host launches it, and all works from it on; or all launches of the host. Without waits the host is
ahead of the device, or behind it, for the whole step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from emugpu.learning.measured_steps import Copied
from emulator_runtime.prediction.learned.features import Feature, vector
from emulator_runtime.prediction.records import Work, WorkKind
from emulator_runtime.profiles.cuda_properties import PRECISIONS, CudaProperties

Array = npt.NDArray[np.float64]
CONSTANTS = (
    "convolution_part",
    "product_part",
    "memory_part",
    "normalisation",
    "half_columns",
    "half_depth",
    "kernel_ns",
    "dispatch_ns",
)
"""Parameters are the logarithms of these, for each kind of work that of what the host needs for its launch as a multiple of
dispatch_ns, and the weights of features."""
KINDS = len(WorkKind)
FIRST_FEATURE = len(CONSTANTS) + KINDS
_CONVOLUTION, _PRODUCT, _MEMORY, _NORMALISATION, _COLUMNS, _DEPTH, _KERNEL, _DISPATCH = range(8)
COPY_NS = 5000.0


@dataclass(frozen=True, slots=True)
class StepWorks:
    """A step: which of a list of distinct works it has, its works in their order as indexes of these, whether the host launches
    each, and before which ones the program waited until the device had nothing to do."""

    distinct: npt.NDArray[np.int64]
    works: npt.NDArray[np.int64]
    launched: npt.NDArray[np.bool_]
    waits: tuple[int, ...]

    @property
    def spans(self) -> list[tuple[int, int]]:
        """The works between two waits, from first to end. The step begins with a wait, or has none (`turned`)."""
        bounds = [*(self.waits or (0,)), len(self.works)]
        return list(pairwise(bounds))

    def turned(self) -> StepWorks:
        """The same step, counted from its first wait on: it is done again and again, so that it may begin anywhere."""
        first = self.waits[0] if self.waits else 0
        waits = tuple(number - first for number in self.waits)
        return StepWorks(self.distinct, np.roll(self.works, -first), np.roll(self.launched, -first), waits)


class StepModel:
    """The formula for the distinct works of some steps on one GPU type."""

    def __init__(self, works: Sequence[Work | Copied], cuda: CudaProperties, features: Sequence[Feature]) -> None:
        peaks = [cuda.operations_per_s[name] or cuda.operations_per_s["fp32"] for name in PRECISIONS]
        own = [
            work if isinstance(work, Work) else Work("copy", WorkKind.KERNEL, bytes=2 * work.bytes) for work in works
        ]
        self._compute_ns = np.array([work.flops / peaks[work.precision] * 1e9 for work in own])
        self._memory_ns = np.array([work.bytes / cuda.memory_bytes_per_s * 1e9 for work in own])
        shaped = [work.columns > 0 and work.depth > 0 for work in own]
        self._by_columns = np.array([1 / w.columns if s else 0.0 for w, s in zip(own, shaped, strict=True)])
        self._by_depth = np.array([1 / w.depth if s else 0.0 for w, s in zip(own, shaped, strict=True)])
        self._convolution = np.array([work.kind == WorkKind.CONVOLUTION for work in own])
        self._normalised = np.array([work.kind == WorkKind.MEMORY_BOUND for work in own])
        self._copied = np.array([isinstance(work, Copied) for work in works])
        self.kinds = np.array([work.kind for work in own])
        self._works, self._features = own, features
        self.x = np.zeros((len(own), 0))

    def describe(self, constants: Array) -> Array:
        """Features by work, for the roofline with these constants (logarithms); a copy has zeros."""
        base_ns, _ = self._base(constants)
        rows = [vector(self._features, work, ns) for work, ns in zip(self._works, base_ns, strict=True)]
        found = np.array(rows).reshape(len(rows), len(self._features))
        found[self._copied] = 0.0
        return found

    def durations(self, parameters: Array) -> tuple[Array, Array]:
        """Nanoseconds of each work, and the derivatives of their logarithms by the parameters."""
        base_ns, slopes = self._base(parameters[: len(CONSTANTS)])
        none = np.zeros((len(base_ns), KINDS))
        return base_ns * np.exp(self.x @ parameters[FIRST_FEATURE:]), np.hstack([slopes, none, self.x])

    @property
    def kinds_of_works(self) -> set[int]:
        """Of which there are works."""
        return {int(work.kind) for work in self._works}

    def launches_by_kind(self, parameters: Array) -> Array:
        """Nanoseconds of the host for a launch, by kind of work."""
        by_kind: Array = np.exp(parameters[_DISPATCH] + parameters[len(CONSTANTS) : FIRST_FEATURE])
        return by_kind

    def _base(self, constants: Array) -> tuple[Array, Array]:
        c = np.exp(constants)
        columns, depth = c[_COLUMNS] * self._by_columns, c[_DEPTH] * self._by_depth
        part = np.where(self._convolution, c[_CONVOLUTION], c[_PRODUCT])
        compute = self._compute_ns * (1 + columns) * (1 + depth) / part
        memory = self._memory_ns / c[_MEMORY] * np.where(self._normalised, c[_NORMALISATION], 1.0)
        fixed = np.where(self._copied, COPY_NS, c[_KERNEL])
        total = compute + memory + fixed
        slopes = np.zeros((len(total), len(CONSTANTS)))
        slopes[:, _CONVOLUTION] = np.where(self._convolution, -compute, 0)
        slopes[:, _PRODUCT] = np.where(self._convolution, 0, -compute)
        slopes[:, _MEMORY] = -memory
        slopes[:, _NORMALISATION] = np.where(self._normalised, memory, 0)
        slopes[:, _COLUMNS] = compute * columns / (1 + columns)
        slopes[:, _DEPTH] = compute * depth / (1 + depth)
        slopes[:, _KERNEL] = np.where(self._copied, 0, fixed)
        return total, slopes / total[:, None]

    def step(self, step: StepWorks, durations: Array, slopes: Array, dispatches: Array) -> tuple[float, Array]:
        """Nanoseconds of a step, and the derivatives of its logarithm by the parameters."""
        distinct, kinds, count = durations[step.distinct], self.kinds[step.distinct[step.works]], len(step.distinct)
        each, launches = distinct[step.works], dispatches[step.distinct][step.works] * step.launched
        of_works, of_launches, total = np.zeros(count), np.zeros(KINDS), 0.0
        for first, end in step.spans:
            candidates = end - first + 1 if step.waits else 1
            ends = np.cumsum(each[first:end][::-1])[::-1][:candidates]
            host = np.cumsum(launches[first:end])
            ends = np.append((ends + host[: len(ends)] - launches[first : first + len(ends)]), host[-1])
            critical = int(np.argmax(ends))
            total += float(ends[critical])
            critical = end if critical == len(ends) - 1 else first + critical
            of_works += np.bincount(step.works[critical:end], minlength=count)
            of_launches += np.bincount(kinds[first:critical], launches[first:critical], KINDS)
        gradient = (of_works * distinct) @ slopes[step.distinct]
        gradient[_DISPATCH] += of_launches.sum()
        gradient[len(CONSTANTS) : FIRST_FEATURE] += of_launches
        return total, gradient / total
