"""How late waits end at a job, and how far 1,000 steps of 20 ms drift; ours beside plain `time.sleep` in the same run.

Every figure is taken in a child process, as a job would see it. Methods take turns wait by wait, so that a disturbance
of the machine hits all of them; each sets its own timer slack and slice first. "busy" adds 4 computing processes per core.
In the rows marked FIFO all methods, the plain one too, run in the real-time class. CPU is what one wait burns.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from emulator_runtime.timing.host import prepare_waiting, set_realtime_priority, shorten_slice
from emulator_runtime.timing.own_time import OwnTime
from emulator_runtime.timing.waiter import DEFAULT_SPIN_NS, Waiter
from tests.support.private_clock import private_clock

WAITS = {1: 600, 5: 400, 20: 200, 100: 60}  # requested ms: how often per method
QUICK_SHARE = 40
STEPS, STEP_NS = 1_000, 20_000_000
BUSY_PER_CORE = 4
BUSY_CODE = "import time\nend = time.monotonic() + 300\nwhile time.monotonic() < end: pass"
PLAIN = "time.sleep"


def main(argv: list[str]) -> int:
    """Print both tables; always 0."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks wait_accuracy", description=__doc__)
    parser.add_argument("--quick", action="store_true", help=f"1/{QUICK_SHARE} of the waits and steps")
    parser.add_argument(
        "--spin-us", default=f"0,{DEFAULT_SPIN_NS // 1000}", help="spin limits to compare, in microseconds"
    )
    options = parser.parse_args(argv)
    share = QUICK_SHARE if options.quick else 1
    spins = [int(spin) for spin in options.spin_us.split(",")]
    print(f"{'':12}{'':>7} {'':16}{'p50 us':>9}{'p99 us':>9}{'max us':>9}{'CPU us':>8}   p50, p99 over plain")
    for busy in (False, True):
        with busy_processes(BUSY_PER_CORE * (os.cpu_count() or 1) if busy else 0):
            for realtime in (False, True):
                print_waits(busy, child("waits", share=share, spins=spins, realtime=realtime))
    for busy in (False, True):
        with busy_processes(BUSY_PER_CORE * (os.cpu_count() or 1) if busy else 0):
            print_steps(busy, children("steps", [{"method": method, "share": share} for method in ("ours", PLAIN)]))
    return 0


def print_waits(busy: bool, result: dict[str, Any]) -> None:
    """One block: microseconds of lag by requested length and method."""
    name = ("busy" if busy else "idle") + (" FIFO" if result["realtime"] else "")
    if result["refused"]:
        print(f"{name:12} SCHED_FIFO isn't permitted here")
        return
    for length, methods in result["waits"].items():
        plain = methods[PLAIN]
        for method, figures in methods.items():
            ratios = "".join(f"{figures[key] / plain[key]:7.2f}" for key in ("p50", "p99"))
            numbers = "".join(f"{figures[key] / 1000:9.1f}" for key in ("p50", "p99", "max"))
            print(f"{name:12}{length:>4} ms {method:16}{numbers}{figures['cpu'] / 1000:8.1f}   {ratios}", flush=True)


def print_steps(busy: bool, results: list[dict[str, Any]]) -> None:
    """One line for each method: the relative deviation from steps x 20 ms."""
    for result in results:
        wanted = result["steps"] * STEP_NS
        deviation = (result["took_ns"] - wanted) / wanted
        name = f"{'busy' if busy else 'idle':12}{result['steps']} steps of 20 ms, {result['method']:12}"
        print(f"{name}{result['took_ns'] / 1e9:10.4f} s {deviation:+9.4%}", flush=True)


# ---- the parent's side: processes


def child(task: str, **arguments: object) -> dict[str, Any]:
    """What one child process measured."""
    return children(task, [arguments])[0]


