"""What the jobs of a node share beside devices, each divided by an engine: the storage, the network and the links."""

from __future__ import annotations

from dataclasses import dataclass, field

from emulator_runtime.domain.stages import HostResource
from emulator_runtime.sharing.demands import Engine, Session, Terms
from emulator_runtime.sharing.host_resources import engine_of


@dataclass(slots=True)
class ManagedResource:
    """A resource with its engine, as demands for time see it (pool.ManagedDevice is the other kind). It has no holders and no
    memory, and its time isn't booked."""

    resource: HostResource
    engine: Engine = field(init=False)
    replicas: int = 1

    def __post_init__(self) -> None:
        self.engine = engine_of(self.resource)

    @property
    def name(self) -> str:
        return self.resource.name

    def session_of(self, holder: str, terms: Terms) -> Session:
        """The holder as the engine knows it; all have equal parts."""
        return Session(holder, terms.row, terms.rank)

    def free_at_ns(self) -> int:
        """It serves all at once, so nobody waits for it to become free."""
        return 0

    def settle(self) -> None:
        """Its mode never changes."""
