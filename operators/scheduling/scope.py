"""Whose jobs a scheduler program schedules, and which it waits for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from operators.objects.names import ENDED
from operators.scheduling.actuators import ACTUATORS
from operators.scheduling.objects import Order


@dataclass(frozen=True, slots=True)
class Until:
    """So many jobs with this label have ended, or were never accepted, and their status says so."""

    label: str
    value: str
    jobs: int

    def counts(self, order: Order) -> bool:
        return order.labels.get(self.label) == self.value and order.phase in ENDED


@dataclass(frozen=True, slots=True)
class Scope:
    """The EmuJobs of the scheduler `name`, in one namespace (empty: all), with these labels and actuators (empty: any).

    `gangs`: whether its policy can place jobs of several pods; if not, these are left alone.
    """

    name: str
    namespace: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    actuators: tuple[str, ...] = ()
    until: Until | None = None
    gangs: bool = True

    def has(self, order: Order) -> bool:
        return (
            order.scheduler == self.name
            and order.actuator in (self.actuators or ACTUATORS)
            and all(order.labels.get(name) == value for name, value in self.labels.items())
        )
