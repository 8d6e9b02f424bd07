"""Host slots as an offer: containers that train only on CPUs get a token and the manager's socket, but no device.

Like a device, a host slot has an id. By this id the kubelet reports which container holds it, and the manager then knows the
owner of the token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from deviceplugin.resources.offer import AnnouncedDevice, Mount, common_mounts
from emulator_runtime.domain.errors import InputError
from emulator_runtime.node import layout as names
from emulator_runtime.node.layout import HOST_RESOURCE, NodeLayout

HOST_SLOTS = 110
"""The default maximum number of pods on a node (kubelet configuration, maxPods), so that host slots never run out."""


@dataclass(frozen=True, slots=True)
class HostSlotOffer:
    """All host slots of a node. Each is for one container."""

    count: int = HOST_SLOTS

    @property
    def name(self) -> str:
        return HOST_RESOURCE

    @property
    def device_counts(self) -> tuple[int, int]:
        return 0, 0

    def announced(self) -> Iterator[AnnouncedDevice]:
        for slot in self._slots():
            yield AnnouncedDevice(slot)

    def preferred(self, available: Iterable[str], must: Iterable[str], size: int) -> list[str]:
        chosen = list(dict.fromkeys(must))
        if size < len(chosen):
            raise InputError(self.name, f"{len(chosen)} host slots must be included in an allocation of {size}")
        free = set(available)
        return (chosen + [slot for slot in self._slots() if slot in free and slot not in chosen])[:size]

    def checked_ids(self, requested: Sequence[str]) -> tuple[str, ...]:
        """The requested ids. Raises InputError for an id that is no host slot, a repeated id, and an empty list."""
        known, wanted = self._slots(), set(requested)
        if len(wanted) < len(requested) or not requested:
            raise InputError(self.name, f"an allocation must name each host slot once, got {list(requested)}")
        for slot in requested:
            if slot not in known:
                problem = f"unknown host slot {slot!r}: the node's daemon has changed since; create the pod again"
                raise InputError(self.name, problem)
        return tuple(slot for slot in known if slot in wanted)

    def device_files(self, device_ids: Sequence[str]) -> dict[int, dict[str, object]]:
        return {}

    def cuda_settings(self, device_ids: Sequence[str]) -> str:
        return ""

    def environment(self, device_ids: Sequence[str], token: str) -> dict[str, str]:
        """The variables. In a container that also has a GPU they don't conflict: common variables have the same values."""
        return {
            names.HOST_TOKEN_VARIABLE: token,
            names.MANAGER_SOCKET_VARIABLE: names.CONTAINER_MANAGER_SOCKET,
        }

    def mounts(self, layout: NodeLayout, edev_dir: Path, is_file: Callable[[Path], bool]) -> tuple[Mount, ...]:
        return common_mounts(layout, is_file)

    def _slots(self) -> list[str]:
        return [f"place-{number}" for number in range(self.count)]
