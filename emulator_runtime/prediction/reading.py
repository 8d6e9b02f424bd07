"""Reads what `emugpu trace` has recorded: a folder with a file for each process, and `trace.json`, which says how.

The files are written by the core of the emulated CUDA libraries; `cuda/src/core/record.c` describes them record by record. A
process that was killed leaves its records up to that moment: its file is read like any other, and isn't `complete`.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from emulator_runtime.domain.errors import InputError
from emulator_runtime.files import write_whole
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
from emulator_runtime.prediction.represented import Communicators, VirtualRanks

MANIFEST = "trace.json"
SUFFIX = ".records"
VERSION = 1
OPERATIONS = {
    1: "all_reduce",
    2: "reduce",
    3: "broadcast",
    4: "all_gather",
    5: "reduce_scatter",
    6: "all_to_all",
    7: "gather",
    8: "scatter",
    9: "send_receive",
}
"""By the numbers of operation_kind in cuda/src/libraries/nccl/link_model.h."""

_MAGIC = b"EMUTRACE"
_HEADER = struct.Struct("<8sIIiI")
_HEAD = struct.Struct("<BBHIq")
_PAIR = struct.Struct("<II")
_LONG = struct.Struct("<Q")
_WORK = struct.Struct("<IIII4d6I")
_COPY = struct.Struct("<iiQ")
_ENDED = struct.Struct("<IIq")
_COMMUNICATOR = struct.Struct("<IiII16s")
_MEMBER = struct.Struct("<Q16s")
_COLLECTIVE = struct.Struct("<IIQQII")
_PEER = struct.Struct("<iIQQ")
_DEVICE = struct.Struct("<16sQQII")


@dataclass(frozen=True, slots=True)
class Manifest:
    """How a trace was recorded. `exit_status`: the program's; None while it runs, or if the recording was killed. `virtual`:
    which ranks stand for others, if not all were recorded."""

    command: tuple[str, ...]
    gpu_type: str
    gpus: int
    exit_status: int | None = None
    version: int = VERSION
    virtual: VirtualRanks | None = None

    def document(self) -> dict[str, Any]:
        """As in trace.json."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {**values, "virtual": self.virtual.document() if self.virtual else None}


@dataclass(frozen=True, slots=True)
class Device:
    """An emulated device of the process that was recorded."""

    gpu_type: str
    uuid: bytes
    memory_bytes: int
    context_bytes: int


@dataclass(frozen=True, slots=True)
class Joined:
    """A communicator as the process knows it. `members`: number of the host and UUID of the device, by rank."""

    key: str
    rank: int
    members: tuple[tuple[int, bytes], ...]


@dataclass(frozen=True, slots=True)
class ProcessRecords:
    """A file of the folder. `rank`: as the program's launcher says; None if it doesn't. `complete`: the process ended by
    itself. `host_ns`: host time of its last record. `file_bytes`: of the file. `before_ns`: from its beginning to its first
    use of a device, without the time for which it had no core; 0: not known."""

    path: Path
    process: int
    rank: int | None
    devices: Sequence[Device]
    records: Sequence[Record]
    communicators: Mapping[int, Joined]
    complete: bool
    host_ns: int
    file_bytes: int
    before_ns: int = 0


def read_trace(folder: Path) -> Trace:
    """The ranks of a recorded job. Raises InputError, and OSError."""
    virtual = read_manifest(folder).virtual if (folder / MANIFEST).is_file() else None
    return trace_of(read_processes(folder), folder, virtual)


def trace_of(processes: Sequence[ProcessRecords], folder: Path, virtual: VirtualRanks | None = None) -> Trace:
    """The ranks among these processes of `folder`. A launcher tells its processes their ranks, else their largest communicator
    does; without either they are ordered by process number. Of processes with the same rank, the one that did most counts,
    since what a rank starts has its environment, too. `virtual`: which ranks stand for others. Raises InputError if ranks are
    missing."""
    ranks: dict[int, ProcessRecords] = {}
    for one in sorted(processes, key=lambda process: len(process.records), reverse=True):
        rank = _rank_of(one)
        if rank is not None:
            ranks.setdefault(rank, one)
    ranks = ranks or dict(enumerate(processes))
    missing = sorted(set(virtual.stands_for if virtual else range(max(ranks) + 1)) - set(ranks))
    if missing:
        absent = ", ".join(map(str, missing[:8])) + (" and more" if len(missing) > 8 else "")
        raise InputError(str(folder), f"has rank {max(ranks)} but not {absent}: record all processes of the job")
    if virtual:
        return Trace(tuple(_virtual_rank(rank, ranks[rank], virtual) for rank in sorted(virtual.stands_for)))
    places = {device.uuid: index for one in processes for index, device in enumerate(one.devices)}
    return Trace(tuple(_rank_trace(rank, ranks[rank], places) for rank in sorted(ranks)))


