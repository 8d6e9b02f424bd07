"""The scheduler program as a child of an experiment: started before the jobs, started again when it dies, ended with the run."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from emulator_runtime.domain.errors import ClusterError
from operators.experiments.calibration.probes import Decision
from operators.kube.documents import whole_at
from operators.kube.timestamps import ns_of

MOST_RESTARTS = 5
READY_S = 60.0
"""It imports, connects and gets its lease; a busy machine takes its time."""
_END_S = 10.0
_LINES_OF_AN_ERROR = 3


@dataclass(frozen=True, slots=True)
class Files:
    """Where its lines go: decisions (JSON), and what it says to people."""

    decisions: Path
    said: Path

    @classmethod
    def within(cls, directory: Path, name: str) -> Files:
        return cls(directory / f"{name}.jsonl", directory / f"{name}.log")


class SchedulerProcess:
    """Use as a context manager. `command` is run with its decisions on stdout, one JSON document a line."""

    def __init__(self, command: Sequence[str], files: Files, say: Callable[[str], None]) -> None:
        self._command, self._files, self._say = tuple(command), files, say
        self._process: subprocess.Popen[bytes] | None = None
        self.restarts = 0

    def __enter__(self) -> SchedulerProcess:
        self._files.decisions.write_bytes(b"")
        self._files.said.write_bytes(b"")
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    @property
    def pid(self) -> int:
        """Of the present process; 0: there is none."""
        return self._process.pid if self._process is not None else 0

    @property
    def ready(self) -> bool:
        """Whether it has said its first line: it knows the cluster then."""
        return self._files.decisions.stat().st_size > 0

    def check(self) -> None:
        """Start it again where it has died. Raises ClusterError with its last words where that was too often or no accident."""
        status = self._process.poll() if self._process is not None else None
        if status is None:
            return
        if status == 0:
            return  # it has done what it was to do
        if self.restarts >= MOST_RESTARTS or status == 2:
            raise ClusterError(f"the scheduler ended with status {status}: {self.last_words()}")
        self.restarts += 1
        self._say(f"the scheduler ended with status {status}; it is started again")
        self._start()

    def end(self) -> None:
        """Twice is once."""
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def decisions(self) -> list[Decision]:
        """All until now, in order; a line that was cut off by a kill is left out."""
        with self._files.decisions.open(encoding="utf-8", errors="replace") as file:
            return list(_decisions(file))

    def _start(self) -> None:
        with self._files.decisions.open("ab") as out, self._files.said.open("ab") as said:
            # A session of its own: Ctrl-C at the terminal is for us, who ends it in order.
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=out, stderr=said, start_new_session=True
            )

    def notes(self) -> list[str]:
        """What a report must say of it."""
        times = "once" if self.restarts == 1 else f"{self.restarts} times"
        return [f"the scheduler died and was started again {times}"] if self.restarts else []

    def last_words(self) -> str:
        """The end of what it said, in one line."""
        lines = self._files.said.read_text(encoding="utf-8", errors="replace").splitlines()
        return " / ".join(line.strip() for line in lines[-_LINES_OF_AN_ERROR:] if line.strip()) or "it said nothing"


def _decisions(lines: IO[str]) -> Iterator[Decision]:
    for line in lines:
        document = _document(line)
        at_ns = ns_of(str(document.get("at", "")))
        if at_ns is not None and "started" in document:  # else it is the line that says that it is ready
            jobs = whole_at(document, "queued") + whole_at(document, "holding")
            yield Decision(at_ns, tuple(document.get("started", ())), tuple(document.get("stopped", ())), jobs)


def _document(line: str) -> dict[str, Any]:
    try:
        document = json.loads(line)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}
