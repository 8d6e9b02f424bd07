"""Job processes as a container starts them, beside a manager's socket that a thread of the test answers."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.fake_manager import FakeNode, answering

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def short_directory() -> Iterator[Path]:
    """A directory whose path leaves room for a socket's name."""
    directory = Path(tempfile.mkdtemp(prefix="emugpu-test-"))
    yield directory
    shutil.rmtree(directory)


@pytest.fixture
def serve(short_directory: Path) -> Iterator[Callable[[FakeNode], Path]]:
    """`serve(node)`: the path of a socket where `node` answers."""
    with contextlib.ExitStack() as stack:

        def start(node: FakeNode) -> Path:
            path = short_directory / f"{len(os.listdir(short_directory))}.sock"
            stack.enter_context(answering(path, node))
            return path

        yield start


@pytest.fixture
def emugpu() -> Iterator[Start]:
    """`emugpu(socket, "train", ..., token="t", VARIABLE="value")`; what still runs after the test is ended."""
    processes: list[subprocess.Popen[str]] = []

    def start(path: Path | None, *arguments: str, token: str = "t", **variables: str) -> subprocess.Popen[str]:
        environ = {name: value for name, value in os.environ.items() if not name.startswith(("EMUGPU_", "JOB_"))}
        if path is not None:
            environ |= {"EMUGPU_TOKEN": token, "EMUGPU_MANAGER_SOCKET": str(path)}
        processes.append(
            subprocess.Popen(
                [sys.executable, "-m", "emugpu", *arguments],
                env=environ | variables,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.communicate()


@pytest.fixture
def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])
