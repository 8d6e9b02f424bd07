"""Child processes of a local cluster: started by a fork server, and ended so that none outlives the cluster."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from emulator_runtime.domain.errors import ClusterError

END_S = 1.0
"""How long an ended process may take to go before it is killed (host seconds)."""
FD = "{fd}"
"""Among a child's arguments: the number of its end of the socket pair."""
_MAX_REPLY_BYTES = 4096


class ForkServer:
    """The process that starts the others (emulator_runtime.fork_server). `modules` are imported there, once for all of them.

    It has a process group of its own, as its children have, so that Ctrl-C in a terminal reaches this program only.
    """

    def __init__(self, modules: Sequence[str], log: Path) -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._log = log
        try:
            with log.open("ab") as output:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "emulator_runtime.fork_server", str(theirs.fileno()), *modules],
                    env=_environment({}),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    pass_fds=[theirs.fileno()],
                    process_group=0,
                )
        except OSError as error:
            self._control.close()
            raise ClusterError(f"can't start processes: {error.strerror}; are there too many?") from error
        finally:
            theirs.close()

    def start(self, request: Mapping[str, Any], sock: socket.socket) -> int:
        """The process id. Raises ClusterError where no process can be started."""
        return int(self._ask(request, [sock.fileno()])["pid"])

    def exit_code(self, pid: int) -> int | None:
        """As subprocess.Popen.returncode; None while it runs. Once it has been told, the id may become another's."""
        code = self._ask({"exit_code": pid})["code"]
        return None if code is None else int(code)

    def close(self) -> None:
        """All children must have ended before. Closing twice is closing once."""
        self._control.close()
        self._process.wait()

    def _ask(self, request: Mapping[str, Any], descriptors: Sequence[int] = ()) -> Any:
        try:
            socket.send_fds(self._control, [json.dumps(request).encode()], descriptors)
            if reply := self._control.recv(_MAX_REPLY_BYTES):
                return json.loads(reply)
        except (BrokenPipeError, ConnectionResetError):
            pass
        except OSError as error:
            raise ClusterError(f"can't start processes: {error.strerror}; are there too many?") from error
        cause = _last_line(self._log) or "it was killed"
        raise ClusterError(f"the process that starts the others has ended: {cause}")


class Child:
    """A module's `main` as a process of its own, with one end of a socket pair whose close tells it to end.

    `arguments` may contain FD; `fd_variable` names an environment variable that gets the same number.
    """

    def __init__(
        self,
        server: ForkServer,
        module: str,
        log: Path,
        environment: Mapping[str, str],
        arguments: Sequence[str] = (),
        *,
        fd_variable: str = "",
    ) -> None:
        self.socket, theirs = socket.socketpair()
        self._server, self._log = server, log
        self._code: int | None = None
        request = {
            "module": module,
            "arguments": list(arguments),
            "environment": _environment(environment),
            "log": str(log),
            "fd_argument": FD,
            "fd_variable": fd_variable,
        }
        try:
            self.pid = server.start(request, theirs)
        except ClusterError:
            self.socket.close()
            raise
        finally:
            theirs.close()

    @property
    def alive(self) -> bool:
        return self._exit_code() is None

    def how_it_ended(self) -> str:
        """Wait for a process whose socket is at its end, and say how it ended, with its last words."""
        self.make_sure_it_ended(END_S)
        code = self._exit_code() or 0
        if code < 0:
            return f"killed by {signal.Signals(-code).name}"
        last_line = _last_line(self._log)
        return f"exit code {code}" + (f": {last_line}" if last_line else "")

    def ask_to_end(self) -> None:
        """Close the socket pair and send SIGTERM."""
        self.socket.close()
        if self.alive:
            os.kill(self.pid, signal.SIGTERM)

    def make_sure_it_ended(self, timeout_s: float) -> None:
        """Wait, then kill."""
        if not self._wait(timeout_s):
            os.kill(self.pid, signal.SIGKILL)
            self._wait(None)

    def _exit_code(self) -> int | None:
        if self._code is None:
            self._code = self._server.exit_code(self.pid)
        return self._code

    def _wait(self, timeout_s: float | None) -> bool:
        """Whether it has ended; its id is still its own while `alive` hasn't answered False."""
        if self._exit_code() is None:
            process = os.pidfd_open(self.pid)
            try:
                end = select.poll()
                end.register(process, select.POLLIN)  # readable at its end: pidfd_open(2)
                end.poll(None if timeout_s is None else timeout_s * 1000)
            finally:
                os.close(process)
        return self._exit_code() is not None


def _environment(more: Mapping[str, str]) -> dict[str, str]:
    """This program's, without settings that are meant for other runs."""
    return {name: value for name, value in os.environ.items() if not name.startswith("EMUGPU_")} | dict(more)


def _last_line(log: Path) -> str:
    with contextlib.suppress(OSError):
        return next(iter(reversed(log.read_text(errors="replace").strip().splitlines())), "")[:500]
    return ""
