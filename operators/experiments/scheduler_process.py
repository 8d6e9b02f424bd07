"""The scheduler program of a run, as a child process: started before the jobs, restarted when it dies, ended with the run."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from emulator_runtime.domain.errors import ClusterError
from operators.experiments.scheduler_output import Complaint, Decision, parsed

MAX_RESTARTS = 5
READY_S = 60.0
"""Maximum time until its first line: it imports its libraries, connects and acquires its lease."""
_END_S = 10.0
_LINES_OF_AN_ERROR = 3


@dataclass(frozen=True, slots=True)
class Files:
    """Where the program's output goes: `decisions` is its stdout (a JSON document per line), `log` its stderr."""

    decisions: Path
    log: Path

    @classmethod
    def within(cls, directory: Path, name: str) -> Files:
        return cls(directory / f"{name}.jsonl", directory / f"{name}.log")


class SchedulerProcess:
    """Use as a context manager. `command` prints decisions and complaints to stdout, one JSON document per line.

    `say` gets each complaint, and a sentence about each restart.
    """

    def __init__(self, command: Sequence[str], files: Files, say: Callable[[str], None]) -> None:
        self._command, self._files, self._say = tuple(command), files, say
        self._process: subprocess.Popen[bytes] | None = None
        self._read = 0
        """How many bytes of its output have been searched for complaints."""
        self._size_at_start = 0
        self.restarts = 0

    def __enter__(self) -> SchedulerProcess:
        self._files.decisions.write_bytes(b"")
        self._files.log.write_bytes(b"")
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    @property
    def pid(self) -> int:
        """Of the running process; 0: there is none."""
        return self._process.pid if self._process is not None else 0

    @property
    def ready(self) -> bool:
        """Whether it has printed its first line: it has read the cluster's state then."""
        return self._files.decisions.stat().st_size > 0

    def check(self) -> None:
        """Pass on new complaints, and restart the program if it has died.

        Raises ClusterError with its last lines where it died too often or says itself that a restart is useless, and with a
        complaint that can never be resolved on this cluster.
        """
        for complaint in self._new_complaints():
            if not complaint.retry:
                raise ClusterError(f"the scheduler can't go on: {complaint}")
            self._say(f"the scheduler: {complaint}")
        status = self._process.poll() if self._process is not None else None
        if status in (None, 0):  # 0: all jobs have ended
            return
        if self.restarts >= MAX_RESTARTS or (status == 2 and not self._may_pass):
            raise ClusterError(f"the scheduler ended with status {status}: {self.last_lines()}")
        self.restarts += 1
        self._say(f"the scheduler ended with status {status} and is restarted")
        self._start()

    @property
    def _may_pass(self) -> bool:
        """Whether an error (status 2) may pass: the same arguments were right before, and it ended before it was ready,
        so it could not reach the cluster."""
        return self.restarts > 0 and self._files.decisions.stat().st_size == self._size_at_start

    def end(self) -> None:
        """May be called twice."""
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
        """All until now, in order."""
        with self._files.decisions.open(encoding="utf-8", errors="replace") as file:
            return [found for line in file if isinstance(found := parsed(line), Decision)]

    def _new_complaints(self) -> Iterator[Complaint]:
        """Of the lines that are complete and have not been read before."""
        with self._files.decisions.open("rb") as file:
            file.seek(self._read)
            data = file.read()
        complete = data[: data.rfind(b"\n") + 1]
        self._read += len(complete)
        for line in complete.decode("utf-8", errors="replace").splitlines():
            if isinstance(found := parsed(line), Complaint):
                yield found

    def _start(self) -> None:
        self._size_at_start = self._files.decisions.stat().st_size
        with self._files.decisions.open("ab") as out, self._files.log.open("ab") as log:
            # In a session of its own: Ctrl-C at the terminal must reach this program only, which ends the scheduler in order.
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=out, stderr=log, start_new_session=True
            )

    def notes(self) -> list[str]:
        """Sentences for the report."""
        times = "once" if self.restarts == 1 else f"{self.restarts} times"
        return [f"the scheduler died and was restarted {times}"] if self.restarts else []

    def last_lines(self) -> str:
        """The end of its log, in one line."""
        lines = self._files.log.read_text(encoding="utf-8", errors="replace").splitlines()
        last = " / ".join(line.strip() for line in lines[-_LINES_OF_AN_ERROR:] if line.strip())
        return last or "its log is empty"