def _rank_of(process: ProcessRecords) -> int | None:
    if process.rank is not None or not process.communicators:
        return process.rank
    return max(process.communicators.values(), key=lambda joined: len(joined.members)).rank


def _rank_trace(rank: int, process: ProcessRecords, places: Mapping[bytes, int]) -> RankTrace:
    """`places`: indexes of devices. One that no file describes (of a process that isn't in the folder) has -1."""
    communicators = {}
    for number, joined in process.communicators.items():
        members = tuple((f"{host:016x}", places.get(uuid, -1)) for host, uuid in joined.members)
        communicators[number] = Communicator(number, joined.key, joined.rank, members)
    return RankTrace(
        rank,
        process.records,
        communicators,
        tuple(device.gpu_type for device in process.devices),
        process.devices[0].context_bytes if process.devices else 0,
        process.before_ns,
        process.host_ns - process.records[-1].at_ns if process.complete and process.records else 0,
    )


def _virtual_rank(rank: int, process: ProcessRecords, virtual: VirtualRanks) -> RankTrace:
    """Members of a communicator have their ranks in place of a host's number."""
    own = Communicators(virtual, rank)
    communicators = {
        number: own.communicator_of(number, joined.key, joined.rank, [member for member, _ in joined.members])
        for number, joined in sorted(process.communicators.items())
    }
    return replace(
        _rank_trace(rank, process, {}), communicators=communicators, stands_for=len(virtual.stands_for[rank])
    )


def read_processes(folder: Path) -> tuple[ProcessRecords, ...]:
    """The files of a folder, by rank and process number. Raises InputError if there are none or one is wrong, and OSError."""
    paths = sorted(folder.glob(f"*{SUFFIX}"))
    if not paths:
        raise InputError(str(folder), "has no records of a program; `emugpu trace --out FOLDER -- PROGRAM` makes them")
    return tuple(sorted(map(read_process, paths), key=lambda one: (one.rank is None, one.rank or 0, one.process)))


def read_process(path: Path) -> ProcessRecords:
    """One file. Raises InputError, which names the place of what is wrong, and OSError."""
    return _Reader(path, path.read_bytes()).read()


