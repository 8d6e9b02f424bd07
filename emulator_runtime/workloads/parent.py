"""A job process ends with the cluster that started it, also when that was killed in the middle of a training step."""

from __future__ import annotations

import os
import signal

_PR_SET_PDEATHSIG = 1


def end_with_parent() -> None:
    """Ask the kernel for SIGKILL when the parent is gone (prctl(2), Linux; elsewhere nothing happens)."""
    if os.uname().sysname != "Linux":
        return
    import ctypes  # here, because only a process that waits ahead of time needs it

    parent = os.getppid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)
