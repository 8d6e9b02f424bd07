"""The one place where other programs are run: their output goes into a log, their failure becomes one clear line."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from emulator_runtime.domain.errors import ClusterError

_TAIL_LINES = 3
DEFAULT_TIMEOUT_S = 900.0


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
    """Runs programs with one environment and one log file; `with_env` gives a shell with more variables."""

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
        """What the program printed on stdout. Raises ClusterError with its last words when it fails."""
        done = self.attempt(*argv, stdin=stdin, cwd=cwd, timeout_s=timeout_s)
        if not done.ok:
            raise ClusterError(f"`{_short(argv)}` ended with {done.status}: {_tail(done)} (all of it: {self.log})")
        return done.stdout

    def attempt(
        self,
        *argv: str | Path,
        stdin: str | BinaryIO | None = None,
        cwd: Path | None = None,
        timeout_s: float = DEFAULT_TIMEOUT_S,
    ) -> Done:
        """The same for a program that may fail. Raises ClusterError where it can't be started or doesn't end in time."""
        words = [str(word) for word in argv]
        handle = subprocess.PIPE if isinstance(stdin, str) else stdin or subprocess.DEVNULL
        try:
            with subprocess.Popen(
                words, stdin=handle, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=cwd, env=self.environ
            ) as process:
                try:
                    out, err = process.communicate(stdin.encode() if isinstance(stdin, str) else None, timeout_s)
                except BaseException:  # too late, or Ctrl-C: either way nobody waits for it any more
                    process.kill()
                    raise
        except FileNotFoundError as error:
            raise ClusterError(f"{words[0]}: isn't installed (needed for `{_short(argv)}`)") from error
        except subprocess.TimeoutExpired as error:
            self._record(words, f"no end after {timeout_s:.0f} s")
            raise ClusterError(f"`{_short(argv)}` didn't end within {timeout_s:.0f} s (log: {self.log})") from error
        done = Done(process.returncode, out.decode(errors="replace"), err.decode(errors="replace"))
        self._record(words, f"exit {done.status}\n{done.stdout[-20_000:]}{done.stderr[-20_000:]}")
        return done

    def _record(self, words: list[str], outcome: str) -> None:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("a", encoding="utf-8") as log:
            log.write(f"$ {shlex.join(words)[:2000]}\n{outcome.rstrip()}\n")


def _short(argv: tuple[str | Path, ...]) -> str:
    words = [Path(argv[0]).name, *(str(word) for word in argv[1:])]
    text = " ".join(words)
    return text if len(text) <= 100 else text[:97] + "..."


def _tail(done: Done) -> str:
    lines = [line.strip() for line in (done.stderr.strip() or done.stdout.strip()).splitlines() if line.strip()]
    return " | ".join(lines[-_TAIL_LINES:]) or "no output"
