"""What a rank's program asked of its devices, in the order in which it asked: the records of a trace.

A trace has no durations of device work: `estimators.py` gives them for a GPU type, and `simulation.py` finds what ran when. Host
times are nanoseconds since the trace began, without the time that the program waited for its devices.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from enum import IntEnum


class WorkKind(IntEnum):
    """What a piece of work is, by which its time is estimated; the numbers are those of emu_work_kind in cuda/src/core/core.h."""

    KERNEL = 0
    PRODUCT = 1
    CONVOLUTION = 2
    ATTENTION = 3
    MEMORY_BOUND = 4


@dataclass(frozen=True, slots=True)
class Work:
    """A kernel, or several that a library call launches. `flops`, `bytes`: operations, and bytes of device memory read and
    written. `precision`: emu_precision. `columns`, `depth`: of a matrix product, 0 for others. `grid`, `block`: of a program's
    own kernel, zeros for others."""

    name: str
    kind: int
    flops: float = 0.0
    bytes: float = 0.0
    precision: int = 1
    columns: float = 0.0
    depth: float = 0.0
    grid: tuple[int, int, int] = (0, 0, 0)
    block: tuple[int, int, int] = (0, 0, 0)


@dataclass(frozen=True, slots=True)
class Record:
    """One call. `at_ns`: host time. `thread`: number of the host's thread, 0 is the first."""

    at_ns: int
    thread: int


@dataclass(frozen=True, slots=True)
class Launch(Record):
    """`dispatched`: by the host. False for the parts of a graph, which the device launches by itself, and for settings of
    memory: the time that a slower measured host needs for a launch doesn't count then."""

    device: int
    stream: int
    work: Work
    dispatched: bool = True


@dataclass(frozen=True, slots=True)
class Copy(Record):
    """`to_device`, `from_device`: -1 is the host. On one device it uses the compute units, otherwise a copy engine."""

    device: int
    stream: int
    to_device: int
    from_device: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Mark(Record):
    """The stream has come to this moment (cudaEventRecord). `moment` is a new number for each record of an event."""

    device: int
    stream: int
    moment: int


@dataclass(frozen=True, slots=True)
class Await(Record):
    """What the stream gets after this begins when `moment` has passed (cudaStreamWaitEvent, or order among default streams)."""

    device: int
    stream: int
    moment: int


@dataclass(frozen=True, slots=True)
class HostWaits(Record):
    """The host's thread goes on when `moment` has passed (synchronisation of an event or stream, a blocking copy)."""

    moment: int


@dataclass(frozen=True, slots=True)
class HostFunction(Record):
    """A function of the host runs when the stream comes to it, for `duration_ns`; the stream waits for it."""

    device: int
    stream: int
    duration_ns: int


@dataclass(frozen=True, slots=True)
class Collective(Record):
    """A rank's part in a collective: the `number`th of its communicator. It begins on all ranks when the last one has come to it.
    `operation`: "all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce" or "send_receive". `bytes`: as nccl-tests
    counts them. `peers`: triples (rank in the communicator, bytes sent to it, bytes received from it), for send_receive."""

    device: int
    stream: int
    communicator: int
    number: int
    operation: str
    bytes: int
    peers: tuple[tuple[int, int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Memory(Record):
    """The process's memory on a device is so large from here on (its context included)."""

    device: int
    used_bytes: int


@dataclass(frozen=True, slots=True)
class Communicator:
    """`key` is equal for all ranks. `members`: host and device index of each rank, by rank.

    `seats`: by rank, the rank of the job whose trace stands for it; (): each rank of the communicator has a trace of its own.
    `network_share`: of a node's network; what is left belongs to communicators of the same kind that other GPUs of the node have.
    """

    number: int
    key: str
    rank: int
    members: tuple[tuple[str, int], ...]
    seats: tuple[int, ...] = ()
    network_share: float = 1.0

    def seat(self, rank: int) -> int:
        """By what a rank of the communicator is known where ranks meet."""
        return self.seats[rank] if self.seats else rank

    @property
    def all_seats(self) -> Set[int]:
        """Those that must come before a collective begins."""
        return frozenset(self.seats or range(len(self.members)))


@dataclass(frozen=True, slots=True)
class RankTrace:
    """What one process did. `gpu_types`: of the emulated devices under which it was recorded, by index. `context_bytes`:
    memory of a CUDA context there. `before_ns`: host time from the process's beginning to its first use of a device,
    `after_ns`: from the last record to its end; 0: not known. `stands_for`: how many ranks of the job do the same, itself among
    them."""

    rank: int
    records: Sequence[Record]
    communicators: Mapping[int, Communicator] = field(default_factory=dict)
    gpu_types: Sequence[str] = ()
    context_bytes: int = 0
    before_ns: int = 0
    after_ns: int = 0
    stands_for: int = 1


@dataclass(frozen=True, slots=True)
class Trace:
    """A job's ranks that were recorded, by rank."""

    ranks: Sequence[RankTrace]

    @property
    def world_size(self) -> int:
        """Ranks of the job."""
        return sum(rank.stands_for for rank in self.ranks)
