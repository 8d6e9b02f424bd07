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
"""How long a process may take to exit before it is killed (host seconds)."""
FD = "{fd}"
"""Among a child's arguments: the number of its end of the socket pair."""
_MAX_REPLY_BYTES = 4096


class ForkServer:
    """The process that forks all others (emulator_runtime.fork_server). `modules` are imported there, once for all children.

    The server and its children have process groups of their own, so that Ctrl-C in a terminal reaches this program only.
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
        """Fork a process; returns its id. Raises ClusterError if no process can be started."""
        return int(self._ask(request, [sock.fileno()])["pid"])

    def exit_code(self, pid: int) -> int | None:
        """Like subprocess.Popen.returncode; None while the process runs. Afterwards the kernel may reuse the process id."""
        code = self._ask({"exit_code": pid})["code"]
        return None if code is None else int(code)

    def close(self) -> None:
        """End the server; all children must have ended. May be called twice."""
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
    """A process that runs a module's `main`. It has one end of a socket pair and ends when the other end is closed.

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

    def exit_description(self) -> str:
        """Wait for the process, whose socket is closed; returns its exit code or signal, with the last line of its log."""
        self.kill_after(END_S)
        code = self._exit_code() or 0
        if code < 0:
            return f"killed by {signal.Signals(-code).name}"
        last_line = _last_line(self._log)
        return f"exit code {code}" + (f": {last_line}" if last_line else "")

    def terminate(self) -> None:
        """Close the socket pair and send SIGTERM."""
        self.socket.close()
        if self.alive:
            os.kill(self.pid, signal.SIGTERM)

    def kill_after(self, timeout_s: float) -> None:
        """Wait for the end; after `timeout_s` kill the process."""
        if not self._wait(timeout_s):
            os.kill(self.pid, signal.SIGKILL)
            self._wait(None)

    def _exit_code(self) -> int | None:
        if self._code is None:
            self._code = self._server.exit_code(self.pid)
        return self._code

    def _wait(self, timeout_s: float | None) -> bool:
        """Wait; returns whether the process has ended. The process id is valid until `_exit_code` has returned a value."""
        if self._exit_code() is None:
            process = os.pidfd_open(self.pid)
            try:
                end = select.poll()
                end.register(process, select.POLLIN)  # readable when the process has ended: pidfd_open(2)
                end.poll(None if timeout_s is None else timeout_s * 1000)
            finally:
                os.close(process)
        return self._exit_code() is not None


def _environment(more: Mapping[str, str]) -> dict[str, str]:
    """This program's environment without EMUGPU_* settings, which are meant for other runs, plus `more`."""
    return {name: value for name, value in os.environ.items() if not name.startswith("EMUGPU_")} | dict(more)


def _last_line(log: Path) -> str:
    with contextlib.suppress(OSError):
        return next(iter(reversed(log.read_text(errors="replace").strip().splitlines())), "")[:500]
    return ""
