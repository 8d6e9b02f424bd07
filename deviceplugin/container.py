"""What a container gets when the kubelet gives it something of ours: the types, and the mounts that all containers have.

A resource is an `Offer`: GPUs (gpus.py) or places on the node (places.py). All of it is decided without touching anything.
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
    """A path of the host, seen read-only in the container."""

    host_path: str
    container_path: str


@dataclass(frozen=True, slots=True)
class ContainerReply:
    """The part of an Allocate reply that concerns one container."""

    envs: Mapping[str, str]
    mounts: tuple[Mount, ...] = ()
    cdi_devices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Announced:
    """An id as the kubelet hears of it; `numa_node` None: it is near to none."""

    device_id: str
    healthy: bool = True
    numa_node: int | None = None


class Offer(Protocol):
    """One resource of the node as it is now. Offers of the same are equal."""

    @property
    def name(self) -> str:
        """The resource that pods ask for."""
        ...

    @property
    def device_counts(self) -> tuple[int, int]:
        """How many ids of devices there are, replicas counted: healthy and unhealthy ones."""
        ...

    def announced(self) -> Iterable[Announced]:
        """Every id of the resource."""
        ...

    def preferred(self, available: Iterable[str], must: Iterable[str], size: int) -> list[str]:
        """`size` of the `available` ids, best first and those of `must` among them. Raises InputError where `must` is more."""
        ...

    def checked_ids(self, requested: Sequence[str]) -> tuple[str, ...]:
        """The ids in the resource's own order; the kubelet gives them in none. Raises InputError where they can't be had."""
        ...

    def device_files(self, device_ids: Sequence[str]) -> dict[int, dict[str, object]]:
        """The content of /edev/<index> for each device."""
        ...

    def environment(self, device_ids: Sequence[str], token: str) -> dict[str, str]:
        """The container's variables."""
        ...

    def mounts(self, layout: NodeLayout, edev_dir: Path, is_file: Callable[[Path], bool]) -> tuple[Mount, ...]:
        """The container's mounts. `is_file` is asked for files that stand for what may be absent: a missing source of a
        mount would be made by the container runtime, as a directory."""
        ...


def common_mounts(layout: NodeLayout, is_file: Callable[[Path], bool]) -> tuple[Mount, ...]:
    """The manager's socket, and the runtime library where the node has it. The same for all offers: of two replies with a
    mount at one path, the kubelet takes one."""
    found = [Mount(str(layout.run_dir), names.CONTAINER_RUN_DIR)]
    if is_file(layout.python_dir / "emulator_runtime" / "__init__.py"):
        found.append(Mount(str(layout.python_dir), names.CONTAINER_TOOLS_DIR))
    return tuple(found)
