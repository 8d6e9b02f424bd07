"""Who holds the scheduler's Lease: a process, so that another one on the same machine knows at once when it has died.

Without this, a scheduler that was killed is missed until its Lease has run out.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from emulator_runtime.timing.host import boot_id


@dataclass(frozen=True, slots=True)
class Host:
    """Where processes are looked up; `name` and `boot` tell machines apart, `pids` containers that share the host's name.

    `pids`: the inode of the namespace that numbers its processes (pid_namespaces(7)), in which alone a number means one.
    """

    name: str
    boot: str
    pids: str
    proc: Path = Path("/proc")

    @classmethod
    def here(cls) -> Host:
        return cls(os.uname().nodename, boot_id()[:8], _pid_namespace())

    def identity(self, pid: int) -> str:
        """The holderIdentity of a process of this host."""
        return f"{self.name}_{self.boot}_{self.pids}_{pid}_{self._began(pid)}"

    def is_gone(self, holder: str) -> bool:
        """Whether `holder` was a process of this host that has ended; False for what isn't known."""
        name, _, rest = holder.rpartition(f"_{self.boot}_{self.pids}_")
        pid, _, began = rest.partition("_")
        if name != self.name or not (self.boot and self.pids) or not pid.isdigit() or not self.proc.is_dir():
            return False
        return self._began(int(pid)) != began

    def _began(self, pid: int) -> str:
        """When the process began, in clock ticks since the boot (proc_pid_stat(5), field 22); empty where there is none."""
        try:
            text = (self.proc / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return ""
        return text.rpartition(")")[2].split()[19]


def _pid_namespace() -> str:
    """Empty where there is none, or it can't be read."""
    try:
        return str(Path("/proc/self/ns/pid").stat().st_ino)
    except OSError:
        return ""
