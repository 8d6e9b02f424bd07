"""Ranks that stand for others: a job of which only the ranks were recorded that differ (`emugpu trace --world-size`).

A recorded rank's communicators name all their members by rank. `communicator_of` says which recorded rank stands for each, so
that the replay brings together recorded ranks only. Example: 4 pipeline stages of 8 ranks each are 4 traces; an all-reduce among
the ranks of a stage needs its own trace only, a message to the next stage the trace that stands for it.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from emulator_runtime.domain.errors import InputError
from emulator_runtime.prediction.records import Communicator

UNKNOWN = (1 << 64) - 1
"""A member whose rank isn't known (UNKNOWN_RANK in cuda/src/libraries/nccl/virtual.h)."""


@dataclass(frozen=True)
class VirtualRanks:
    """`stands_for`: by recorded rank, the ranks that do the same, itself among them. Rank r is on node r // gpus_per_node."""

    world_size: int
    gpus_per_node: int
    stands_for: Mapping[int, tuple[int, ...]]

    @cached_property
    def representative_of(self) -> Mapping[int, int]:
        """The recorded rank that stands for each rank."""
        return {rank: recorded for recorded, ranks in self.stands_for.items() for rank in ranks}

    def document(self) -> dict[str, Any]:
        """As in trace.json; ranks are written as in "0-7, 64-71"."""
        ranks = {str(recorded): ranges_text(ranks) for recorded, ranks in sorted(self.stands_for.items())}
        return {"world_size": self.world_size, "gpus_per_node": self.gpus_per_node, "stands_for": ranks}

    @classmethod
    def of_document(cls, document: Mapping[str, Any]) -> VirtualRanks:
        """Raises ValueError, KeyError and TypeError for what `document` didn't make."""
        stands_for = {int(rank): ranges_of(text) for rank, text in document["stands_for"].items()}
        found = cls(int(document["world_size"]), int(document["gpus_per_node"]), stands_for)
        if len(found.representative_of) != sum(map(len, stands_for.values())):
            raise ValueError("a rank has two that stand for it")
        if found.gpus_per_node < 1:
            raise ValueError("a node has at least one GPU")
        return found


def ranges_text(ranks: Iterable[int]) -> str:
    """Such as "0-7, 64-71"; `ranks` are different."""
    ranges: list[list[int]] = []
    for rank in sorted(ranks):
        if ranges and ranges[-1][1] == rank - 1:
            ranges[-1][1] = rank
        else:
            ranges.append([rank, rank])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)


def ranges_of(text: str) -> tuple[int, ...]:
    """Raises ValueError."""
    ranks: list[int] = []
    for word in filter(None, (word.strip() for word in text.split(","))):
        first, _, last = word.partition("-")
        ranks.extend(range(int(first), int(last or first) + 1))
    return tuple(ranks)


class Communicators:
    """Those of one recorded rank, in the order of their numbers."""

    def __init__(self, virtual: VirtualRanks, rank: int) -> None:
        self._virtual, self._rank = virtual, rank
        self._alike: Counter[tuple[int, ...]] = Counter()

    def communicator_of(self, number: int, key: str, rank: int, members: Sequence[int]) -> Communicator:
        """`members`: ranks of the job. Raises InputError if they aren't known.

        If the recorded ranks that stand for the members are members themselves, they meet in this communicator. If not, each of
        them meets the others in one of its own that has the like members: the n-th whose members the same ranks stand for, in
        the same order.
        """
        place = f"communicator {number} of rank {self._rank}"
        if any(member not in self._virtual.representative_of for member in members):
            if UNKNOWN in members:
                raise InputError(
                    place, "its members aren't known: with virtual ranks, make groups by torch.distributed (new_group)"
                )
            raise InputError(place, "has members that no recorded rank stands for: record the program again")
        seats = tuple(self._virtual.representative_of[member] for member in members)
        if not set(seats) <= set(members):
            alike = f"{seats} {self._alike[seats]}"
            self._alike[seats] += 1
            key = "like " + hashlib.sha256(alike.encode()).hexdigest()[:24]
        node, size = self._rank // self._virtual.gpus_per_node, self._virtual.gpus_per_node
        beside = sum(member // size == node for member in members)
        return Communicator(
            number,
            key,
            rank,
            tuple((f"node {member // size}", member % size) for member in members),
            seats,
            network_share=min(1.0, beside / size),
        )
