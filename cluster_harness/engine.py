"""The Docker engine under the nodes: the running one; where there is none and we may, one of our own."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cluster_harness.cache import Cache
from cluster_harness.offline.docker_daemon import OwnDaemon
from cluster_harness.shell import Shell
from cluster_harness.steps import Steps
from emulator_runtime.domain.errors import ClusterError

_ANSWER_TIMEOUT_S = 15.0
_INSTALL = "install Docker (on Debian: apt-get install docker.io) and start it, then run this again"


@dataclass(frozen=True)
class Engine:
    """A Docker that answers; `shell` is set up for it."""

    shell: Shell
    version: str
    own: OwnDaemon | None = None  # only where it was started with this cache, so that it's ours to end

    def is_idle(self) -> bool:
        """Whether no container runs in it. Raises ClusterError."""
        return not self.shell.run("docker", "ps", "--quiet").strip()

    def has_image(self, reference: str) -> bool:
        return self.shell.attempt("docker", "image", "inspect", reference).ok


def running_engine(cache: Cache, shell: Shell) -> Engine | None:
    """The engine that answers now, started by the system, the user or an earlier run of ours; None: none does."""
    if shutil.which("docker", path=shell.environ.get("PATH")) is None:
        return None
    if version := _version(shell):
        return Engine(shell, version)
    own = OwnDaemon(cache.root)
    own_shell = shell.with_env(DOCKER_HOST=own.host)
    if own.socket.exists() and (version := _version(own_shell)):
        return Engine(own_shell, version, own if own.is_ours else None)
    return None


def ensure_engine(cache: Cache, shell: Shell, steps: Steps) -> Engine:
    """An engine that answers. Raises ClusterError that says what to do where there is none and we can't start one."""
    if found := running_engine(cache, shell):
        return found
    if reason := why_not_ours(shell.environ):
        raise ClusterError(f"Docker doesn't answer, and {reason}")
    own = OwnDaemon(cache.root)
    with cache.lock("engine"):
        if found := running_engine(cache, shell):
            return found  # started by the run that we waited for
        with steps.step("start a Docker engine of our own"):
            for line in own.start(shell):
                steps.say(f"  {line}")
    if found := running_engine(cache, shell):
        return found
    raise ClusterError(f"{own.log}: the Docker engine that we started doesn't answer; the log says why")


def why_not_ours(environ: Mapping[str, str], systemd: Path = Path("/run/systemd/system")) -> str | None:
    """Why we must not start an engine ourselves, with what to do instead; None: we may."""
    if environ.get("DOCKER_HOST"):
        return f"DOCKER_HOST={environ['DOCKER_HOST']} was asked for; start that engine, or unset the variable"
    if systemd.exists():
        return "systemd runs this machine: `systemctl start docker` (is it installed? may you use it: group docker?)"
    if (
        shutil.which("dockerd", path=environ.get("PATH")) is None
        or shutil.which("docker", path=environ.get("PATH")) is None
    ):
        return f"dockerd isn't installed; {_INSTALL}"
    if os.geteuid() != 0:
        return "only root can start dockerd; start it, or run this as root"
    return None


def _version(shell: Shell) -> str:
    done = shell.attempt("docker", "version", "-f", "{{.Server.Version}}", timeout_s=_ANSWER_TIMEOUT_S)
    return done.stdout.strip() if done.ok else ""
