"""Places on the node, as an offer: containers that train on CPUs alone get a token and the manager's socket, and no device.

A place has an id, by which the kubelet says later who has it and the manager knows whose token it is, as with a device.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from deviceplugin.container import Announced, Mount, common_mounts
from emulator_runtime.domain.errors import InputError
from emulator_runtime.node import layout as names
from emulator_runtime.node.layout import HOST_RESOURCE, NodeLayout

HOST_PLACES = 110
"""As many as a node has pods by default (kubelet configuration, maxPods), so that places are never what is scarce."""


@dataclass(frozen=True, slots=True)
class PlaceOffer:
    """All places of a node, each for one container."""

    count: int = HOST_PLACES

    @property
    def name(self) -> str:
        return HOST_RESOURCE

    @property
    def device_counts(self) -> tuple[int, int]:
        return 0, 0

    def announced(self) -> Iterator[Announced]:
        for place in self._places():
            yield Announced(place)

    def preferred(self, available: Iterable[str], must: Iterable[str], size: int) -> list[str]:
        chosen = list(dict.fromkeys(must))
        if size < len(chosen):
            raise InputError(self.name, f"{len(chosen)} places must be included in an allocation of {size}")
        free = set(available)
        return (chosen + [place for place in self._places() if place in free and place not in chosen])[:size]

    def checked_ids(self, requested: Sequence[str]) -> tuple[str, ...]:
        """Raises InputError for an id that is no place or named twice, and for none at all."""
        known, wanted = self._places(), set(requested)
        if len(wanted) < len(requested) or not requested:
            raise InputError(self.name, f"an allocation must name its places once each, got {list(requested)}")
        for place in requested:
            if place not in known:
                problem = f"unknown place {place!r}: the node's daemon has changed since; create the pod again"
                raise InputError(self.name, problem)
        return tuple(place for place in known if place in wanted)

    def device_files(self, device_ids: Sequence[str]) -> dict[int, dict[str, object]]:
        return {}

    def environment(self, device_ids: Sequence[str], token: str) -> dict[str, str]:
        """Beside those of a GPU they take nothing away from it: what both say is the same."""
        return {
            names.HOST_TOKEN_VARIABLE: token,
            names.MANAGER_SOCKET_VARIABLE: names.CONTAINER_MANAGER_SOCKET,
        }

    def mounts(self, layout: NodeLayout, edev_dir: Path, is_file: Callable[[Path], bool]) -> tuple[Mount, ...]:
        return common_mounts(layout, is_file)

    def _places(self) -> list[str]:
        return [f"place-{number}" for number in range(self.count)]
