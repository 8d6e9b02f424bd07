"""Whether a rank repeats another one's trace: by a rolling hash of what its streams are given.

What counts are operations with their shapes and the structure of communicators, not addresses, times, or which of its members a
rank is. Streams are compared one by one, since threads may fill them in another order in each run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from emulator_runtime.prediction.reading import Joined, ProcessRecords
from emulator_runtime.prediction.records import Collective, Copy, HostFunction, Launch, RankTrace, Record
from emulator_runtime.prediction.steps import compute_work, find_steps

_ENOUGH_STEPS = 2
"""A rank that has done as another one for so many of its steps goes on like it: pipelines fill and state is made in the first."""

Stream = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Rolling:
    """`hashes`: by stream, after each of its records. `rank`: whose they are."""

    rank: int
    hashes: Mapping[Stream, Sequence[int]]

    def counts(self) -> dict[Stream, int]:
        return {stream: len(hashes) for stream, hashes in self.hashes.items()}


@dataclass(frozen=True, slots=True)
class Reference:
    """A rank that has run to its end. `decisive`: by stream, how many records another one must have like it to repeat it."""

    rolling: Rolling
    decisive: Mapping[Stream, int]


def rolling(process: ProcessRecords, rank: int, gpus_per_node: int) -> Rolling:
    """Of the records that there are so far."""
    shapes = {number: _structure(joined, gpus_per_node) for number, joined in process.communicators.items()}
    ranks = {number: joined.rank for number, joined in process.communicators.items()}
    hashes: defaultdict[Stream, list[int]] = defaultdict(list)
    known: dict[int, int] = {}
    for record in process.records:
        if not isinstance(record, Launch | Copy | Collective | HostFunction):
            continue
        if isinstance(record, Launch):
            number = known.get(id(record.work))
            if number is None:
                number = known[id(record.work)] = hash(record.work)
        elif isinstance(record, Collective):
            peers = _relative(record, ranks[record.communicator], shapes[record.communicator][0])
            number = hash((shapes[record.communicator], record.number, record.operation, record.bytes, peers))
        else:
            number = hash(_content(record))
        before = hashes[0, record.stream]
        before.append(hash((before[-1] if before else 0, number)))
    return Rolling(rank, dict(hashes))


def reference(process: ProcessRecords, of: Rolling) -> Reference:
    """A rank that has ended, to compare others with. Without steps, all that it did is decisive."""
    work = compute_work(RankTrace(of.rank, process.records))
    steps = find_steps(work.keys)
    if steps is None:
        return Reference(of, of.counts())
    last = work.records[steps.first + min(_ENOUGH_STEPS, steps.count) * steps.length - 1]
    counts: defaultdict[Stream, int] = defaultdict(int)
    for record in process.records[: last + 1]:
        if isinstance(record, Launch | Copy | Collective | HostFunction):
            counts[0, record.stream] += 1
    return Reference(of, dict(counts))


def repeated(of: Rolling, references: Sequence[Reference], *, ended: bool) -> int | None:
    """The rank whose trace it repeats, if it has come so far that this is decided; one that has ended must have done all."""
    for other in references:
        if ended:
            same = of.hashes.keys() == other.rolling.hashes.keys() and all(
                len(hashes) == len(of.hashes[stream]) and list(hashes)[-1:] == list(of.hashes[stream])[-1:]
                for stream, hashes in other.rolling.hashes.items()
            )
        else:
            same = all(_agrees(of, other, stream, count) for stream, count in other.decisive.items())
        if same:
            return other.rolling.rank
    return None


def differs(of: Rolling, references: Sequence[Reference]) -> bool:
    """Whether it has done something already that none of these did at this place."""
    return not any(_may_repeat(of, other) for other in references)


def _agrees(of: Rolling, other: Reference, stream: Stream, count: int) -> bool:
    hashes = of.hashes.get(stream, ())
    return len(hashes) >= count and (count == 0 or hashes[count - 1] == other.rolling.hashes[stream][count - 1])


def _may_repeat(of: Rolling, other: Reference) -> bool:
    for stream, hashes in of.hashes.items():
        known = other.rolling.hashes.get(stream, ())
        common = min(len(hashes), len(known))
        if len(hashes) > len(known) or (common and hashes[common - 1] != known[common - 1]):
            return False
    return True


def _structure(joined: Joined, gpus_per_node: int) -> tuple[int, int, int]:
    """Ranks, nodes, and ranks on the own node."""
    nodes = [rank // gpus_per_node for rank, _ in joined.members]
    return len(nodes), len(set(nodes)), nodes.count(nodes[joined.rank])


def _relative(record: Collective, rank: int, ranks: int) -> tuple[tuple[int, int, int], ...]:
    """Messages by the distance of the peer."""
    return tuple(((peer - rank) % ranks, sent, received) for peer, sent, received in record.peers)


def _content(record: Record) -> tuple[object, ...]:
    if isinstance(record, Copy):
        return "copy", record.to_device < 0, record.from_device < 0, record.bytes
    return (type(record).__name__,)
