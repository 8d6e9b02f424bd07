"""A Docker engine of our own, for a machine with root and without systemd: its files are below the cache, and it ends with the
last cluster.

It changes up to two kernel settings that are too low; it reports and stores the old values, and restores them at its end.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from cluster_harness.offline import runc_wrapper
from cluster_harness.shell import Shell
from emulator_runtime.domain.errors import ClusterError
from emulator_runtime.timing.host import monotonic_ns, sleep_ns

_START_TIMEOUT_NS = 60 * 10**9
_STOP_TIMEOUT_NS = 30 * 10**9
_POLL_NS = 100 * 10**6

INOTIFY = {"max_user_instances": 8192, "max_user_watches": 1_048_576}
"""Enough for 13 kubelets on one machine; with the kernel's default of 128 instances the fifth one ends."""

_SYSCTL = Path("/proc/sys/fs/inotify")


class OwnDaemon:
    """dockerd with its own configuration, data directory and socket."""

    def __init__(self, cache_root: Path, run: Path = Path("/run/emugpu-engine"), sysctl: Path = _SYSCTL) -> None:
        self.directory = cache_root / "engine"
        self.run = run  # not below the cache: a socket's path has at most 107 bytes
        self.socket = run / "docker.sock"
        self.log = self.directory / "dockerd.log"
        self._pid_file = run / "docker.pid"
        self._owner_file = run / "owner"
        self._sysctl = sysctl
        self._process: subprocess.Popen[bytes] | None = None  # set in the run that started it

    @property
    def host(self) -> str:
        return f"unix://{self.socket}"

    @property
    def is_ours(self) -> bool:
        """Whether a run with this cache started it: runs with other caches may use it but must not end it."""
        try:
            return self._owner_file.read_text(encoding="utf-8") == str(self.directory)
        except FileNotFoundError:
            return False

    def start(self, shell: Shell) -> Iterator[str]:
        """Starts it as a daemon; yields a line for each change to this machine.

        Raises ClusterError with the log's last line if it ends, or doesn't answer within a minute.
        """
        self.directory.mkdir(parents=True, exist_ok=True)
        self.run.mkdir(parents=True, exist_ok=True)
        self._owner_file.write_text(str(self.directory), encoding="utf-8")
        yield from self._raise_limits()
        configuration = self.directory / "daemon.json"
        configuration.write_text(json.dumps(self._configuration(shell), indent=2), encoding="utf-8")
        if (self.directory / "runc").exists():
            yield "this machine lacks CAP_SYS_RESOURCE: privileged containers get all other capabilities"
            if (limit := resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]) != resource.RLIM_INFINITY:
                yield f"pods can lock at most {limit >> 20} MiB of memory unless they have CAP_IPC_LOCK"
        argv = ["dockerd", "--config-file", str(configuration), "--host", self.host, "--pidfile", str(self._pid_file)]
        with self.log.open("ab") as log:
            self._process = process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=shell.environ, start_new_session=True
            )
        self._wait_until_up(process, shell)
        yield f"dockerd {process.pid}, data below {self.directory}, log {self.log}"

    def _configuration(self, shell: Shell) -> dict[str, object]:
        settings: dict[str, object] = {
            "data-root": str(self.directory / "data"),
            "exec-root": str(self.run / "exec"),
            "exec-opts": ["native.cgroupdriver=cgroupfs"],
            "default-cgroupns-mode": "private",
        }
        wrapper = self.directory / "runc"
        wrapper.unlink(missing_ok=True)
        if runc_wrapper.is_missing():
            runc = shutil.which("runc", path=shell.environ.get("PATH"))
            if runc is None:
                raise ClusterError(
                    "runc: isn't installed; the Docker engine runs containers with it (apt-get install runc)"
                )
            wrapper.write_text(runc_wrapper.script(sys.executable, runc), encoding="utf-8")
            wrapper.chmod(0o755)
            settings |= {"runtimes": {"emugpu": {"path": str(wrapper)}}, "default-runtime": "emugpu"}
        return settings

    def _wait_until_up(self, process: subprocess.Popen[bytes], shell: Shell) -> None:
        deadline_ns = monotonic_ns() + _START_TIMEOUT_NS
        client = shell.with_env(DOCKER_HOST=self.host)
        while monotonic_ns() < deadline_ns:
            if process.poll() is not None:
                raise ClusterError(f"dockerd ended with {process.returncode}: {self._last_line()} (log: {self.log})")
            if self.socket.exists() and client.attempt("docker", "version").ok:
                return
            sleep_ns(_POLL_NS)
        os.killpg(process.pid, signal.SIGTERM)
        raise ClusterError(
            f"dockerd doesn't answer after {_START_TIMEOUT_NS // 10**9} s: {self._last_line()} (log: {self.log})"
        )

    def _last_line(self) -> str:
        lines = self.log.read_text(encoding="utf-8", errors="replace").split("\n")
        return next((line for line in reversed(lines) if line.strip()), "no output")

    def stop(self) -> Iterator[str]:
        """Ends it and restores the kernel settings; its images stay. Raises ClusterError if it doesn't end."""
        pid = self._pid()
        if pid is not None:
            os.kill(pid, signal.SIGTERM)
            deadline_ns = monotonic_ns() + _STOP_TIMEOUT_NS
            while self._pid() == pid:
                if monotonic_ns() > deadline_ns:
                    raise ClusterError(
                        f"dockerd (process {pid}) doesn't end; end it with kill -9 {pid} (log: {self.log})"
                    )
                sleep_ns(_POLL_NS)
            if self._process is not None:
                self._process.wait()
            yield f"dockerd {pid} has ended; its images stay below {self.directory}"
        yield from self._restore_limits()

    def _pid(self) -> int | None:
        """The daemon's process; None if it has ended, also where another program has its process number by now."""
        try:
            pid = int(self._pid_file.read_text(encoding="ascii"))
            state = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
            name, _, rest = state.partition("(")[2].rpartition(")")
        except (OSError, ValueError):
            return None
        return pid if name == "dockerd" and not rest.lstrip().startswith("Z") else None

    def _raise_limits(self) -> Iterator[str]:
        before = self._limits_before()
        for name, wanted in INOTIFY.items():
            file = self._sysctl / name
            current = int(file.read_text(encoding="ascii"))
            if current < wanted:
                before.setdefault(name, current)
                file.write_text(f"{wanted}\n", encoding="ascii")
                yield f"fs.inotify.{name}: {current} -> {wanted} until the last cluster is deleted"
        (self.directory / "sysctl.json").write_text(json.dumps(before), encoding="utf-8")

    def _restore_limits(self) -> Iterator[str]:
        for name, value in self._limits_before().items():
            (self._sysctl / name).write_text(f"{value}\n", encoding="ascii")
            yield f"fs.inotify.{name}: restored to {value}"
        (self.directory / "sysctl.json").unlink(missing_ok=True)

    def _limits_before(self) -> dict[str, int]:
        try:
            before: dict[str, int] = json.loads((self.directory / "sysctl.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        return before
