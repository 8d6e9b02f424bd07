"""Simulated events per second, CPU time and peak memory, beside a bare event queue and the field's simulators.

- overload: 2,000 jobs of 1 to 8 GPUs on 8 nodes of 8, submitted ten times as fast as they can run, so that nearly all wait
- whole traces: 100,000 jobs on 250 nodes of 8 GPUs, Poisson arrivals, load 0.9 and 1.1
- rounds: Synergy's with 3,000 active jobs; AlloX: a plan with 1,000 waiting jobs
- start-up: `emugpu simulate --help`, and the whole command for the 2,000 jobs

An event is the arrival or the end of a job, or a wake that the policy asked for (a queue jump); stops and starts of
preempted jobs aren't counted. Durations are log-normal (median 20 minutes). The bare queue, first come first served on one heap
without plans and books, is the least that any simulator does and is measured in the same run; the figures of other simulators are
not, see PEERS.
"""

from __future__ import annotations

import argparse
import heapq
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import deque
from dataclasses import replace
from pathlib import Path
from random import Random

from scheduler_sims.policies import POLICIES
from scheduler_sims.policies.allox import Allox
from scheduler_sims.testing import Job, Node, cluster_view
from tests.benchmarks.synergy_rounds import rounds_per_s, view_of

PEERS = """\
other simulators, run by us from their authors' code on a core of a similar machine (events are arrivals, ends, queue jumps):
  Tiresias (NSDI 2019)    500 jobs 950-3,300 events/s, 2,000 jobs 366-1,480, Gittins 23
  Synergy (OSDI 2022)     1,000 events/s, 24-26 jobs/s
  Muri (SIGCOMM 2022)     SRSF 476-648 events/s, Muri-S 19
  Alibaba PAI             180-390 jobs/s (its README: 20,000 jobs in 51-110 s)"""

POLICY_NAMES = tuple(name for name in ("fifo", "sjf", "srtf", "las", "tiresias") if name in POLICIES)
MEDIAN_S, SIGMA = 1_200.0, 1.0


