"""Rules of placement: in which order a job tries the nodes. Ties: the order of the view's nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random

from emulator_runtime.domain.job import Configuration
from scheduler_sims.interface.view import ClusterView, JobView
from scheduler_sims.policies.placing import main_configuration


@dataclass(frozen=True, slots=True)
class Room:
    """What is free on a node: whole devices and CPUs; `rack`: its label `rack`, else its own name."""

    name: str
    devices: int
    cpu_milli: int
    rack: str

    def hosts(self, wanted: Configuration) -> bool:
        """Whether a task of `wanted` fits by devices and CPUs."""
        return self.devices >= wanted.gpus and self.cpu_milli >= wanted.cpu_milli

    def without(self, wanted: Configuration) -> Room:
        """The node with a task of `wanted` more."""
        return Room(self.name, self.devices - wanted.gpus, self.cpu_milli - wanted.cpu_milli, self.rack)


@dataclass(frozen=True, slots=True)
class Question:
    """A job to place. `mix`: how many of the present jobs have each configuration."""

    job: JobView
    wanted: Configuration
    mix: Mapping[Configuration, int]
    seed: int


Rule = Callable[[Question, Sequence[Room]], list[Room]]


def packed(_question: Question, rooms: Sequence[Room]) -> list[Room]:
    """The fullest node first (best fit), which keeps others free for wide jobs."""
    return sorted(rooms, key=lambda room: room.devices)


def spread(_question: Question, rooms: Sequence[Room]) -> list[Room]:
    """The emptiest node first, which keeps neighbours apart."""
    return sorted(rooms, key=lambda room: -room.devices)


def at_random(question: Question, rooms: Sequence[Room]) -> list[Room]:
    """In an order that depends on the seed and the job only."""
    shuffled = list(rooms)
    Random(f"{question.seed}/placement/{question.job.job_id}").shuffle(shuffled)
    return shuffled


def racks(question: Question, rooms: Sequence[Room]) -> list[Room]:
    """Nodes of one rack together: the rack with the fewest free devices that has room for all tasks, else the roomiest racks
    first; within a rack the fullest node first."""
    places = Counter(room.rack for room in rooms if room.hosts(question.wanted))
    free = Counter[str]()
    for room in rooms:
        free[room.rack] += room.devices

    def rank(room: Room) -> tuple[bool, int, str, int]:
        enough = places[room.rack] >= question.wanted.min_tasks
        return (not enough, free[room.rack] if enough else -places[room.rack], room.rack, room.devices)

    return sorted(rooms, key=rank)


def least_fragments(question: Question, rooms: Sequence[Room]) -> list[Room]:
    """The node whose fragmentation grows least with the job (FGD: Weng et al., USENIX ATC 2023, section 4)."""

    def growth(room: Room) -> float:
        after = room.without(question.wanted)
        return fragments(after, question.mix) - fragments(room, question.mix) if room.hosts(question.wanted) else 0.0

    return sorted(rooms, key=lambda room: (growth(room), room.devices))


def fragments(room: Room, mix: Mapping[Configuration, int]) -> float:
    """Expected idle devices that the next job can't use, if it is drawn from `mix`: all of them if the job doesn't fit or needs
    no device, else none (of a whole-device job)."""
    total = sum(mix.values())
    useless = sum(count for wanted, count in mix.items() if not wanted.gpus or not room.hosts(wanted))
    return room.devices * useless / total if total else 0.0


def mix_of(view: ClusterView) -> Counter[Configuration]:
    """The configurations of the present jobs."""
    return Counter(main_configuration(view, job) for job in view.jobs.values())


RULES: Mapping[str, Rule] = {
    "packed": packed,
    "spread": spread,
    "random": at_random,
    "racks": racks,
    "fragmentation": least_fragments,
}
