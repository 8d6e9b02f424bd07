"""Simulated events per second: 2,000 jobs with Poisson arrivals on 64 nodes of one GPU, beside a bare event queue.

The peer is the least that any simulator of this trace does: one heap of arrivals and departures, first come first served,
no plan, no books. Durations are log-normal (median 20 minutes) and the load is 0.9 of the GPUs, so that a queue builds up.
`--profile` adds where the time goes, by cProfile.
"""

from __future__ import annotations

import argparse
import cProfile
import heapq
import io
import pstats
import sys
import time
from collections import deque
from random import Random

from emulator_runtime.domain.gpu import Device
from emulator_runtime.domain.job import Configuration, JobSpec, TimedWork
from emulator_runtime.domain.units import GIB
from emulator_runtime.profiles.table import ProfileTable
from scheduler_sims.clusters.base import Event
from scheduler_sims.clusters.simulated import SimulatedCluster
from scheduler_sims.inputs.cluster_file import ClusterSpec, NodeSpec
from scheduler_sims.inputs.truth import WorkloadTruth
from scheduler_sims.inputs.workload import Workload
from scheduler_sims.interface.estimates import parse_estimates
from scheduler_sims.loop.scheduler_loop import SchedulerLoop
from scheduler_sims.policies.resolve import resolve_policy

GPUS, JOBS, QUICK_JOBS = 64, 2_000, 400
MEDIAN_S, SIGMA, LOAD = 1_200.0, 1.0, 0.9


def main(argv: list[str]) -> int:
    """Print the table; always 0."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks simulator_speed", description=__doc__)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_JOBS} jobs instead of {JOBS}")
    parser.add_argument("--policy", action="append", help="policies (default: fifo, srtf)")
    parser.add_argument("--profile", action="store_true", help="show the functions that take most of the time")
    options, _ = parser.parse_known_args(argv)  # other benchmarks have options of their own
    jobs = poisson_jobs(QUICK_JOBS if options.quick else JOBS)
    peer_s, peer_mean_s, peer_events = timed_peer(jobs)
    print(
        f"{len(jobs)} jobs on {GPUS} GPUs{'':6}{'events':>9}{'plans':>8}{'wall s':>9}{'events/s':>11}{'mean JCT s':>12}"
    )
    print_row("bare event queue", peer_events, 0, peer_s, peer_mean_s)
    for policy in options.policy or ["fifo", "srtf"]:
        profiler = cProfile.Profile() if options.profile else None
        events, plans, wall_s, mean_s = timed_run(policy, jobs, profiler)
        share = (events / wall_s) / (peer_events / peer_s)
        print_row(policy, events, plans, wall_s, mean_s, f"{share:9.4f} of the bare queue's events/s")
        if profiler is not None:
            print_profile(profiler)
    return 0


def poisson_jobs(count: int) -> tuple[JobSpec, ...]:
    """One-GPU jobs of 100 steps; the same on every machine."""
    arrivals, lengths = Random("simulator_speed/arrivals"), Random("simulator_speed/durations")
    seconds = [round(MEDIAN_S * 2.718281828459045 ** lengths.gauss(0.0, SIGMA), 3) for _ in range(count)]
    rate = LOAD * GPUS * count / sum(seconds)
    now_s, jobs = 0.0, []
    for row, duration_s in enumerate(seconds):
        now_s += arrivals.expovariate(rate)
        configuration = (Configuration("gpu", 1, 1000),)
        work = {"gpu": TimedWork(duration_s)}
        jobs.append(JobSpec(f"job-{row}", f"user-{row % 20}", round(now_s, 3), 100, configuration, work, row))
    return tuple(jobs)


def timed_peer(jobs: tuple[JobSpec, ...]) -> tuple[float, float, int]:
    """Wall seconds, mean JCT and events of first come first served on a bare heap."""
    began = time.perf_counter()
    heap = [(job.submit_s, job.row, True) for job in jobs]
    heapq.heapify(heap)
    queue: deque[int] = deque()
    free, events, total_s = GPUS, 0, 0.0
    while heap:
        now_s, row, arrives = heapq.heappop(heap)
        events += 1
        if arrives:
            queue.append(row)
        else:
            free += 1
            total_s += now_s - jobs[row].submit_s
        while free and queue:
            free -= 1
            row = queue.popleft()
            work = jobs[row].work["gpu"]
            assert isinstance(work, TimedWork)
            heapq.heappush(heap, (now_s + work.duration_s, row, False))
    return time.perf_counter() - began, total_s / len(jobs), events


class CountingCluster(SimulatedCluster):
    """Counts the events that it hands out."""

    events = 0

    def wait(self, until_ns: int | None) -> list[Event]:
        events = super().wait(until_ns)
        self.events += len(events)
        return events


def timed_run(
    policy: str, jobs: tuple[JobSpec, ...], profiler: cProfile.Profile | None
) -> tuple[int, int, float, float]:
    """Events (submissions included), plans, wall seconds and mean JCT of a run."""
    nodes = [NodeSpec(f"n{i}", 8000, 0, (Device(f"n{i}", 0, "Tesla-T4", 16 * GIB),)) for i in range(GPUS)]
    spec = ClusterSpec(tuple(nodes))
    truth = WorkloadTruth(Workload("poisson", jobs, ProfileTable.bundled()), spec)
    cluster = CountingCluster(truth, spec.costs)
    loop = SchedulerLoop(cluster, spec, resolve_policy(policy)[1], parse_estimates("oracle", truth, 0), jobs)
    began = time.perf_counter()
    if profiler is not None:
        profiler.enable()
    loop.run()
    if profiler is not None:
        profiler.disable()
    wall_s = time.perf_counter() - began
    records = loop.books.records()
    return cluster.events + len(jobs), loop.decisions, wall_s, sum(record.jct_s for record in records) / len(records)


def print_row(name: str, events: int, plans: int, wall_s: float, mean_s: float, more: str = "") -> None:
    """One line of the table."""
    print(f"{name:26}{events:>9}{plans:>8}{wall_s:>9.3f}{events / wall_s:>11,.0f}{mean_s:>12.1f}{more}", flush=True)


def print_profile(profiler: cProfile.Profile) -> None:
    """The functions that take most time by themselves."""
    text = io.StringIO()
    pstats.Stats(profiler, stream=text).sort_stats("tottime").print_stats(14)
    print("\n".join(line for line in text.getvalue().splitlines() if line.strip()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
