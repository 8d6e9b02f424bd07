"""How long a device takes for a piece of work: pluggable, and each answer says where it comes from.

The roofline is that of the online emulation (cuda/src/core/cost.c), written once more: the core has one set of devices for each
process, and a prediction asks for many GPU types, without a C compiler. A test compares both on random work.
"""

from __future__ import annotations

import ctypes
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Protocol

from emulator_runtime.cuda.kernel_times import check_table
from emulator_runtime.prediction.records import Work, WorkKind
from emulator_runtime.profiles.catalogue import gpu_spec
from emulator_runtime.profiles.cuda_properties import PRECISIONS, cuda_properties
from emulator_runtime.profiles.cuda_properties import Roofline as Constants

ROOFLINE, TABLE, LEARNED, ANCHORED = "roofline", "table", "learned", "anchored"
"""Sources of estimates."""
COMPUTE, MEMORY, LAUNCH = "compute", "memory", "launch"
"""What takes most of a piece of work: its operations, its memory traffic, or the fixed time that each kernel has."""

_COPY_S, _HOST_BYTES_PER_S = 5e-6, 20e9
_LONGEST_S = 1e6
_FP32 = PRECISIONS.index("fp32")


@dataclass(frozen=True, slots=True)
class Estimate:
    """`source`: ROOFLINE, TABLE, LEARNED or ANCHORED. `limit`: COMPUTE, MEMORY or LAUNCH. `error`: relative, where it is
    known. `dispatch_ns`: what the measured host needs for this launch; None: what it needs for any."""

    duration_ns: int
    source: str
    limit: str
    error: float | None = None
    dispatch_ns: int | None = None


class Estimator(Protocol):
    """The durations of what a device of one GPU type does. Equal questions get equal answers."""

    @property
    def dispatch_ns(self) -> int:
        """What the host that was measured with the GPU needs between two launches; 0: nothing is known of it."""

    def work(self, work: Work) -> Estimate:
        """A kernel or library call."""

    def copy(self, to_device: int, from_device: int, amount_bytes: int) -> Estimate:
        """A copy between devices; -1 is the host."""


def whole_ns(seconds: float) -> int:
    """Whole nanoseconds of an estimate, rounded down, between 0 and 11 days; 0 for what is no number."""
    return int(min(seconds, _LONGEST_S) * 1e9) if seconds > 0 else 0


class Roofline:
    """Estimates from the data sheet of a GPU type and the constants fitted for it (docs/cuda.md has the formula)."""

    def __init__(self, gpu_type: str, place: str = "--gpu", constants: Constants | None = None) -> None:
        """`gpu_type`: a type of the catalogue, also an alias or a MIG instance. `constants`: in place of the catalogue's. Raises
        InputError and UnknownNameError naming `place`."""
        self.spec = gpu_spec(gpu_type, place)
        self._properties = cuda_properties(self.spec.gpu_type, place)
        self.constants = constants or self._properties.roofline
        self._peaks = tuple(self._properties.operations_per_s[name] for name in PRECISIONS)
        self._product_parts = tuple(self.constants.part_of_products(name) for name in PRECISIONS)
        self._memory_bytes_per_s = self._properties.memory_bytes_per_s * self.constants.memory_part

    @property
    def dispatch_ns(self) -> int:
        return int(self.constants.dispatch_ns)

    @property
    def context_bytes(self) -> int:
        """Memory that the context of a process takes."""
        return min(self._properties.context_bytes, self.spec.memory_bytes)

    def peak_operations_per_s(self, precision: int) -> float:
        """Of the data sheet; FP32's rate where the format isn't accelerated."""
        return self._peaks[precision] if self._peaks[precision] > 0 else self._peaks[_FP32]

    def work(self, work: Work) -> Estimate:
        constants = self.constants
        operations, amount_bytes = work.flops, work.bytes
        if work.columns > 0 and work.depth > 0:
            operations *= (1 + constants.half_columns / work.columns) * (1 + constants.half_depth / work.depth)
        if work.kind == WorkKind.MEMORY_BOUND:
            amount_bytes *= constants.normalisation
        convolution = work.kind == WorkKind.CONVOLUTION
        part = constants.convolution_part if convolution else self._product_parts[work.precision]
        kernel_s = constants.kernel_ns / 1e9
        compute_s = memory_s = 0.0
        if operations > 0:
            compute_s = operations / (self.peak_operations_per_s(work.precision) * part)
        if amount_bytes > 0:
            memory_s = amount_bytes / self._memory_bytes_per_s
        longest = max(compute_s, memory_s, kernel_s)
        limit = COMPUTE if longest == compute_s else MEMORY if longest == memory_s else LAUNCH
        return Estimate(whole_ns(kernel_s + compute_s + memory_s), ROOFLINE, limit)

    def copy(self, to_device: int, from_device: int, amount_bytes: int) -> Estimate:
        rate = _HOST_BYTES_PER_S
        if to_device == from_device >= 0:  # each byte is read and written
            rate = self._memory_bytes_per_s / 2
        elif to_device >= 0 and from_device >= 0 and self.spec.peer_link_bytes_per_s > 0:
            rate = self.spec.peer_link_bytes_per_s
        elif to_device >= 0 or from_device >= 0:
            rate = self.spec.host_link_bytes_per_s
        moving_s = amount_bytes / rate if rate > 0 else 0.0
        return Estimate(whole_ns(_COPY_S + moving_s), ROOFLINE, MEMORY if moving_s > _COPY_S else LAUNCH)


