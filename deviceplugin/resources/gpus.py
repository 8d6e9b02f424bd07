"""The GPUs of one resource as an offer: checks of ids, device files, variables, mounts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from deviceplugin.resources.offer import AnnouncedDevice, Mount, common_mounts
from deviceplugin.resources.preference import preferred
from emulator_runtime.cuda.container import container_settings
from emulator_runtime.domain.errors import InputError
from emulator_runtime.node import layout as names
from emulator_runtime.node.device_files import device_files
from emulator_runtime.node.inventory import Compat, Cuda, ResourceEntry, split_device_id
from emulator_runtime.node.layout import NodeLayout


@dataclass(frozen=True, slots=True)
class GpuOffer:
    """A resource of the inventory with settings of its node. `nvidia_smi`: mount that program if the node has it."""

    node: str
    resource: ResourceEntry
    compat: Compat = field(default_factory=Compat)
    nvidia_smi: bool = True
    cuda: Cuda = field(default_factory=Cuda)

    @property
    def name(self) -> str:
        return self.resource.name

    @property
    def device_counts(self) -> tuple[int, int]:
        entries = self.resource.by_id().values()
        healthy = sum(entry.healthy for entry in entries)
        return healthy, len(entries) - healthy

    def announced(self) -> Iterator[AnnouncedDevice]:
        for device_id, entry in self.resource.by_id().items():
            yield AnnouncedDevice(device_id, entry.healthy, entry.numa_node)

    def preferred(self, available: Iterable[str], must: Iterable[str], size: int) -> list[str]:
        return preferred(self.resource, available, must, size)

    def checked_ids(self, requested: Sequence[str]) -> tuple[str, ...]:
        """The ids in the order of their own index and replica.

        Raises InputError for an id of another resource, a repeated id, an unhealthy device, an empty list, and for more than
        one replica if the pool forbids that (like NVIDIA's failRequestsGreaterThanOne, for shared devices only).
        """
        resource = self.resource
        known = resource.by_id()
        wanted = set(requested)
        if len(wanted) < len(requested) or not requested:
            raise InputError(resource.name, f"an allocation must name each device once, got {list(requested)}")
        for device_id in requested:
            if device_id not in known:
                problem = f"unknown device {device_id!r}: the node's inventory has changed since; create the pod again"
                raise InputError(resource.name, problem)
            if not known[device_id].healthy:
                reason = known[device_id].reason or "no reason given"
                raise InputError(resource.name, f"device {device_id!r} is unhealthy ({reason}); create the pod again")
        if resource.replicas > 1 and resource.fail_requests_greater_than_one and len(requested) > 1:
            problem = (
                f"a container may request at most 1 shared device, not {len(requested)} (failRequestsGreaterThanOne)"
            )
            raise InputError(resource.name, problem)
        return tuple(device_id for device_id in known if device_id in wanted)

    def device_files(self, device_ids: Sequence[str]) -> dict[int, dict[str, object]]:
        return device_files(self.resource, self.node, device_ids)

    def cuda_settings(self, device_ids: Sequence[str]) -> str:
        return container_settings(self.cuda, self.resource, device_ids)

    def environment(self, device_ids: Sequence[str], token: str) -> dict[str, str]:
        """The variables. If the container has several replicas of a device, the device is listed once. They name what the kubelet
        allocated; which devices these ids stand for may change until the container attaches; the reply names them."""
        visible = ",".join(dict.fromkeys(split_device_id(device_id)[0] for device_id in device_ids))
        variables = {
            names.TOKEN_VARIABLE: token,
            names.MANAGER_SOCKET_VARIABLE: names.CONTAINER_MANAGER_SOCKET,
            names.VISIBLE_DEVICES_VARIABLE: visible,
            names.RESOURCE_VARIABLE: self.resource.name,
        }
        if self.compat.nvidia_env:
            variables |= dict.fromkeys(names.NVIDIA_VARIABLES, visible)
        return variables

    def mounts(self, layout: NodeLayout, edev_dir: Path, is_file: Callable[[Path], bool]) -> tuple[Mount, ...]:
        """The directories, and nvidia-smi if it exists on the node."""
        run_dir, *library = common_mounts(layout, is_file)
        mounts = [run_dir, Mount(str(edev_dir), names.CONTAINER_EDEV_DIR)]
        if self.nvidia_smi and is_file(layout.nvidia_smi):
            mounts.append(Mount(str(layout.nvidia_smi), names.CONTAINER_NVIDIA_SMI))
        return (*mounts, *library)
