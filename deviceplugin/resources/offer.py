"""The types of what a container gets in an Allocate reply, and the mounts that all containers get.

A resource is an `Offer`: GPUs (gpus.py) or host slots (host_slots.py). These modules only compute; they read and write no files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from emulator_runtime.node import layout as names
from emulator_runtime.node.layout import NodeLayout


@dataclass(frozen=True, slots=True)
class Mount:
    """A path of the host that is mounted read-only in the container."""

    host_path: str
    container_path: str


@dataclass(frozen=True, slots=True)
class ContainerReply:
    """The part of an Allocate reply for one container."""

    envs: Mapping[str, str]
    mounts: tuple[Mount, ...] = ()
    cdi_devices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AnnouncedDevice:
    """An id as announced to the kubelet; `numa_node` None: not close to any NUMA node."""

    device_id: str
    healthy: bool = True
    numa_node: int | None = None


class Offer(Protocol):
    """The current state of one resource of the node. Offers are compared by value."""

    @property
    def name(self) -> str:
        """The resource name that pods request."""
        ...

    @property
    def device_counts(self) -> tuple[int, int]:
        """The number of healthy and of unhealthy device ids, including replicas."""
        ...

    def announced(self) -> Iterable[AnnouncedDevice]:
        """Every id of the resource."""
        ...

    def preferred(self, available: Iterable[str], must: Iterable[str], size: int) -> list[str]:
        """`size` of the `available` ids, best first, including `must`. Raises InputError if `must` has more ids."""
        ...

    def checked_ids(self, requested: Sequence[str]) -> tuple[str, ...]:
        """The requested ids in the resource's order (the kubelet sends them unordered). Raises InputError for invalid ids."""
        ...

    def device_files(self, device_ids: Sequence[str]) -> dict[int, dict[str, object]]:
        """The content of /edev/<index> for each device."""
        ...

    def cuda_settings(self, device_ids: Sequence[str]) -> str:
        """The file that describes the devices to CUDA programs; empty: the container gets nothing for such programs."""
        ...

    def environment(self, device_ids: Sequence[str], token: str) -> dict[str, str]:
        """The container's environment variables."""
        ...

    def mounts(self, layout: NodeLayout, edev_dir: Path, is_file: Callable[[Path], bool]) -> tuple[Mount, ...]:
        """The container's mounts. `is_file` checks optional files of the host: the container runtime would create a
        directory for a missing mount source."""
        ...


def common_mounts(layout: NodeLayout, is_file: Callable[[Path], bool]) -> tuple[Mount, ...]:
    """The manager's socket, and the runtime library if the node has it. All offers return the same, because the kubelet keeps
    only one of two mounts at the same path."""
    mounts = [Mount(str(layout.run_dir), names.CONTAINER_RUN_DIR)]
    if is_file(layout.python_dir / "emulator_runtime" / "__init__.py"):
        mounts.append(Mount(str(layout.python_dir), names.CONTAINER_TOOLS_DIR))
    return tuple(mounts)