def children(task: str, arguments: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What child processes measured that ran at the same time."""
    command = [sys.executable, "-m", "tests.benchmarks.wait_accuracy", task]
    started = [subprocess.Popen([*command, json.dumps(each)], stdout=subprocess.PIPE) for each in arguments]
    return [json.loads(process.communicate()[0]) for process in started]


@contextmanager
def busy_processes(count: int) -> Iterator[None]:
    """Keep `count` processes computing."""
    processes = [subprocess.Popen([sys.executable, "-c", BUSY_CODE]) for _ in range(count)]
    try:
        time.sleep(0.5)
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


# ---- the child's side: measuring


def measure_waits(share: int, spins: list[int], realtime: bool) -> dict[str, Any]:
    """Lags and CPU time by requested length and method, nanoseconds."""
    if realtime and not set_realtime_priority():
        return {"realtime": True, "refused": True}
    methods: dict[str, Callable[[int], object]] = {PLAIN: plain_wait}
    for spin in spins:
        methods[f"ours, spin {spin}"] = our_wait(spin * 1000)
    waits = {
        length: measure_length(length * 1_000_000, max(2, count // share), methods) for length, count in WAITS.items()
    }
    return {"realtime": realtime, "refused": False, "waits": waits}


def measure_length(
    length_ns: int, count: int, methods: dict[str, Callable[[int], object]]
) -> dict[str, dict[str, float]]:
    """`count` waits by each method, in turns."""
    lags: dict[str, list[int]] = {name: [] for name in methods}
    cpu = dict.fromkeys(methods, 0)
    for _ in range(count):
        for name, wait in methods.items():
            settings(ours=wait is not plain_wait)
            cpu_before, deadline = time.thread_time_ns(), time.monotonic_ns() + length_ns
            wait(deadline)
            lags[name].append(time.monotonic_ns() - deadline)
            cpu[name] += time.thread_time_ns() - cpu_before
    return {name: figures(lags[name], cpu[name] / count) for name in methods}


def figures(lags: list[int], cpu: float) -> dict[str, float]:
    """Quantiles of `lags`, by rank."""
    lags.sort()
    rank = {key: lags[min(len(lags) - 1, int(share * len(lags)))] for key, share in (("p50", 0.5), ("p99", 0.99))}
    return {**rank, "max": lags[-1], "cpu": cpu}


def settings(ours: bool) -> None:
    """The waiting thread's scheduler settings: ours or what the system gives."""
    if ours:
        prepare_waiting()
        shorten_slice()
    else:
        with open("/proc/self/timerslack_ns", "w", encoding="ascii") as file:
            file.write("0")  # back to the default
        shorten_slice(0)


def plain_wait(deadline_ns: int) -> None:
    """The peer: sleep for what remains."""
    time.sleep(max(deadline_ns - time.monotonic_ns(), 0) / 1e9)


def our_wait(spin_ns: int) -> Callable[[int], object]:
    """Waiting as jobs do, with its own memory of past lags."""
    return Waiter(spin_ns).wait_until_ns


def measure_steps(method: str, share: int) -> dict[str, Any]:
    """How long steps of 20 ms take one after the other, by the host's clock."""
    steps = STEPS // share
    step = plain_step()
    if method != PLAIN:
        settings(ours=True)
        step = our_step()
    start = time.monotonic_ns()
    for _ in range(steps):
        step(STEP_NS)
    return {"method": method, "steps": steps, "took_ns": time.monotonic_ns() - start}


def our_step() -> Callable[[int], object]:
    """A step in a program's own time, which makes up for the lag of the step before."""
    time_ = OwnTime(private_clock())

    def step(duration_ns: int) -> None:
        with time_.call() as now_ns:
            end_ns = now_ns + duration_ns
        time_.wait_until_ns(end_ns)

    return step


def plain_step() -> Callable[[int], object]:
    """The peer's step."""
    return lambda duration_ns: time.sleep(duration_ns / 1e9)


if __name__ == "__main__":
    tasks: dict[str, Callable[..., dict[str, Any]]] = {"waits": measure_waits, "steps": measure_steps}
    print(json.dumps(tasks[sys.argv[1]](**json.loads(sys.argv[2]))))
