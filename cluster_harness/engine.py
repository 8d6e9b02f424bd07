"""The Docker engine that runs the nodes: the one that answers, or one that `up` starts."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from cluster_harness.cache import Cache
from cluster_harness.offline.docker_daemon import OwnDaemon
from cluster_harness.shell import Shell
from cluster_harness.steps import Steps
from emulator_runtime.domain.errors import ClusterError

SYSTEMD = Path("/run/systemd/system")
"""Exists if systemd runs the machine (sd_booted(3)). Docker is then a service of systemd, and no other engine is started."""

_ANSWER_TIMEOUT_S = 15.0


@dataclass(frozen=True)
class Engine:
    """A Docker engine that answers; `shell` is set up for it. `own`: set if it was started with this cache, so `down` ends it."""

    shell: Shell
    version: str
    own: OwnDaemon | None = None

    def is_idle(self) -> bool:
        """Whether no container runs in it. Raises ClusterError."""
        return not self.shell.run("docker", "ps", "--quiet").strip()

    def has_image(self, reference: str) -> bool:
        return self.shell.attempt("docker", "image", "inspect", reference).ok


def running_engine(cache: Cache, shell: Shell) -> Engine | None:
    """The engine that answers now, started by the system, the user or an earlier `up`; None if none does."""
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
    """The engine that answers, or a newly started one, for which the requirements must have been checked.

    Raises ClusterError with the last line of its log where it doesn't answer.
    """
    if engine := running_engine(cache, shell):
        return engine
    own = OwnDaemon(cache.root)
    with cache.lock("engine"):
        if engine := running_engine(cache, shell):
            return engine  # another run held the lock and started it
        with steps.step("start a Docker engine"):
            for line in own.start(shell):
                steps.say(f"  {line}")
    if engine := running_engine(cache, shell):
        return engine
    raise ClusterError(f"{own.log}: the Docker engine that was started doesn't answer; the log says why")


def _version(shell: Shell) -> str:
    """The engine's version; "" if it doesn't answer within 15 s."""
    try:
        done = shell.attempt("docker", "version", "-f", "{{.Server.Version}}", timeout_s=_ANSWER_TIMEOUT_S)
    except ClusterError:
        return ""
    return done.stdout.strip() if done.ok else ""
