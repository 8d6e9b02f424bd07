"""Starts the ranks of a job that differ, each as if all others were there (`emugpu trace --world-size`)."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from emulator_runtime.domain.errors import InputError
from emulator_runtime.domain.units import NS_PER_S
from emulator_runtime.prediction.reading import SUFFIX, ProcessRecords, read_process
from emulator_runtime.prediction.represented import VirtualRanks
from emulator_runtime.timing.host import monotonic_ns, sleep_ns
from emulator_runtime.virtual_ranks import hooks_folder
from emulator_runtime.virtual_ranks.layout import Layout
from emulator_runtime.virtual_ranks.repetition import Reference, differs, reference, repeated, rolling

OBJECTS = "objects"
"""The folder of what ranks leave for each other, within the trace's folder."""
_POLL_NS, _COMPARE_NS = NS_PER_S // 20, 2 * NS_PER_S
_LAST_LINES = 30
_MOST_RANKS = 4096


@dataclass(frozen=True, slots=True)
class Job:
    """A job with virtual ranks. `layout`: None: ranks that repeat another one are found by what they do."""

    world_size: int
    gpus_per_node: int
    at_once: int
    layout: Layout | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.world_size <= _MOST_RANKS:
            raise InputError("--world-size", f"must be from 1 to {_MOST_RANKS}, not {self.world_size}")
        if self.gpus_per_node < 1:
            raise InputError("--gpus-per-node", f"must be at least 1, not {self.gpus_per_node}")
        if self.at_once < 1:
            raise InputError("--at-once", f"must be at least 1, not {self.at_once}")

    def variables(self, rank: int, port: int) -> dict[str, str]:
        """The variables that torchrun sets for a rank."""
        local, per_node = rank % self.gpus_per_node, min(self.gpus_per_node, self.world_size)
        return {
            "RANK": str(rank),
            "WORLD_SIZE": str(self.world_size),
            "LOCAL_RANK": str(local),
            "LOCAL_WORLD_SIZE": str(per_node),
            "GROUP_RANK": str(rank // self.gpus_per_node),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(port),
        }


@dataclass(slots=True)
class Outcome:
    """`status`: of the first rank that failed, else 0."""

    status: int
    virtual: VirtualRanks


Environment = Callable[[int], Mapping[str, str]]
"""That of a rank, by which it finds the emulated libraries; its records are in files rank-RANK-*.records."""


def run_job(
    job: Job, command: Sequence[str], path: str, environ: Environment, folder: Path, *, silent: bool
) -> Outcome:
    """Runs ranks of the program `path`, `job.at_once` at a time; the records of those that stand for others stay in `folder`.

    The first rank's output is the command's; that of the others is in files of the folder. Raises InputError and OSError.
    """
    return _Runner(job, command, path, environ, folder, silent).run()


@dataclass(slots=True)
class _Running:
    rank: int
    child: subprocess.Popen[bytes]
    output: IO[bytes] | None
    compared_ns: int
    differs: bool = False


@dataclass(slots=True)
class _Runner:
    job: Job
    command: Sequence[str]
    path: str
    environ: Environment
    folder: Path
    silent: bool
    port: int = field(default_factory=lambda: _free_port())
    running: list[_Running] = field(default_factory=list)
    references: list[Reference] = field(default_factory=list)
    stands_for: dict[int, list[int]] = field(default_factory=dict)
    ended: set[int] = field(default_factory=set)
    interrupted: int = 0

    def run(self) -> Outcome:
        layout = self.job.layout.stands_for() if self.job.layout else None
        self.stands_for = {rank: list(ranks) for rank, ranks in layout.items()} if layout else {}
        waiting = deque(sorted(layout) if layout else range(self.job.world_size))
        (self.folder / OBJECTS).mkdir(exist_ok=True)
        status = 0
        before = {
            number: signal.signal(number, self._interrupt) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        }
        try:
            while (waiting or self.running) and status == 0 and not self.interrupted:
                while waiting and len(self.running) < self.job.at_once:
                    self._start(waiting.popleft(), layout)
                sleep_ns(_POLL_NS)
                status = self._look(layout)
        finally:
            for one in tuple(self.running):
                self._stop(one)
            for number, handler in before.items():
                signal.signal(number, handler)
        if self.interrupted:
            status = status or 128 + self.interrupted
        known = {rank: tuple(ranks) for rank, ranks in sorted(self.stands_for.items())}
        return Outcome(status, VirtualRanks(self.job.world_size, self.job.gpus_per_node, known))

    def _interrupt(self, number: int, _frame: object) -> None:
        self.interrupted = number

    # ---- processes

    def _start(self, rank: int, layout: Mapping[int, object] | None) -> None:
        first = not self.ended and not self.running
        output = None if first else (self.folder / f"rank-{rank}.log").open("wb")
        present = [one.rank for one in self.running] + sorted(self.ended) + [rank]
        if layout is not None:  # those that come next will run beside it
            later = [other for other in sorted(layout) if other not in present]
            present += later[: self.job.at_once - len(self.running) - 1]
        else:
            present += range(rank + 1, min(self.job.world_size, rank + self.job.at_once - len(self.running)))
        environ = self.environ(rank)
        others = environ.get("PYTHONPATH")
        variables = {
            **self.job.variables(rank, self.port),
            "EMUGPU_VIRTUAL_RANKS": str(self.job.world_size),
            "EMUGPU_VIRTUAL_FOLDER": str(self.folder / OBJECTS),
            "EMUGPU_VIRTUAL_PRESENT": ",".join(map(str, present)),
            "PYTHONPATH": str(hooks_folder()) + (os.pathsep + others if others else ""),
            "TORCH_NCCL_ENABLE_MONITORING": environ.get("TORCH_NCCL_ENABLE_MONITORING", "0"),
        }
        child = subprocess.Popen(
            self.command,
            executable=self.path,
            env={**environ, **variables},
            stdout=output or (sys.stderr if self.silent else None),
            stderr=subprocess.STDOUT if output else None,
        )
        self.running.append(_Running(rank, child, output, monotonic_ns()))

    def _look(self, layout: Mapping[int, object] | None) -> int:
        """See to those that have ended, or repeat another one; the status of one that failed."""
        for one in tuple(self.running):
            status = one.child.poll()
            if status is not None:
                self._forget(one)
                if status != 0:
                    self._show_end_of(one.rank)
                    return status if status > 0 else 128 - status
                if layout is None:
                    self._judge(one, ended=True)
            elif (
                layout is None
                and self.references
                and not one.differs
                and monotonic_ns() > one.compared_ns + _COMPARE_NS
            ):
                one.compared_ns = monotonic_ns()
                self._judge(one, ended=False)
        return 0

    def _stop(self, one: _Running) -> None:
        one.child.kill()
        one.child.wait()
        self._forget(one)

    def _forget(self, one: _Running) -> None:
        self.running.remove(one)
        self.ended.add(one.rank)
        (self.folder / OBJECTS / f"ended-{one.rank}").touch()
        if one.output:
            one.output.close()

    def _show_end_of(self, rank: int) -> None:
        path = self.folder / f"rank-{rank}.log"
        lines = path.read_text(errors="replace").splitlines()[-_LAST_LINES:] if path.is_file() else []
        print(*lines, f"emugpu: rank {rank} failed; its output is above", sep="\n", file=sys.stderr)

    # ---- repetition

    def _judge(self, one: _Running, *, ended: bool) -> None:
        process = self._records_of(one.rank)
        if process is None:
            if ended:
                self.stands_for[one.rank] = [one.rank]
            return
        found = rolling(process, one.rank, self.job.gpus_per_node)
        other = repeated(found, self.references, ended=ended)
        if other is not None:
            if not ended:
                self._stop(one)
            self.stands_for[other].append(one.rank)
            self._delete(one.rank)
        elif ended:
            self.references.append(reference(process, found))
            self.stands_for[one.rank] = [one.rank]
        else:
            one.differs = differs(found, self.references)

    def _records_of(self, rank: int) -> ProcessRecords | None:
        """The file of a rank's process that did most."""
        found = [process for path in self.folder.glob(f"rank-{rank}-*{SUFFIX}") if (process := _readable(path))]
        return max(found, key=lambda process: len(process.records), default=None)

    def _delete(self, rank: int) -> None:
        for path in self.folder.glob(f"rank-{rank}-*"):
            path.unlink()
        (self.folder / f"rank-{rank}.log").unlink(missing_ok=True)


def _readable(path: Path) -> ProcessRecords | None:
    """None: the process has only made the file."""
    try:
        return read_process(path)
    except InputError:
        return None


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
