"""Our own Docker engine: its configuration, its end, and that kernel settings are restored."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from cluster_harness.offline import runc_wrapper
from cluster_harness.offline.docker_daemon import INOTIFY, OwnDaemon
from cluster_harness.shell import Shell
from emulator_runtime.domain.errors import ClusterError


def program(directory: Path, name: str, text: str) -> None:
    directory.mkdir(exist_ok=True)
    file = directory / name
    file.write_text(text)
    file.chmod(0o755)


@pytest.fixture
def sysctl(tmp_path: Path) -> Path:
    directory = tmp_path / "inotify"
    directory.mkdir()
    (directory / "max_user_instances").write_text("128\n")
    (directory / "max_user_watches").write_text(f"{INOTIFY['max_user_watches'] * 2}\n")
    return directory


DAEMON = """#!{python} -IS
import os, pathlib, signal, socket, sys
arguments = sys.argv[1:]
option = lambda name: arguments[arguments.index(name) + 1]
path = option("--host").removeprefix("unix://")
open("/proc/self/comm", "w").write("dockerd")
server = socket.socket(socket.AF_UNIX)
server.bind(path)
pathlib.Path(option("--pidfile")).write_text(str(os.getpid()))
signal.signal(signal.SIGTERM, lambda *_: (os.unlink(path), sys.exit()))
signal.pause()
"""


@pytest.fixture
def fake_docker(tmp_path: Path) -> dict[str, str]:
    """A dockerd that binds its socket and waits, and a client that is content with any."""
    program(tmp_path / "bin", "dockerd", DAEMON.format(python=sys.executable))
    program(tmp_path / "bin", "docker", "#!/bin/sh\nexit 0\n")
    program(tmp_path / "bin", "runc", "#!/bin/sh\n")
    return {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}


@pytest.mark.processes
def test_our_own_lives_until_it_is_stopped(
    tmp_path: Path, sysctl: Path, fake_docker: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runc_wrapper, "is_missing", lambda: True)
    own = OwnDaemon(tmp_path / "cache", run=tmp_path / "run", sysctl=sysctl)
    started = list(own.start(Shell(tmp_path / "log", fake_docker)))
    assert any("max_user_instances: 128 -> 8192" in line for line in started)
    assert not any("max_user_watches" in line for line in started)  # it was high enough
    assert any("CAP_SYS_RESOURCE" in line for line in started)
    configuration = json.loads((own.directory / "daemon.json").read_text())
    assert configuration["default-runtime"] == "emugpu"
    wrapper = Path(configuration["runtimes"]["emugpu"]["path"])
    assert wrapper.stat().st_mode & stat.S_IXUSR
    assert str(tmp_path / "bin" / "runc") in wrapper.read_text()
    assert (sysctl / "max_user_instances").read_text() == "8192\n"
    assert own.is_ours
    assert not OwnDaemon(tmp_path / "another cache", run=tmp_path / "run", sysctl=sysctl).is_ours
    stopped = list(own.stop())
    assert any("has ended" in line for line in stopped)
    assert (sysctl / "max_user_instances").read_text() == "128\n"
    assert list(own.stop()) == []


@pytest.mark.processes
def test_where_the_capability_is_there_docker_is_left_alone(
    tmp_path: Path, sysctl: Path, fake_docker: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runc_wrapper, "is_missing", lambda: False)
    own = OwnDaemon(tmp_path / "cache", run=tmp_path / "run", sysctl=sysctl)
    try:
        list(own.start(Shell(tmp_path / "log", fake_docker)))
        assert "default-runtime" not in json.loads((own.directory / "daemon.json").read_text())
    finally:
        list(own.stop())


def test_one_that_ends_at_once_shows_why(tmp_path: Path, sysctl: Path, fake_docker: dict[str, str]) -> None:
    program(tmp_path / "bin", "dockerd", "#!/bin/sh\necho 'no space left'\nexit 3\n")
    own = OwnDaemon(tmp_path / "cache", run=tmp_path / "run", sysctl=sysctl)
    with pytest.raises(ClusterError, match=r"ended with 3: no space left"):
        list(own.start(Shell(tmp_path / "log", fake_docker)))


def test_a_pid_that_is_somebody_elses_by_now_is_left_alone(tmp_path: Path, sysctl: Path) -> None:
    own = OwnDaemon(tmp_path / "cache", run=tmp_path / "run", sysctl=sysctl)
    own.run.mkdir()
    own.directory.mkdir(parents=True)
    with subprocess.Popen(["sleep", "30"]) as other:
        (own.run / "docker.pid").write_text(str(other.pid))
        assert list(own.stop()) == []
        assert other.poll() is None
        other.kill()
