"""The clocks of a program in warp: what it asks the C library for is emulated time."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent
Run = Callable[..., str]


@pytest.fixture
def run_warped(run_core: Run, libraries: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """`run_warped(code)`: a program in warp, with the library in which its clocks are emulated; a kernel takes 1 s."""
    monkeypatch.setenv("LD_PRELOAD", str(libraries / "libemugpu_clock.so"))

    def run(code: str) -> str:
        return run_core(PRELUDE + textwrap.dedent(code), constant_ns=1_000_000_000, warp=1)

    return run


PRELUDE = """
import datetime, queue, select, threading
stream = core.default_stream()
def gpu(seconds):
    core.launch(stream, seconds)
    core.synchronize(stream)
def host_s():
    "Read without the C library's function, so that it is the host's time."
    with open("/proc/uptime") as file:
        return float(file.read().split()[0])
began = host_s()
"""


def test_all_clocks_of_a_program_show_emulated_time(run_warped: Run) -> None:
    run_warped("""
        clocks = [time.time, time.monotonic, time.perf_counter, lambda: time.clock_gettime(time.CLOCK_BOOTTIME),
                  lambda: datetime.datetime.now().timestamp(), lambda: ctypes.CDLL(None).time(None), core.now_s]
        before = [clock() for clock in clocks]
        gpu(100)
        passed = [clock() - start for clock, start in zip(clocks, before)]
        assert all(99 <= each < 110 for each in passed), passed
        assert abs(time.monotonic() - core.now_s()) < 1
        assert time.process_time() < 20
        assert host_s() - began < 10
    """)


def test_clocks_never_go_backwards_while_another_thread_lets_time_jump(run_warped: Run) -> None:
    run_warped("""
        end = threading.Event()
        wrong = []
        def look():
            last = 0
            while not end.is_set():
                now = time.monotonic()
                if now < last:
                    wrong.append((last, now))
                last = now
        threads = [threading.Thread(target=look) for _ in range(3)]
        [thread.start() for thread in threads]
        for _ in range(50):
            gpu(10)
        end.set()
        [thread.join() for thread in threads]
        assert wrong == []
    """)


def test_a_sleep_lasts_until_emulated_time_has_reached_its_end(run_warped: Run) -> None:
    run_warped("""
        start = time.monotonic()
        time.sleep(0.2)
        assert 0.2 <= time.monotonic() - start < 2
        sleeper = threading.Thread(target=time.sleep, args=(1000,))
        sleeper.start()
        time.sleep(0.05)
        gpu(1100)
        sleeper.join(5)
        assert not sleeper.is_alive()
    """)


def test_waits_with_a_limit_end(run_warped: Run) -> None:
    """Their limits are moments of emulated time, hours ahead of the host's."""
    run_warped("""
        gpu(10_000)
        lock = threading.Lock()
        lock.acquire()
        assert not lock.acquire(timeout=0.1)
        assert not threading.Event().wait(0.1)
        try:
            queue.Queue().get(timeout=0.1)
        except queue.Empty:
            pass
        select.select([], [], [], 0.1)
        assert host_s() - began < 20
    """)


C_PROGRAM = """
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <errno.h>
#include <string.h>
#include <stdint.h>
#include <time.h>
#include <unistd.h>
#include <sys/time.h>
#include <stdatomic.h>
#include <dlfcn.h>

int main(void) {
    _Atomic int64_t *jumped = dlsym(RTLD_DEFAULT, "emugpu_clock_jumped_ns");
    struct timespec now, left;
    struct timeval day;
    clock_gettime(CLOCK_REALTIME, &now);
    *jumped = 5000000000000;
    gettimeofday(&day, NULL);
    if (day.tv_sec - now.tv_sec < 5000 || time(NULL) - now.tv_sec < 5000) return 1;
    timespec_get(&now, TIME_UTC);
    if (now.tv_sec < day.tv_sec) return 2;
    struct timespec wrong = {0, 2000000000};
    if (clock_nanosleep(CLOCK_MONOTONIC, 0, &wrong, NULL) != EINVAL) return 3;
    if (nanosleep(&wrong, &left) != -1 || errno != EINVAL) return 4;
    usleep(2000);
    pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    sem_t semaphore;
    sem_init(&semaphore, 0, 0);
    pthread_mutex_lock(&mutex);
    clock_gettime(CLOCK_REALTIME, &now);
    now.tv_sec += 1;
    if (pthread_cond_timedwait(&condition, &mutex, &now) != ETIMEDOUT) return 5;
    if (sem_timedwait(&semaphore, &now) != -1 || errno != ETIMEDOUT) return 6;
    if (pthread_mutex_timedlock(&mutex, &now) != ETIMEDOUT) return 7;
    clock_gettime(CLOCK_MONOTONIC, &now);
    struct timespec end = now;
    end.tv_nsec += 30000000;
    if (end.tv_nsec >= 1000000000) { end.tv_nsec -= 1000000000; end.tv_sec++; }
    if (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, NULL) != 0) return 8;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (now.tv_sec < end.tv_sec || (now.tv_sec == end.tv_sec && now.tv_nsec < end.tv_nsec)) return 9;
    return sleep(0) == 0 ? 0 : 10;
}
"""


def test_what_a_program_in_c_uses(libraries: Path, tmp_path: Path) -> None:
    source = tmp_path / "program.c"
    source.write_text(C_PROGRAM)
    subprocess.run(["cc", str(source), "-o", str(tmp_path / "program"), "-pthread", "-ldl"], check=True)
    environment = os.environ | {"LD_PRELOAD": str(libraries / "libemugpu_clock.so")}
    done = subprocess.run([str(tmp_path / "program")], env=environment, timeout=60, check=False)
    assert done.returncode == 0


def test_without_the_library_a_programs_clocks_are_the_hosts(run_core: Run) -> None:
    run_core(
        """
        before = time.monotonic()
        core.launch(core.default_stream(), 100)
        core.synchronize(core.default_stream())
        assert time.monotonic() - before < 50 < core.now_s() - before
        """,
        constant_ns=1_000_000_000,
        warp=1,
    )


def test_emugpu_run_gives_the_library_to_programs_in_warp(libraries: Path) -> None:
    for options, expected in ((["--warp"], "libemugpu_clock.so"), ([], "")):
        command = [sys.executable, "-m", "emugpu", "run", *options, "--", "sh", "-c", "echo $LD_PRELOAD"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert done.stdout.strip().endswith(expected)
        assert bool(done.stdout.strip()) == bool(expected)
