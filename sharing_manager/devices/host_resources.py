"""What the jobs of a node share beside devices, each divided by an engine: the storage, the network and the links."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from emulator_runtime.domain.stages import HostResource
from emulator_runtime.sharing.demands import Engine, Session, Terms
from emulator_runtime.sharing.host_resources import engine_of


@dataclass(slots=True)
class ManagedResource:
    """A resource with its engine, as demands for time see it (pool.ManagedDevice is the other kind). It has no holders and no
    memory, and its time isn't booked.

    `offered`: whether the inventory has it. One that it doesn't have any more serves those who attached before.
    """

    resource: HostResource
    engine: Engine = field(init=False)
    replicas: int = 1
    offered: bool = True
    _speed: float = field(init=False, default=0.0)
    """That of the engine."""

    def __post_init__(self) -> None:
        self.settle()

    def apply(self, wanted: HostResource | None) -> None:
        """Become what the inventory has under this name. Its speed changes as soon as no session uses the engine."""
        self.offered = wanted is not None
        if wanted is not None:
            self.resource = wanted
            self.settle()

    def serves(self, uuids: Collection[str]) -> bool:
        """Whether jobs with these devices share it: not the links of other devices."""
        return not self.resource.devices or any(uuid in self.resource.devices for uuid in uuids)

    @property
    def name(self) -> str:
        return self.resource.name

    def session_of(self, holder: str, terms: Terms) -> Session:
        """The holder as the engine knows it; all have equal parts."""
        return Session(holder, terms.row, terms.rank)

    def settle(self) -> None:
        """Have an engine of the resource's speed, unless sessions use the present one."""
        if self._speed != self.resource.speed and not (self._speed and self.engine.in_use):
            self.engine, self._speed = engine_of(self.resource), self.resource.speed
