"""Emulated GPUs: what a type is (GpuSpec) and one that a node owns (Device)."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from functools import cache

_UUID_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_DNS, "emugpu.dev")

USABLE_MEMORY_FRACTION = 0.925
"""Share of nominal memory that a job can use. Comparing profiled peaks with 0.92-0.93 x nominal reproduces the
98 out-of-memory boundaries of the GPEmu profiles best (median error of the largest batch 1.5-1.6%)."""


def _usable(memory_bytes: int) -> int:
    return int(memory_bytes * USABLE_MEMORY_FRACTION)


@dataclass(frozen=True, slots=True)
class GpuSpec:
    """A type of GPU. Bandwidths are bytes per second, one direction; `peer` is per GPU to its peers (0: through the host).

    `step_times_of`: the measured type whose step times stand in where this one has none of its own; empty: none does.
    """

    gpu_type: str
    memory_bytes: int
    host_link_bytes_per_s: float
    peer_link_bytes_per_s: float
    architecture: str
    compute_capability: str
    source: str
    step_times_of: str = ""

    @property
    def usable_memory_bytes(self) -> int:
        return _usable(self.memory_bytes)


@dataclass(frozen=True, slots=True)
class Device:
    """One emulated GPU of a node. Its UUID depends on node and index only, so it is the same after every restart."""

    node: str
    index: int
    gpu_type: str
    memory_bytes: int

    @property
    def uuid(self) -> str:
        return device_uuid(self.node, self.index)

    @property
    def usable_memory_bytes(self) -> int:
        return _usable(self.memory_bytes)


@cache
def device_uuid(node: str, index: int) -> str:
    """The stable UUID of the device at `index` on `node`, in the form that NVIDIA's tools print."""
    return f"GPU-{uuid.uuid5(_UUID_NAMESPACE, f'{node}/{index}')}"
