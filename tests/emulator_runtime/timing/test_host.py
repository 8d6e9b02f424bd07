"""The host's functions do what they say to the calling thread; each is tried where it changes nothing for other tests."""

import os
import subprocess
import sys
import threading
import time
from _thread import get_native_id

import pytest

from emulator_runtime.domain.errors import InputError
from emulator_runtime.timing import host


def in_a_process(code: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True)
    return done.stdout.split()


def test_the_date_is_the_hosts():
    assert abs(host.wall_ns() - time.time_ns()) < 10**9


def test_a_boot_has_one_name_and_none_where_the_host_tells_none(monkeypatch):
    assert len(host.boot_id()) == 36
    assert host.boot_id() == host.boot_id()

    def nowhere(*_, **__):
        raise FileNotFoundError

    monkeypatch.setattr("builtins.open", nowhere)
    assert host.boot_id() == ""


def test_sleep_lasts_at_least_as_long_as_asked():
    start = host.monotonic_ns()
    host.sleep_ns(2_000_000)
    assert host.monotonic_ns() - start >= 2_000_000


@pytest.mark.skipif(not os.path.exists("/proc/self/timerslack_ns"), reason="this host has no timer slack to set")
def test_prepare_waiting_lowers_the_slack_of_the_calling_thread_only():
    def slack() -> str:
        with open(f"/proc/{get_native_id()}/timerslack_ns") as file:
            return file.read().strip()

    with open(f"/proc/{get_native_id()}/timerslack_ns", "w") as file:
        file.write("50000")  # an earlier test may have lowered it
    seen: list[object] = []
    thread = threading.Thread(target=lambda: seen.extend([host.prepare_waiting(), slack()]))
    thread.start()
    thread.join()
    assert seen == [True, "1"]
    assert slack() == "50000"


def test_prepare_waiting_is_false_where_there_is_no_such_file(monkeypatch):
    monkeypatch.setattr(host, "get_native_id", lambda: 2**40)
    assert host.prepare_waiting() is False


def test_real_time_class_is_taken_or_refused_and_not_inherited():
    taken, policy, child = in_a_process(
        "import os, subprocess, sys\n"
        "from emulator_runtime.timing.host import set_realtime_priority\n"
        "ours = set_realtime_priority(1)\n"
        "ask = 'import os; print(os.sched_getscheduler(0))'\n"
        "child = subprocess.run([sys.executable, '-c', ask], capture_output=True, text=True).stdout\n"
        "print(ours, os.sched_getscheduler(0) & os.SCHED_FIFO, child)"
    )
    assert (taken, policy) in {("True", "1"), ("False", "0")}
    assert child == "0"


def test_real_time_class_refused_is_false(monkeypatch):
    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(host.os, "sched_setscheduler", refuse)
    assert host.set_realtime_priority() is False


@pytest.mark.parametrize("priority", [0, 100, -1])
def test_real_time_priority_out_of_range_names_the_range(priority):
    with pytest.raises(InputError, match=f"from 1 to 99, got {priority}"):
        host.set_realtime_priority(priority)


def test_shorten_slice_reaches_the_scheduler_and_can_be_taken_back():
    done, asked, undone, default = in_a_process(
        "import ctypes, os, struct\n"
        "from emulator_runtime.timing.host import shorten_slice\n"
        "def slice_ns():\n"
        "    buffer = ctypes.create_string_buffer(48)\n"
        "    number = 315 if os.uname().machine == 'x86_64' else 275\n"
        "    assert ctypes.CDLL(None).syscall(number, 0, buffer, 48, 0) == 0\n"
        "    return struct.unpack_from('=Q', buffer, 24)[0]\n"
        "print(shorten_slice(300_000), slice_ns(), shorten_slice(0), slice_ns())"
    )
    if asked == "0":
        pytest.skip("this kernel has no slices of its own per thread (before 6.12)")
    assert (done, asked, undone) == ("True", "300000", "True")
    assert default != asked


def test_shorten_slice_is_false_on_an_unknown_machine(monkeypatch):
    monkeypatch.setattr(host, "_SCHED_SETATTR", {})
    assert host.shorten_slice() is False


def test_import_stays_light():
    code = (
        "import sys, emulator_runtime.timing.own_time, emulator_runtime.timing.clocks, emulator_runtime.timing.shared_clock\n"
        "print(*(name for name in ('asyncio', 'ctypes', 'random', 'socket', 'subprocess', 'json') if name in sys.modules), '.')"
    )
    assert in_a_process(code) == ["."]
