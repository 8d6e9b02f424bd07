"""The host's time and scheduler. No other file calls `time.*`, so every other module can be given another clock.

Three optional settings of the calling thread decide how much CPU time a wait costs and how late it ends. Threads and
processes that the thread starts later inherit them (child processes don't inherit the real-time class):

| call | needs | lag of a wait of 5 ms on 2 cores with 8 busy processes, Linux 6.18 |
|---|---|---|
| (none) | | p50 0.08 to 3.8 ms, p90 3.7 ms, p99 4 ms |
| `prepare_waiting` | Linux | p50 0.03 ms, p90 3.9 ms: the timer fires 50 us earlier, but the wait for a core is as long |
| and `shorten_slice` | Linux 6.12 | p50 0.03 ms, p90 0.03 ms, p99 0.04 to 4 ms: threads that mostly sleep run first |
| or `set_realtime_priority` | CAP_SYS_NICE | p50 0.03 ms, p90 0.05 ms, p99 0.1 ms |
"""

from __future__ import annotations

import os
import time
from _thread import get_native_id

from emulator_runtime.domain.errors import InputError
from emulator_runtime.domain.units import NS_PER_S

DEFAULT_SLICE_NS = 100_000
"""The shortest time slice that the kernel's fair scheduler accepts (sched_setattr(2): sched_runtime, 0.1 to 100 ms)."""

_SCHED_SETATTR = {"x86_64": 314, "aarch64": 274, "riscv64": 274}  # the kernel's system call tables


def monotonic_ns() -> int:
    """The host's CLOCK_MONOTONIC in nanoseconds: the same for all processes of the host, counted from its boot."""
    return time.monotonic_ns()


def wall_ns() -> int:
    """The host's date and time in nanoseconds since 1970 (CLOCK_REALTIME). It may be set back: only for logs and files."""
    return time.time_ns()


def boot_id() -> str:
    """Identifies this boot of the host, to which monotonic_ns is relative (proc_sys_kernel(5): random/boot_id).

    Empty if the host doesn't have the file.
    """
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def sleep_ns(duration_ns: int) -> None:
    """Sleep for at least `duration_ns`; signals don't shorten the sleep (PEP 475)."""
    time.sleep(duration_ns / NS_PER_S)


def prepare_waiting() -> bool:
    """Lower the calling thread's timer slack from 50 us to 1 ns. Returns False if the host doesn't support or allow it.

    Source: proc_pid_timerslack_ns(5). Each thread has its own file, so the path contains the thread id.
    """
    try:
        with open(f"/proc/{get_native_id()}/timerslack_ns", "w", encoding="ascii") as file:
            file.write("1")
    except OSError:
        return False
    return True


def shorten_slice(slice_ns: int = DEFAULT_SLICE_NS) -> bool:
    """Request a shorter time slice for the calling thread from the fair scheduler; 0 restores the default.

    The thread's share of the CPU doesn't change. But if its slice is shorter than that of the running thread, it runs as
    soon as it wakes and doesn't wait for the end of the other's slice. No privilege is needed. Returns False if the kernel
    doesn't support or allow it (most kernels before 6.12 ignore the request and return True). Python has no function for
    it, so `ctypes` is imported here, which takes 2 ms once.
    """
    number = _SCHED_SETATTR.get(os.uname().machine)
    if number is None or not hasattr(os, "sched_getscheduler") or os.sched_getscheduler(0) != os.SCHED_OTHER:
        return False
    import ctypes
    import struct

    nice = os.getpriority(os.PRIO_PROCESS, 0)
    # struct sched_attr, version 0: size, policy, flags, nice, priority, runtime, deadline, period
    attributes = struct.pack("=IIQiIQQQ", 48, os.SCHED_OTHER, 0, nice, 0, slice_ns, 0, 0)
    return bool(ctypes.CDLL(None).syscall(number, 0, attributes, 0) == 0)


def set_realtime_priority(priority: int = 1) -> bool:
    """Put the calling thread into the real-time class SCHED_FIFO. Returns False if that isn't permitted.

    Its child processes run in the ordinary class again. Only for threads that mostly wait: a thread that computes would
    keep all others off its core. Raises InputError if `priority` is not from 1 to 99.
    """
    if not 1 <= priority <= 99:
        raise InputError("priority", f"must be from 1 to 99, got {priority}")
    if not hasattr(os, "sched_setscheduler"):
        return False
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO | os.SCHED_RESET_ON_FORK, os.sched_param(priority))
    except OSError:
        return False
    return True