def main(argv: list[str]) -> int:
    """Print the tables; always 0."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks simulator_speed", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a fifth of the jobs, or fewer, on fewer nodes")
    parser.add_argument("--policy", action="append", help=f"policies (default: {', '.join(POLICY_NAMES)})")
    options, _ = parser.parse_known_args(argv)  # other benchmarks have options of their own
    policies = options.policy or POLICY_NAMES
    with tempfile.TemporaryDirectory() as folder:
        print_header()
        runs(Path(folder), "overload", 400 if options.quick else 2_000, 8, 10.0, policies)
        for load in (0.9, 1.1):
            jobs, nodes = (1_000, 25) if options.quick else (100_000, 250)
            runs(Path(folder), f"load {load}", jobs, nodes, load, policies)
        print(PEERS)
        print_rounds(quick=options.quick)
        print_start_up(Path(folder), 400 if options.quick else 2_000, policies)
    return 0


def runs(folder: Path, title: str, jobs: int, nodes: int, load: float, policies: list[str] | tuple[str, ...]) -> None:
    """The lines of one workload: the bare queue, then each policy."""
    rows = poisson_rows(jobs, 8 * nodes, load)
    write_inputs(folder, rows, nodes)
    peer_s = timed_peer(rows, 8 * nodes)
    peer_events_per_s = 2 * jobs / peer_s
    print(f"{title}, {jobs:,} jobs on {nodes} x 8 GPUs; bare queue {peer_events_per_s:,.0f} events/s", flush=True)
    for policy in policies:
        done = subprocess.run(
            [sys.executable, "-m", "tests.benchmarks.simulated_run", *inputs(folder), policy, str(folder / "out")],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        print_run(policy, json.loads(done.stdout), peer_events_per_s)


def poisson_rows(count: int, gpus: int, load: float) -> list[tuple[float, int, float]]:
    """Submit time, GPUs and duration of each job; the same on every machine."""
    arrivals, lengths = Random("simulator_speed/arrivals"), Random("simulator_speed/durations")
    widths = Random("simulator_speed/gpus").choices([1, 2, 4, 8], [70, 10, 10, 10], k=count)
    seconds = [round(MEDIAN_S * 2.718281828459045 ** lengths.gauss(0.0, SIGMA), 3) for _ in range(count)]
    rate = load * gpus * count / sum(width * length for width, length in zip(widths, seconds, strict=True))
    now_s, rows = 0.0, []
    for width, duration_s in zip(widths, seconds, strict=True):
        now_s += arrivals.expovariate(rate)
        rows.append((round(now_s, 3), width, duration_s))
    return rows


def inputs(folder: Path) -> list[str]:
    """The paths of the input files."""
    return [str(folder / "workload.csv"), str(folder / "cluster.yaml")]


def write_inputs(folder: Path, rows: list[tuple[float, int, float]], nodes: int) -> None:
    """The workload and the cluster as files."""
    workload, cluster = map(Path, inputs(folder))
    lines = [f"job-{n},user-{n % 20},{at},{gpus},{gpus},{length}" for n, (at, gpus, length) in enumerate(rows)]
    workload.write_text(
        "job_id,user,submit_s,num_gpus,cpus,gpu_duration_s\n" + "\n".join(lines) + "\n", encoding="utf-8"
    )
    node = f"name: node, count: {nodes}, gpus: 8, gpu_type: T4, cpus: 64"
    cluster.write_text(f"nodes:\n  - {{{node}}}\n", encoding="utf-8")


def timed_peer(rows: list[tuple[float, int, float]], gpus: int) -> float:
    """CPU seconds of first come first served on a bare heap, with GPUs counted but not placed."""
    began = time.process_time()
    heap = [(at_s, n, 0) for n, (at_s, _, _) in enumerate(rows)]
    heapq.heapify(heap)
    queue: deque[int] = deque()
    free = gpus
    while heap:
        now_s, n, released = heapq.heappop(heap)
        if released:
            free += released
        else:
            queue.append(n)
        while queue and rows[queue[0]][1] <= free:
            n = queue.popleft()
            _, width, duration_s = rows[n]
            free -= width
            heapq.heappush(heap, (now_s + duration_s, n, width))
    return time.process_time() - began


def print_header() -> None:
    """What the columns are."""
    print(
        f"{'policy':10}{'events':>9}{'stops':>8}{'read s':>8}{'loop s':>8}{'events/s':>10}{'of bare':>9}"
        f"{'loop + files s':>16}{'events/s':>10}{'MiB':>6}{'mean JCT s':>12}   (CPU seconds)"
    )


def print_run(policy: str, run: dict[str, float], peer_events_per_s: float) -> None:
    """One line of the table."""
    events = run["arrivals"] + run["finishes"] + run["wakes"]
    speed, whole = events / run["loop_s"], events / run["whole_s"]
    print(
        f"{policy:10}{events:>9,.0f}{run['stops']:>8,.0f}{run['load_s']:>8.2f}{run['loop_s']:>8.2f}{speed:>10,.0f}"
        f"{speed / peer_events_per_s:>9.3f}{run['whole_s']:>16.2f}{whole:>10,.0f}{run['peak_mib']:>6.0f}"
        f"{run['mean_jct_s']:>12.1f}",
        flush=True,
    )


def print_rounds(*, quick: bool) -> None:
    """Rounds per second of Synergy, and the time of a plan of AlloX."""
    gpus = 240 if quick else 2_400
    view = view_of(gpus)
    print(f"first rounds with {len(view.jobs):,} active jobs on {gpus:,} GPUs:")
    for order in ("fifo", "las"):
        for allocation in ("proportional", "tune"):
            print(
                f"  synergy {order}, {allocation}: {rounds_per_s(view, allocation, order=order):,.0f} rounds/s",
                flush=True,
            )
    waiting = 100 if quick else 1_000
    jobs = [Job(f"r{n}", gpu_s=900.0, on=f"n{n // 8}/{n % 8}") for n in range(63)]
    jobs += [Job(f"w{n}", gpu_s=300.0 + 7 * n, cpu_s=900.0 + 11 * n) for n in range(waiting)]
    view = cluster_view([*(Node(f"n{n}", gpus=8) for n in range(8)), Node("cpu", cpus=8)], jobs, now_s=1.0)
    policy = Allox()
    state = policy.plan(view).state
    began = time.process_time()
    policy.plan(replace(view, state=state, changes=frozenset({"w1"})))
    print(f"AlloX, {waiting:,} waiting jobs, 64 GPUs, one of them free: {time.process_time() - began:.3f} s a plan")


def print_start_up(folder: Path, jobs: int, policies: list[str] | tuple[str, ...]) -> None:
    """CPU and wall seconds of whole commands."""
    print("whole commands, CPU seconds (wall seconds):")
    print_command("simulate --help", ["simulate", "--help"])
    write_inputs(folder, poisson_rows(jobs, 64, 0.9), 8)
    workload, cluster = inputs(folder)
    for policy in policies:
        words = ["simulate", workload, "--cluster", cluster, "--policy", policy, "--out", str(folder / "out")]
        print_command(f"simulate, {jobs:,} jobs on 64 GPUs, {policy}, all files", words)


def print_command(title: str, words: list[str]) -> None:
    """Run `emugpu` with these words."""
    began = time.perf_counter()
    child = subprocess.Popen(
        [sys.executable, "-m", "emugpu", *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    cpu_s = usage.ru_utime + usage.ru_stime
    wall_s = time.perf_counter() - began
    print(f"  {title}: {cpu_s:.2f} ({wall_s:.2f}), {usage.ru_maxrss / 1024:.0f} MiB", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