Sizes = tuple[int, int, int]


@dataclass(frozen=True, slots=True)
class _MeasuredLaunch:
    ns: float
    grid: Sizes
    block: Sizes

    @property
    def threads(self) -> int:
        return prod(self.grid) * prod(self.block)


class KernelTable:
    """Measured times of a program's own kernels (cuda/kernel_times.py); what the table lacks, `others` estimates."""

    def __init__(self, path: Path, others: Estimator, fixed_ns: float) -> None:
        """`fixed_ns`: the part of a kernel's time that doesn't grow with its threads. Raises InputError and OSError."""
        check_table(path)
        self._others, self._fixed_ns = others, fixed_ns
        self._launches: defaultdict[str, list[_MeasuredLaunch]] = defaultdict(list)
        for line in path.read_text(encoding="utf-8").splitlines()[1:]:
            if line and not line.startswith("#"):
                ns, grid, block, name = line.split("\t", 3)
                self._launches[_spelling(name)].append(_MeasuredLaunch(float(ns), _sizes(grid), _sizes(block)))
        self._found: dict[str, list[_MeasuredLaunch] | None] = {}

    @property
    def dispatch_ns(self) -> int:
        return self._others.dispatch_ns

    def copy(self, to_device: int, from_device: int, amount_bytes: int) -> Estimate:
        return self._others.copy(to_device, from_device, amount_bytes)

    def work(self, work: Work) -> Estimate:
        otherwise = self._others.work(work)
        known = self._known(work.name) if work.kind == WorkKind.KERNEL and work.grid[0] > 0 else None
        if known is None:
            return otherwise
        return Estimate(self._time_ns(known, work), TABLE, otherwise.limit)

    def _known(self, mangled: str) -> list[_MeasuredLaunch] | None:
        if mangled not in self._found:
            self._found[mangled] = self._launches.get(_spelling(demangled(mangled)))
        return self._found[mangled]

    def _time_ns(self, known: Iterable[_MeasuredLaunch], work: Work) -> int:
        """Of other grids, the nearest by its ratio counts, and its time without the fixed part grows with the threads."""
        wanted = prod(work.grid) * prod(work.block)
        best: tuple[float, float, float] | None = None
        for launch in known:
            if (launch.grid, launch.block) == (work.grid, work.block):
                return whole_ns(launch.ns / 1e9)
            ratio = wanted / launch.threads
            distance = max(ratio, 1 / ratio)
            if best is None or distance < best[0]:
                best = distance, ratio, launch.ns
        assert best is not None  # a name is in the table because of a launch
        _, ratio, ns = best
        fixed = min(self._fixed_ns, ns)
        return whole_ns((fixed + (ns - fixed) * ratio) / 1e9)


class Anchored:
    """Another's estimates times a factor, so that a step takes a time that was measured. As in the online emulation, measured
    times of kernels and copies between devices stay."""

    def __init__(self, others: Estimator, factor: float) -> None:
        self._others, self.factor = others, factor

    @property
    def dispatch_ns(self) -> int:
        return whole_ns(self._others.dispatch_ns * self.factor / 1e9)

    def work(self, work: Work) -> Estimate:
        return self._scaled(self._others.work(work))

    def copy(self, to_device: int, from_device: int, amount_bytes: int) -> Estimate:
        found = self._others.copy(to_device, from_device, amount_bytes)
        return self._scaled(found) if to_device == from_device >= 0 else found

    def _scaled(self, found: Estimate) -> Estimate:
        dispatch_ns = None if found.dispatch_ns is None else whole_ns(found.dispatch_ns * self.factor / 1e9)
        if found.source == TABLE:
            return replace(found, dispatch_ns=dispatch_ns)
        duration_ns = whole_ns(found.duration_ns * self.factor / 1e9)
        return Estimate(duration_ns, ANCHORED, found.limit, dispatch_ns=dispatch_ns)


def demangled(name: str) -> str:
    """A name of C++ as a profiler shows it, by the C++ library of this machine; other names, and all without it, as they are."""
    try:
        demangle = ctypes.CDLL("libstdc++.so.6").__cxa_demangle
    except OSError:
        return name
    demangle.restype = ctypes.c_void_p
    status = ctypes.c_int()
    text = demangle(name.encode(), None, None, ctypes.byref(status))
    if not text:
        return name
    try:
        return ctypes.string_at(text).decode(errors="replace")
    finally:
        free = ctypes.CDLL(None).free
        free.argtypes = [ctypes.c_void_p]
        free(text)


def _spelling(name: str) -> str:
    """Demanglers differ in blanks."""
    return name.replace(" ", "")


def _sizes(text: str) -> Sizes:
    x, y, z = map(int, text.split(","))
    return x, y, z
