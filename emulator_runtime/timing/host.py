"""The host's own time and scheduler: the only file that calls `time.*`, so that everything else can be given another clock.

What a wait costs and how late it ends is decided by three settings of the calling thread, all optional and all inherited
by the threads and processes it starts later (except the real-time class, which children don't get):

| call | needs | lag of a wait of 5 ms on 2 cores with 8 busy processes, Linux 6.18 |
|---|---|---|
| (none) | | p50 0.08 to 3.8 ms, p90 3.7 ms, p99 4 ms |
| `prepare_waiting` | Linux | p50 0.03 ms, p90 3.9 ms: the timer fires 50 us earlier, the queue for a core is as long |
| and `shorten_slice` | Linux 6.12 | p50 0.03 ms, p90 0.03 ms, p99 0.04 to 4 ms: who mostly sleeps is let in front |
| or `set_realtime_priority` | CAP_SYS_NICE | p50 0.03 ms, p90 0.05 ms, p99 0.1 ms |
"""

from __future__ import annotations

import os
import time
from _thread import get_native_id

from emulator_runtime.domain.errors import InputError
from emulator_runtime.domain.units import NS_PER_S

DEFAULT_SLICE_NS = 100_000
"""The shortest slice that the kernel's fair scheduler accepts (sched_setattr(2): sched_runtime, 0.1 ms to 100 ms)."""

_SCHED_SETATTR = {"x86_64": 314, "aarch64": 274, "riscv64": 274}  # the kernel's system call tables


def monotonic_ns() -> int:
    """The host's CLOCK_MONOTONIC in nanoseconds: one value for all processes of a host since its boot."""
    return time.monotonic_ns()


def wall_ns() -> int:
    """The host's date and time, nanoseconds since 1970 (CLOCK_REALTIME): it may be set back, and is for people and files."""
    return time.time_ns()


def boot_id() -> str:
    """Names this boot of the host (proc_sys_kernel(5): random/boot_id), in which monotonic_ns counts; "" where untold."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def sleep_ns(duration_ns: int) -> None:
    """Sleep for at least `duration_ns`; a signal doesn't shorten it (PEP 475)."""
    time.sleep(duration_ns / NS_PER_S)


def prepare_waiting() -> bool:
    """Lower the calling thread's timer slack from 50 us to 1 ns; False where the host has no such file or refuses.

    Source: proc_pid_timerslack_ns(5). The file belongs to one thread, hence the thread's own id in its path.
    """
    try:
        with open(f"/proc/{get_native_id()}/timerslack_ns", "w", encoding="ascii") as file:
            file.write("1")
    except OSError:
        return False
    return True


def shorten_slice(slice_ns: int = DEFAULT_SLICE_NS) -> bool:
    """Ask the fair scheduler for shorter, more frequent turns for the calling thread; 0 gives back the default.

    A thread's share of the CPU stays what it was; but when it wakes with a shorter slice than what runs, it needn't wait
    until the other's slice ends. No privilege is needed. False where the kernel doesn't know or refuses it (before 6.12
    most ignore it and answer True). Python has no call for it, so `ctypes` is imported here: 2 ms, once.
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
    """Put the calling thread into the real-time class SCHED_FIFO; False where that isn't permitted.

    Processes that it starts later run in the ordinary class again. Only for threads that mostly wait: one that computes
    keeps everybody else off its core. Raises InputError where `priority` is not from 1 to 99.
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
