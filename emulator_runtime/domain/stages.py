"""The stages of a training step beside the work of its devices, and what the jobs of a node share for them.

    fetch (storage) -> preprocess (the job's own CPUs) -> transfer (links)     the input of a step
    compute (devices) -> exchange (network)                                    the step

The input is prepared one step ahead: that of step k+1 begins when step k is issued. Step k+1 is issued when step k has ended and
its own input is ready. Of all stages, simulator and job process use these objects, so they agree.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import NamedTuple

STORAGE, NETWORK, _LINK = "storage", "network", "link-"
LEAST_SPEED, MOST_SPEED = 1e-3, 1e6
"""So that the longest work ends within a week, and the shortest isn't lost in rounding."""


@dataclass(frozen=True, slots=True)
class HostResource:
    """What the jobs of a node share beside devices: its storage, its network, or a link (a switch) with the devices behind it.

    All that is demanded of it at a time is served at once, in equal parts. `speed`: 1 is that for which works are stated; at 2
    they take half as long. `devices`: the UUIDs of those behind a link.
    """

    name: str
    speed: float = 1.0
    devices: tuple[str, ...] = ()

    @property
    def is_link(self) -> bool:
        """Whether the devices behind it get their transfers through it."""
        return self.name.startswith(_LINK)


class Stage(NamedTuple):
    """Work that begins when the stage before it has ended. `works`: by resource, nanoseconds of the undivided resource.
    `own_ns`: time that it takes at least, on what the job shares with nobody."""

    works: Mapping[str, int]
    own_ns: int = 0


@dataclass(frozen=True, slots=True)
class StageTimes:
    """The stages of one step, in nanoseconds of undivided resources: what each node of the job fetches and exchanges, and what is
    copied to each device."""

    fetch_ns: int = 0
    transfer_ns: int = 0
    exchange_ns: int = 0

    def __bool__(self) -> bool:
        return self.fetch_ns + self.transfer_ns + self.exchange_ns > 0

    def stretched(self, factor: float) -> StageTimes:
        """The same, `factor` times as long."""
        return StageTimes(*(round(ns * factor) for ns in astuple(self)))

    def input(
        self, preprocess_ns: int, resources: Sequence[HostResource] = (), devices: Collection[str] = ()
    ) -> list[Stage]:
        """The input of a step, on `devices` of a node with these `resources`. What the node doesn't state is the job's own."""
        links = {
            each.name: n for each in resources if each.is_link and (n := sum(uuid in each.devices for uuid in devices))
        }
        beside = sum(links.values()) < max(1, len(devices))
        transfers = {name: self.transfer_ns * number for name, number in links.items() if self.transfer_ns}
        return [
            _stage(STORAGE, self.fetch_ns, resources),
            Stage({}, preprocess_ns),
            Stage(transfers, self.transfer_ns if beside else 0),
        ]

    def exchange(self, resources: Sequence[HostResource] = ()) -> list[Stage]:
        """What follows when the devices have done their part of a step, on a node with these `resources`."""
        return [_stage(NETWORK, self.exchange_ns, resources)]


def link(number: int, speed: float, devices: tuple[str, ...]) -> HostResource:
    """The link with this number of its node, and the UUIDs of the devices behind it."""
    return HostResource(f"{_LINK}{number}", speed, devices)


NO_STAGES = StageTimes()


def _stage(name: str, work_ns: int, resources: Sequence[HostResource]) -> Stage:
    if any(resource.name == name for resource in resources):
        return Stage({name: work_ns} if work_ns else {})
    return Stage({}, work_ns)


class StageRun:
    """Stages of step `step` on one node that follow each other from `ready_ns` on.

    `outstanding`: the demands of the present stage that aren't answered: by resource, the work. They are ready at `ready_ns`.
    """

    def __init__(self, step: int, stages: Iterable[Stage], ready_ns: int) -> None:
        self.step, self.ready_ns = step, ready_ns
        self.outstanding: dict[str, int] = {}
        self._stages = iter(stages)
        self._reached_ns = ready_ns
        self._next()

    @property
    def end_ns(self) -> int | None:
        """When the last stage ends; None: that isn't known yet."""
        return None if self.outstanding else self._reached_ns

    def served(self, resource: str, end_ns: int) -> bool:
        """A demand is answered, and its work ends at `end_ns`. Returns whether others are outstanding now than before: those of
        the next stage."""
        if self.outstanding.pop(resource, None) is None:
            return False
        self._reached_ns = max(self._reached_ns, end_ns)
        return not self.outstanding and self._next()

    def _next(self) -> bool:
        """Go on to the next stage that demands something; False: there is none."""
        for stage in self._stages:
            self.ready_ns = self._reached_ns
            self._reached_ns += stage.own_ns
            if stage.works:
                self.outstanding = dict(stage.works)
                return True
        return False
