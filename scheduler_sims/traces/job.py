"""What every format is turned into: a job of a trace, or the reason why a row of it is no job."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from emulator_runtime.domain.errors import InputError
from scheduler_sims.traces.rows import Row, Rows

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class TraceJob:
    """A job as its trace has it.

    `submit_s`: on the trace's own clock. `duration_s`: how long it ran on its GPUs. `gpus`: on all its nodes together, a part of
    a GPU as a fraction. `nodes`: None if the trace doesn't say. `cpus`, `memory_gib`: on all its nodes together; 0: not stated.
    `group`: what the trace has above users, such as a virtual cluster. `finished`: whether it ended well.
    """

    job_id: str
    submit_s: float
    duration_s: float
    gpus: float
    user: str = ""
    group: str = ""
    nodes: int | None = None
    cpus: float = 0.0
    memory_gib: float = 0.0
    gpu_types: tuple[str, ...] = ()
    model: str = ""
    weight: float = 1.0
    finished: bool = True


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A row that is right, but no job that could run again, such as one that never started."""

    reason: str


Entry = TraceJob | LeftOut
NEVER_RAN = LeftOut("never started")
STILL_RAN = LeftOut("still ran when the trace ended")


@dataclass(slots=True)
class Source:
    """What is read, and what happens with bad rows.

    `paths`: the files that the user named. `durations`: the folder or file with speeds, for formats that have no durations
    (`--durations`). `gpu`: the GPU type that these are taken of (`--gpu`). `bad`: the number of bad rows that were skipped; the
    first one's message is `first_bad`.
    """

    paths: Sequence[Path]
    durations: Path | None = None
    gpu: str = ""
    skip_bad: bool = False
    bad: int = 0
    first_bad: str = ""

    def parsed(self, rows: Rows, parse: Callable[[Row], T]) -> Iterator[T]:
        """`parse` of each row, without the bad ones if these are skipped. Raises InputError for a bad one otherwise."""
        for row in rows:
            try:
                row.check()
                value = parse(row)
            except InputError as error:
                self._note(error)
            else:
                yield value

    def job_id(self, row: Row, own: str = "") -> str:
        """A job's id, unique also if several files have the same ids; of a row without one it is the row's number."""
        name = own or str(row.number)
        return name if len(self.paths) == 1 else f"{self.paths.index(row.path) + 1}-{name}"

    def _note(self, error: InputError) -> None:
        if not self.skip_bad:
            raise InputError(
                error.place, f"{str(error).removeprefix(f'{error.place}: ')}; correct it, or use --skip-bad"
            ) from error
        self.bad += 1
        self.first_bad = self.first_bad or str(error)


@dataclass(frozen=True, slots=True)
class TraceFormat:
    """One format. `files`: what FILE is. `origin`: where the format is defined. `read`: all entries, row by row."""

    title: str
    files: str
    origin: str
    read: Callable[[Source], Iterator[Entry]]
