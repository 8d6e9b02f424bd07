"""The fork server and its children: how they start, what they inherit, how they end, and that none is left behind."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from emulator_runtime.domain.errors import ClusterError
from scheduler_sims.clusters.local.processes import FD, Child, ForkServer

pytestmark = pytest.mark.processes

PROGRAM = """
import os, signal, socket, sys
IMPORTED_BY = os.getpid()

def main(argv):
    control = socket.socket(fileno=int(argv[1]))
    if argv[0] == "report":
        facts = [os.environ.get("EMUGPU_X"), os.environ.get("EMUGPU_LEFT_OVER"), os.environ.get("LIFELINE") == argv[1]]
        facts += [IMPORTED_BY == os.getppid(), os.getpgid(0) == os.getpid(), sys.stdin.read()]
        control.send(repr(facts).encode())
        return 3
    if argv[0] == "raise":
        raise ZeroDivisionError("by nothing")
    if argv[0] == "exit":
        sys.exit("not today") if argv[2:] else sys.exit(4)
    if argv[0] == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    control.send(b"ready")
    if argv[0] == "patient":
        while control.recv(1):
            pass
        return 0
    signal.pause()
"""


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ForkServer]:
    (tmp_path / "program_of_test.py").write_text(PROGRAM)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
    server = ForkServer(["program_of_test"], tmp_path / "server")
    yield server
    server.close()
    server.close()


@pytest.fixture
def child(server: ForkServer, tmp_path: Path) -> Iterator[Callable[..., Child]]:
    children: list[Child] = []

    def child(*arguments: str) -> Child:
        first, *rest = arguments
        environment = {"EMUGPU_X": "7"}
        children.append(
            Child(server, "program_of_test", tmp_path / "log", environment, [first, FD, *rest], fd_variable="LIFELINE")
        )
        return children[-1]

    yield child
    for each in children:
        each.socket.close()


def test_a_child_is_a_process_of_its_own_with_what_was_imported(
    child: Callable[..., Child], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMUGPU_LEFT_OVER", "of another program")
    process = child("report")
    assert process.socket.recv(4096) == b"['7', None, True, True, True, '']"
    assert process.exit_description() == "exit code 3"
    assert not process.alive


@pytest.mark.parametrize(
    ("arguments", "how"),
    [
        (["raise"], "exit code 1: ZeroDivisionError: by nothing"),
        (["exit"], "exit code 4"),
        (["exit", "with words"], "exit code 1: not today"),
    ],
)
def test_how_it_ended(child: Callable[..., Child], arguments: list[str], how: str) -> None:
    process = child(*arguments)
    assert process.socket.recv(1) == b""
    assert process.exit_description() == how


def test_killed_processes_are_reported_as_such(child: Callable[..., Child]) -> None:
    one, two = child("wait"), child("stubborn")
    assert one.socket.recv(5) == two.socket.recv(5) == b"ready"
    assert one.alive and two.alive
    one.terminate()
    two.terminate()
    one.kill_after(20)
    two.kill_after(0.1)
    assert (one.exit_description(), two.exit_description()) == ("killed by SIGTERM", "killed by SIGKILL")


def test_the_end_of_its_socket_tells_a_child_to_end(child: Callable[..., Child]) -> None:
    patient = child("patient")
    assert patient.socket.recv(5) == b"ready"
    other = child("wait")  # holds no copy of the other's end
    patient.socket.close()
    patient.kill_after(20)
    assert patient.exit_description() == "exit code 0"
    other.terminate()
    other.kill_after(20)


def test_a_server_that_was_killed_is_an_error_that_says_so(server: ForkServer, child: Callable[..., Child]) -> None:
    os.kill(server._process.pid, signal.SIGKILL)
    with pytest.raises(ClusterError, match="the process that starts the others has ended: it was killed"):
        child("wait")


def test_modules_that_cannot_be_imported_are_an_error_with_the_reason(tmp_path: Path) -> None:
    server = ForkServer(["no_such_module_of_ours"], tmp_path / "server")
    deadline_s = time.monotonic() + 20
    while server._process.poll() is None and time.monotonic() < deadline_s:
        time.sleep(0.01)
    with pytest.raises(ClusterError, match="No module named 'no_such_module_of_ours'"):
        Child(server, "json", tmp_path / "log", {})
    server.close()
