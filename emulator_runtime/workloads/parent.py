"""Ends a job process together with the cluster process that started it, even if that is killed during a training step."""

from __future__ import annotations

import os
import signal

_PR_SET_PDEATHSIG = 1


def end_with_parent() -> None:
    """Ask the kernel for SIGKILL when the parent process ends (prctl(2), Linux; does nothing on other systems)."""
    if os.uname().sysname != "Linux":
        return
    import ctypes  # here, because only standby processes need it

    parent = os.getppid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)
