"""Emulated GPUs: the properties of a GPU type (GpuSpec) and one device of a node (Device), a whole GPU or a MIG instance."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from functools import cache

_UUID_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_DNS, "emugpu.dev")

USABLE_MEMORY_FRACTION = 0.925
"""Share of the nominal memory that a job can use. With 0.92 to 0.93, the profiled peaks reproduce the 98 out-of-memory
boundaries of the GPEmu profiles best (median error of the largest batch size: 1.5-1.6%)."""


def _usable(memory_bytes: int) -> int:
    return int(memory_bytes * USABLE_MEMORY_FRACTION)


@dataclass(frozen=True, slots=True)
class GpuSpec:
    """A GPU type. Bandwidths are bytes per second in one direction.

    `peer_link_bytes_per_s`: per GPU to the other GPUs of its node; 0 if they communicate through the host.
    `step_times_of`: the GPU type whose measured step times are used if this type has none of its own; empty: no type.
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
class MigPlace:
    """Where a MIG instance is: the index of its GPU on the node, and its first memory slice there."""

    gpu: int
    start: int


@dataclass(frozen=True, slots=True)
class Device:
    """One emulated GPU of a node, or a MIG instance of one. A GPU's UUID depends only on node and index, an instance's on node,
    GPU, type and place, so it is the same after every restart."""

    node: str
    index: int
    gpu_type: str
    memory_bytes: int
    mig: MigPlace | None = None

    @property
    def uuid(self) -> str:
        if self.mig is None:
            return device_uuid(self.node, self.index)
        return _instance_uuid(self.node, self.mig, self.gpu_type)

    @property
    def gpu_index(self) -> int:
        """The index of the GPU that this is, or on which it is."""
        return self.index if self.mig is None else self.mig.gpu

    @property
    def gpu_uuid(self) -> str:
        """The UUID of the GPU that this is, or on which it is."""
        return device_uuid(self.node, self.gpu_index)

    @property
    def usable_memory_bytes(self) -> int:
        return _usable(self.memory_bytes)


@cache
def device_uuid(node: str, index: int) -> str:
    """The UUID of the device at `index` on `node`, in the format that NVIDIA's tools print. It never changes."""
    return f"GPU-{uuid.uuid5(_UUID_NAMESPACE, f'{node}/{index}')}"


@cache
def _instance_uuid(node: str, place: MigPlace, gpu_type: str) -> str:
    return f"MIG-{uuid.uuid5(_UUID_NAMESPACE, f'{node}/{place.gpu}/{gpu_type}/{place.start}')}"
