"""Runs other programs: their output goes to a log, and a failure becomes one line that names what failed."""

from __future__ import annotations

import os
import selectors
import shlex
import signal
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from emulator_runtime.domain.errors import ClusterError
from emulator_runtime.domain.units import NS_PER_S
from emulator_runtime.timing.host import monotonic_ns

_TAIL_LINES = 3
_IDLE_S = 1.0
DEFAULT_TIMEOUT_S = 900.0
BUILD_TIMEOUT_S = 7200.0


@dataclass(frozen=True)
class Done:
    """How a program ended: its exit status and what it printed."""

    status: int
    stdout: str
    stderr: str

    @property
    def ok(self) -> bool:
        return self.status == 0


class Shell:
    """Runs programs with one environment and one log file; `with_env` returns a shell with more variables."""

    def __init__(self, log: Path, environ: Mapping[str, str] | None = None) -> None:
        self.log = log
        self.environ = dict(os.environ if environ is None else environ)

    def with_env(self, **variables: str) -> Shell:
        return Shell(self.log, {**self.environ, **variables})

    def run(
        self,
        *argv: str | Path,
        stdin: str | BinaryIO | None = None,
        cwd: Path | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> str:
        """The program's stdout. Raises ClusterError with its last lines when it fails."""
        done = self.attempt(*argv, stdin=stdin, cwd=cwd, timeout_s=timeout_s)
        if not done.ok:
            raise _failed(argv, done.status, done.stderr.strip() or done.stdout, self.log)
        return done.stdout

    def attempt(
        self,
        *argv: str | Path,
        stdin: str | BinaryIO | None = None,
        cwd: Path | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> Done:
        """The same for a program whose failure is no error. Raises ClusterError if it can't be started or doesn't end in time."""
        words = [str(word) for word in argv]
        handle = subprocess.PIPE if isinstance(stdin, str) else stdin or subprocess.DEVNULL
        try:
            with subprocess.Popen(
                words, stdin=handle, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=cwd, env=self.environ
            ) as process:
                try:
                    out, err = process.communicate(stdin.encode() if isinstance(stdin, str) else None, timeout_s)
                except BaseException:  # a timeout or Ctrl-C: nobody reads the output any more
                    process.kill()
                    raise
        except FileNotFoundError as error:
            raise _not_installed(argv) from error
        except subprocess.TimeoutExpired as error:
            raise self._too_slow(argv, timeout_s) from error
        done = Done(process.returncode, out.decode(errors="replace"), err.decode(errors="replace"))
        self._record(
            f"$ {shlex.join(words)[:2000]}", f"exit {done.status}", done.stdout[-20_000:], done.stderr[-20_000:]
        )
        return done

    def stream(
        self,
        *argv: str | Path,
        on_line: Callable[[str], None],
        on_idle: Callable[[], None] = lambda: None,
        cwd: Path | None = None,
        timeout_s: float = BUILD_TIMEOUT_S,
    ) -> None:
        """Runs a long program and calls `on_line` with each line of stdout and stderr.

        `on_idle` is called about once a second while nothing is printed. When the call ends early (an error, a timeout,
        Ctrl-C), the program's whole process group is killed. Raises ClusterError as `run` does.
        """
        words = [str(word) for word in argv]
        self._record(f"$ {shlex.join(words)[:2000]}")
        try:
            process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                cwd=cwd,
                env=self.environ,
                start_new_session=True,
            )
        except FileNotFoundError as error:
            raise _not_installed(argv) from error
        tail: list[str] = []

        def take(line: str) -> None:
            self._record(line)
            tail[:] = [*tail, line][-2 * _TAIL_LINES :]
            on_line(line)

        with process:
            try:
                self._read_lines(process, take, on_idle, monotonic_ns() + int(timeout_s * NS_PER_S))
                status = process.wait()
            except TimeoutError as error:
                _kill_group(process)
                raise self._too_slow(argv, timeout_s) from error
            except BaseException:
                _kill_group(process)
                raise
        self._record(f"exit {status}")
        if status:
            raise _failed(argv, status, "\n".join(tail), self.log)

    @staticmethod
    def _read_lines(
        process: subprocess.Popen[bytes], take: Callable[[str], None], on_idle: Callable[[], None], deadline_ns: int
    ) -> None:
        """Raises TimeoutError when the deadline passes before the output ends."""
        assert process.stdout is not None
        rest = b""
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while True:
                if monotonic_ns() > deadline_ns:
                    raise TimeoutError
                if not selector.select(_IDLE_S):
                    on_idle()
                    continue
                chunk = os.read(process.stdout.fileno(), 65536)
                *lines, rest = (rest + chunk).split(b"\n")
                for line in [*lines, *([rest] if rest and not chunk else [])]:
                    take(line.decode(errors="replace"))
                if not chunk:
                    return

    def _too_slow(self, argv: tuple[str | Path, ...], timeout_s: float) -> ClusterError:
        self._record(f"{_short(argv)}: no end after {timeout_s:.0f} s")
        return ClusterError(f"`{_short(argv)}` didn't end within {timeout_s:.0f} s (log: {self.log})")

    def _record(self, *texts: str) -> None:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("a", encoding="utf-8") as log:
            log.writelines(f"{text.rstrip()}\n" for text in texts if text)


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    """The program and its children: compilers of `go`, programs in a chroot of debootstrap."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _failed(argv: tuple[str | Path, ...], status: int, output: str, log: Path) -> ClusterError:
    lines = [line.strip() for line in output.strip().splitlines() if line.strip()]
    tail = " | ".join(lines[-_TAIL_LINES:]) or "no output"
    return ClusterError(f"`{_short(argv)}` ended with {status}: {tail} (all of it: {log})")


def _not_installed(argv: tuple[str | Path, ...]) -> ClusterError:
    return ClusterError(f"{argv[0]}: isn't installed (needed for `{_short(argv)}`)")


def _short(argv: tuple[str | Path, ...]) -> str:
    words = [Path(argv[0]).name, *(str(word) for word in argv[1:])]
    text = " ".join(words)
    return text if len(text) <= 100 else text[:97] + "..."
