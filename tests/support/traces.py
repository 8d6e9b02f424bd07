"""Traces written by hand, and estimators whose durations a reader knows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from emulator_runtime.prediction.estimators import LAUNCH, ROOFLINE, Estimate
from emulator_runtime.prediction.records import (
    Await,
    Collective,
    Communicator,
    Copy,
    HostFunction,
    HostWaits,
    Launch,
    Mark,
    Memory,
    RankTrace,
    Record,
    Trace,
    Work,
)
from emulator_runtime.prediction.simulation import RankRun, simulate


@dataclass(frozen=True)
class Stated:
    """Work takes as many ns as its `bytes` says, and so do copies; the collectives beside it take as many, too."""

    dispatch_ns: int = 0

    def work(self, work: Work) -> Estimate:
        return Estimate(int(work.bytes), ROOFLINE, LAUNCH)

    def copy(self, to_device: int, from_device: int, amount_bytes: int) -> Estimate:
        return Estimate(amount_bytes, ROOFLINE, LAUNCH)

    def duration_ns(self, call: Collective, communicator: Communicator) -> int:
        return call.bytes


@dataclass
class Host:
    """Writes down a rank's calls; `at` is the host's time in ns, which a test sets."""

    rank: int = 0
    at: int = 0
    thread: int = 0
    communicators: Mapping[int, Communicator] = field(default_factory=dict)
    records: list[Record] = field(default_factory=list)
    moments: int = 0

    def launch(
        self, duration: int, stream: int = 0, name: str = "kernel", *, dispatched: bool = True, flops: float = 0.0
    ) -> int:
        work = Work(name, 0, flops, bytes=duration)
        return self._add(Launch(self.at, self.thread, 0, stream, work, dispatched))

    def copy(self, duration: int, stream: int = 0, to: int = 0, source: int = -1) -> int:
        return self._add(Copy(self.at, self.thread, 0, stream, to, source, duration))

    def mark(self, stream: int = 0) -> int:
        """The moment."""
        self.moments += 1
        self._add(Mark(self.at, self.thread, 0, stream, self.moments))
        return self.moments

    def wait(self, moment: int, stream: int) -> int:
        return self._add(Await(self.at, self.thread, 0, stream, moment))

    def synchronize(self, moment: int) -> int:
        return self._add(HostWaits(self.at, self.thread, moment))

    def function(self, duration: int, stream: int = 0) -> int:
        return self._add(HostFunction(self.at, self.thread, 0, stream, duration))

    def memory(self, used: int) -> int:
        return self._add(Memory(self.at, self.thread, 0, used))

    def all_reduce(self, number: int, duration: int, stream: int = 0, operation: str = "all_reduce") -> int:
        return self._add(Collective(self.at, self.thread, 0, stream, 0, number, operation, duration))

    def exchange(self, *peers: tuple[int, int, int], duration: int, stream: int = 0) -> int:
        return self._add(Collective(self.at, self.thread, 0, stream, 0, 0, "send_receive", duration, peers))

    def trace(self, gpu_types: Sequence[str] = ("A100",), context_bytes: int = 0) -> RankTrace:
        return RankTrace(self.rank, self.records, self.communicators, gpu_types, context_bytes)

    def _add(self, record: Record) -> int:
        """Its index."""
        self.records.append(record)
        return len(self.records) - 1


def hosts(count: int, nodes: int = 1) -> list[Host]:
    """Ranks with one communicator, number 0, of which each is a member."""
    members = tuple((f"node-{rank * nodes // count}", rank) for rank in range(count))
    return [Host(rank, communicators={0: Communicator(0, "world", rank, members)}) for rank in range(count)]


def run(*ranks: Host, stated: Stated | None = None) -> tuple[RankRun, ...]:
    """The ranks' runs with the durations that their calls state."""
    stated = stated or Stated()
    return simulate(Trace([rank.trace() for rank in ranks]), lambda place, device: stated, stated)


def times(run: RankRun) -> dict[int, tuple[int, int]]:
    """Start and end by the index of the record."""
    spans = (run.device_work, run.collectives, run.host_waits)
    return {
        record: (start, end)
        for each in spans
        for record, start, end in zip(each.records, each.starts_ns, each.ends_ns, strict=True)
    }