def read_manifest(folder: Path) -> Manifest:
    """Raises InputError if the folder isn't one of `emugpu trace`, and OSError."""
    path = folder / MANIFEST
    if not path.is_file():
        raise InputError(str(folder), f"has no {MANIFEST}; `emugpu trace --out FOLDER -- PROGRAM` makes one")
    try:
        values: Any = json.loads(path.read_bytes())
        virtual = values.get("virtual")
        known = {"command": tuple(values["command"]), "virtual": VirtualRanks.of_document(virtual) if virtual else None}
        manifest = Manifest(**{**values, **known})
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise InputError(str(path), f"isn't the file of a trace: {error}") from error
    if manifest.version != VERSION:
        raise InputError(
            str(path), f"has version {manifest.version}, this emugpu reads {VERSION}: record the program again"
        )
    return manifest


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Raises OSError."""
    write_whole(folder / MANIFEST, json.dumps(manifest.document(), indent=2) + "\n", sync=False)


@dataclass(slots=True)
class _Reader:
    """Goes through a file once. Equal texts, works and members are one object each."""

    path: Path
    data: bytes
    at: int = 0
    names: list[str] = field(default_factory=list)
    works: list[Work] = field(default_factory=list)
    devices: list[Device] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    communicators: dict[int, Joined] = field(default_factory=dict)
    functions: dict[int, int] = field(default_factory=dict)  # index in `records`
    before_ns: int = 0

    def read(self) -> ProcessRecords:
        process, rank = self._header()
        complete, last_ns = False, 0
        read_body = self._bodies()
        try:
            for tag, head in self._heads():
                last_ns = head[3]
                if tag == 14:
                    complete = True
                    break
                if tag not in read_body:
                    raise self._damaged(self.at - _HEAD.size, f"there is no record {tag}")
                read_body[tag](*head)
        except struct.error:
            pass  # the last record was being written when the process was killed
        except IndexError as error:
            raise self._damaged(self.at, "names a kernel that isn't there") from error
        found = ProcessRecords(
            self.path,
            process,
            rank,
            self.devices,
            self.records,
            self.communicators,
            complete,
            last_ns,
            len(self.data),
            self.before_ns,
        )
        self.data = b""
        return found

    def _header(self) -> tuple[int, int | None]:
        if len(self.data) < _HEADER.size or self.data[:8] != _MAGIC:
            raise InputError(str(self.path), "isn't a file of records: it doesn't begin with EMUTRACE")
        _, version, process, rank, _ = _HEADER.unpack_from(self.data)
        if version != VERSION:
            raise InputError(
                str(self.path), f"has version {version}, this emugpu reads {VERSION}: record the program again"
            )
        self.at = _HEADER.size
        return process, None if rank < 0 else rank

    def _damaged(self, place: int, problem: str) -> InputError:
        return InputError(str(self.path), f"byte {place}: {problem}; the file is damaged, record the program again")

    def _heads(self) -> Iterator[tuple[int, tuple[int, int, int, int]]]:
        """Tag, and (device, thread, stream, host time) of each record."""
        unpack, data, size = _HEAD.unpack_from, self.data, _HEAD.size
        while self.at + size <= len(data) and data[self.at]:
            tag, *head = unpack(data, self.at)
            self.at += size
            yield tag, (head[0], head[1], head[2], head[3])

    def _take(self, shape: struct.Struct) -> tuple[Any, ...]:
        values = shape.unpack_from(self.data, self.at)
        self.at += shape.size
        return values

    def _text(self, size: int) -> str:
        return str(self._take(struct.Struct(f"{size}s"))[0], "utf-8", "replace")

    def _bodies(self) -> dict[int, Callable[[int, int, int, int], None]]:
        return {
            1: self._name,
            2: self._work,
            3: self._launch,
            4: self._copy,
            5: self._mark,
            6: self._await,
            7: self._host_waits,
            8: self._host_function,
            9: self._function_ended,
            10: self._memory,
            11: self._communicator,
            12: self._collective,
            13: self._device,
        }

    def _name(self, device: int, thread: int, stream: int, at_ns: int) -> None:
        self.names.append(self._text(self._take(_PAIR)[0]))

    def _work(self, device: int, thread: int, stream: int, at_ns: int) -> None:
        name, kind, precision, _, flops, size, columns, depth, *threads = self._take(_WORK)
        grid, block = (threads[0], threads[1], threads[2]), (threads[3], threads[4], threads[5])
        self.works.append(Work(self.names[name], kind, flops, size, precision, columns, depth, grid, block))

    def _launch(self, device: int, thread: int, stream: int, at_ns: int) -> None:
        work, by_host = self._take(_PAIR)
        self.records.append(Launch(at_ns, thread, device, stream, self.works[work], bool(by_host)))

    def _copy(self, device: int, thread: int, stream: int, at_ns: int) -> None:
        self.records.append(Copy(at_ns, thread, device, stream, *self._take(_COPY)))

    def _mark(self, device: int, thread: int, stream: int, at_ns: int) -> None:
        self.records.append(Mark(at_ns, thread, device, stream, self._take(_PAIR)[0]))

    def _await(self, device: int, thread: int, stream: int, at_ns: int) -> None:
        self.records.append(Await(at_ns, thread, device, stream, self._take(_PAIR)[0]))

    def _host_waits(self, device: int, thread: int, stream: int, at_ns: int) -> None:
        self.records.append(HostWaits(at_ns, thread, self._take(_PAIR)[0]))

    def _host_function(self, device: int, thread: int, stream: int, at_ns: int) -> None:
        number = self._take(_PAIR)[0]
        self.functions[number] = len(self.records)
        self.records.append(HostFunction(at_ns, thread, device, stream, 0))  # until its end is read

    def _function_ended(self, device: int, thread: int, stream: int, at_ns: int) -> None:
        number, _, took_ns = self._take(_ENDED)
        place = self.functions.pop(number, None)
        begun = None if place is None else self.records[place]
        if place is not None and isinstance(begun, HostFunction):
            self.records[place] = replace(begun, duration_ns=took_ns)

    def _memory(self, device: int, thread: int, stream: int, at_ns: int) -> None:
        self.records.append(Memory(at_ns, thread, device, self._take(_LONG)[0]))

    def _communicator(self, device: int, thread: int, stream: int, at_ns: int) -> None:
        number, rank, ranks, _, key = self._take(_COMMUNICATOR)
        members = [self._take(_MEMBER) for _ in range(ranks)]
        self.communicators[number] = Joined(key.hex(), rank, tuple((host, uuid) for host, uuid in members))

    def _collective(self, device: int, thread: int, stream: int, at_ns: int) -> None:
        communicator, operation, number, size, count, _ = self._take(_COLLECTIVE)
        peers = tuple((rank, sent, received) for rank, _, sent, received in (self._take(_PEER) for _ in range(count)))
        name = OPERATIONS.get(operation)
        if name is None:
            raise self._damaged(self.at, f"there is no collective {operation}")
        self.records.append(Collective(at_ns, thread, device, stream, communicator, number, name, size, peers))

    def _device(self, device: int, thread: int, stream: int, at_ns: int) -> None:
        uuid, memory_bytes, context_bytes, size, _ = self._take(_DEVICE)
        self.devices.append(Device(self._text(size), uuid, memory_bytes, context_bytes))
        self.before_ns = -at_ns  # the process's beginning
