"""What a CUDA program sees of a GPU type beyond its memory and links, and the rates that estimates of kernels go by."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from emulator_runtime.domain.errors import InputError
from emulator_runtime.domain.mig import COMPUTE_SLICES, MEMORY_SLICES, MigProfile, profile_of
from emulator_runtime.domain.units import MIB

_DATA = Path(__file__).with_name("gpus.json")

PRECISIONS = ("fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8")
"""Number formats of multiplications, in the order of the core's `emu_precision`."""
HALF_FORMATS = ("fp16", "bf16")


@dataclass(frozen=True, slots=True)
class Roofline:
    """The constants of the estimates of kernels, as `emu_roofline` in the core has them; docs/cuda.md gives the formula.

    The parts are of peak rates; a convolution's may exceed 1, where an algorithm needs fewer operations than the definition.
    `dispatch_ns`: what the host that was measured with the GPU needs between two launches. `half_product_part`: `product_part`
    of the formats of 16 bits, where it is known by itself.
    """

    convolution_part: float
    product_part: float
    memory_part: float
    normalisation: float
    half_columns: float
    half_depth: float
    kernel_ns: float
    dispatch_ns: float
    half_product_part: float | None = None

    def part_of_products(self, precision: str) -> float:
        """Of the peak rate, in this number format."""
        return self.half_product_part or self.product_part if precision in HALF_FORMATS else self.product_part


@dataclass(frozen=True, slots=True)
class CudaProperties:
    """`name`: as nvidia-smi prints it. Clocks are the highest ones. `context_bytes`: memory that a process's context takes.

    `operations_per_s`: dense operations by number format, a multiply-add counts as two; 0 where the format isn't accelerated.
    `shared_bytes_per_block`: what a block may have if its kernel asks for it.
    """

    name: str
    multiprocessors: int
    clock_khz: int
    memory_clock_khz: int
    memory_bus_bits: int
    memory_bytes_per_s: float
    l2_bytes: int
    shared_bytes_per_multiprocessor: int
    shared_bytes_per_block: int
    context_bytes: int
    operations_per_s: Mapping[str, float]
    roofline: Roofline
    source: str


def cuda_properties(gpu_type: str, place: str) -> CudaProperties:
    """The properties of a GPU type of the bundled catalogue (its canonical name), or of a MIG instance of one.

    Raises InputError naming `place` for a type of the user's own, whose properties nothing states.
    """
    whole, profile = profile_of(gpu_type)
    found = _bundled().get(whole)
    if found is None:
        raise InputError(
            place, f"CUDA programs can't run on {gpu_type}: the catalogue has no properties of its processors"
        )
    return found if profile is None else _instance(found, profile)


@cache
def _bundled() -> Mapping[str, CudaProperties]:
    rows = json.loads(_DATA.read_text(encoding="utf-8"))["gpus"]
    fitted = {row["gpu_type"]: _roofline(row["cuda"]["roofline"]) for row in rows if "roofline" in row["cuda"]}
    return MappingProxyType({row["gpu_type"]: _properties(row["gpu_type"], row["cuda"], fitted) for row in rows})


def _roofline(row: Mapping[str, float]) -> Roofline:
    times = {"kernel_ns": row["kernel_us"] * 1000, "dispatch_ns": row["dispatch_us"] * 1000}
    return Roofline(**{name: value for name, value in row.items() if not name.endswith("_us")}, **times)


def _properties(gpu_type: str, row: Mapping[str, Any], fitted: Mapping[str, Roofline]) -> CudaProperties:
    return CudaProperties(
        name=row["name"],
        multiprocessors=row["multiprocessors"],
        clock_khz=row["clock_mhz"] * 1000,
        memory_clock_khz=row["memory_clock_mhz"] * 1000,
        memory_bus_bits=row["memory_bus_bits"],
        memory_bytes_per_s=row["memory_gb_per_s"] * 1e9,
        l2_bytes=row["l2_kib"] * 1024,
        shared_bytes_per_multiprocessor=row["shared_kib_per_multiprocessor"] * 1024,
        shared_bytes_per_block=row["shared_kib_per_block"] * 1024,
        context_bytes=row["context_mib"] * MIB,
        operations_per_s=MappingProxyType({name: row["tera_per_s"][name] * 1e12 for name in PRECISIONS}),
        roofline=fitted[row.get("roofline_of", gpu_type)],
        source=row["source"],
    )


def _instance(whole: CudaProperties, profile: MigProfile) -> CudaProperties:
    """An instance has the part of the compute slices of what computes, and of the memory slices of what stores.

    A GPU has 8 times a compute slice's multiprocessors, of which instances get 7 (NVIDIA A100 whitepaper, "Multi-Instance GPU").
    """
    slice_multiprocessors = 2 * round(whole.multiprocessors / 16)
    part = profile.compute_slices / COMPUTE_SLICES
    memory_part = profile.memory_slices / MEMORY_SLICES
    return CudaProperties(
        name=f"{whole.name} MIG {profile.name}",
        multiprocessors=slice_multiprocessors * profile.compute_slices,
        clock_khz=whole.clock_khz,
        memory_clock_khz=whole.memory_clock_khz,
        memory_bus_bits=int(whole.memory_bus_bits * memory_part),
        memory_bytes_per_s=whole.memory_bytes_per_s * memory_part,
        l2_bytes=int(whole.l2_bytes * memory_part),
        shared_bytes_per_multiprocessor=whole.shared_bytes_per_multiprocessor,
        shared_bytes_per_block=whole.shared_bytes_per_block,
        context_bytes=int(whole.context_bytes * part),
        operations_per_s=MappingProxyType({name: rate * part for name, rate in whole.operations_per_s.items()}),
        roofline=whole.roofline,
        source=whole.source,
    )
