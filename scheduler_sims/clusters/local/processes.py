"""Starting and ending child processes so that none outlives the cluster."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from emulator_runtime.domain.errors import ClusterError

END_S = 1.0
"""How long an ended process may take to go before it is killed (host seconds)."""


class Child:
    """A Python module that runs as a process of its own, with one end of a socket pair whose close tells it to end.

    It gets a process group of its own, so that Ctrl-C in a terminal reaches this program only, which then ends it.
    """

    def __init__(
        self, module: str, arguments: Sequence[str], environment: Mapping[str, str], log: Path, fd_variable: str = ""
    ) -> None:
        self.socket, theirs = socket.socketpair()
        fd = str(theirs.fileno())
        self._log = log
        environ = {name: value for name, value in os.environ.items() if not name.startswith("EMUGPU_")}
        environ |= environment
        if fd_variable:
            environ[fd_variable] = fd
        try:
            with log.open("ab") as errors:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", module, *(fd if a == "{fd}" else a for a in arguments)],
                    env=environ,
                    stdin=subprocess.DEVNULL,
                    stdout=errors,
                    stderr=errors,
                    pass_fds=[theirs.fileno()],
                    process_group=0,
                )
        except OSError as error:
            self.socket.close()
            raise ClusterError(f"can't start {module}: {error.strerror}; are there too many processes?") from error
        finally:
            theirs.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def how_it_ended(self) -> str:
        """Wait for a process whose socket is at its end, and say how it ended, with its last words."""
        try:
            code = self._process.wait(END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        if code < 0:
            return f"killed by {signal.Signals(-code).name}"
        lines = self._log.read_text(errors="replace").strip().splitlines() if self._log.exists() else []
        return f"exit code {code}" + (f": {lines[-1][:500]}" if lines else "")

    def ask_to_end(self) -> None:
        """Close the socket pair and send SIGTERM."""
        self.socket.close()
        if self.alive:
            self._process.terminate()

    def make_sure_it_ended(self, timeout_s: float) -> None:
        """Wait, then kill."""
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
