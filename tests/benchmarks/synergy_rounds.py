"""Rounds of Synergy-TUNE per second of CPU time: first rounds, and the rounds of a simulated run.

First rounds: one policy object, 32 to 512 GPUs, each with 1.25 one-GPU jobs per GPU in the system. Simulated rounds of 300 s:
3,000 jobs of 1 to 4 GPUs, most of which wait; under LAS other jobs run in each round. "policy": its plans alone, at ends of
jobs as well. The peer, measured in the same run, is the proportional allocation, which pushes nobody.
"""

from __future__ import annotations

import argparse
import time
from random import Random

from emulator_runtime.domain.gpu import Device
from emulator_runtime.domain.job import Configuration, JobSpec, TimedWork
from emulator_runtime.domain.units import GIB, to_ns
from emulator_runtime.profiles.synergy import SYNERGY_MODELS
from emulator_runtime.profiles.table import ProfileTable
from scheduler_sims.clusters.simulated import SimulatedCluster
from scheduler_sims.inputs.cluster_file import ClusterSpec, NodeSpec
from scheduler_sims.inputs.truth import WorkloadTruth
from scheduler_sims.inputs.workload import Workload
from scheduler_sims.interface.costs import ClusterCosts
from scheduler_sims.interface.estimates import parse_estimates
from scheduler_sims.interface.plan import Plan
from scheduler_sims.interface.view import ClusterView
from scheduler_sims.loop.scheduler_loop import SchedulerLoop
from scheduler_sims.loop.strategies import Ending
from scheduler_sims.policies.synergy import Synergy
from scheduler_sims.testing import Job, Node, cluster_view

GPUS, QUICK_GPUS = (32, 128, 512), (32, 128)
ACTIVE, ROUNDS = 3_000, 20
LEAST_S = 0.5


def main(argv: list[str]) -> int:
    """Print the table; always 0."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks synergy_rounds", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small clusters only")
    options, _ = parser.parse_known_args(argv)  # other benchmarks have options of their own
    print(f"{'GPUs':>6}{'jobs':>6}{'TUNE rounds/s':>15}{'proportional':>14}{'ratio':>8}")
    for gpus in QUICK_GPUS if options.quick else GPUS:
        view = view_of(gpus)
        tune, peer = (rounds_per_s(view, allocation) for allocation in ("tune", "proportional"))
        print(f"{gpus:>6}{len(view.jobs):>6}{tune:>15,.0f}{peer:>14,.0f}{tune / peer:>8.2f}", flush=True)
    active = 300 if options.quick else ACTIVE
    print(f"rounds of a run with {active:,} jobs:")
    print(f"{'GPUs':>6}{'order':>6}{'TUNE rounds/s':>15}{'policy':>8}{'proportional':>14}{'ratio':>8}")
    for gpus in QUICK_GPUS if options.quick else GPUS:
        for order in ("fifo", "las"):
            tune, alone = simulated_rounds_per_s(gpus, active, order, "tune")
            peer, _ = simulated_rounds_per_s(gpus, active, order, "proportional")
            print(f"{gpus:>6}{order:>6}{tune:>15,.0f}{alone:>8,.0f}{peer:>14,.0f}{tune / peer:>8.2f}", flush=True)
    return 0


def view_of(gpus: int) -> ClusterView:
    """A cluster in which 5 jobs for 4 GPUs wait, of the ten models in a drawn order."""
    nodes = [Node(f"n{index}", gpus=8, cpus=24, memory_gib=500) for index in range(gpus // 8)]
    names, draw = list(SYNERGY_MODELS), Random("synergy_rounds/models")
    jobs = [job_of(f"j{n}", draw.choice(names)) for n in range(gpus * 5 // 4)]
    return cluster_view(nodes, jobs, rounds=Synergy().rounds)


def job_of(job_id: str, model: str) -> Job:
    """An hour of this model."""
    known = SYNERGY_MODELS[model]
    best, least = known.sensitivity.best, known.least(1)
    fast = {"best_cpus": best.cpu_milli / 1000, "best_memory_gib": best.memory_bytes / GIB}
    return Job(job_id, gpu_s=3600, cpus=least.cpu_milli / 1000, memory_gib=least.memory_bytes / GIB, **fast)


def rounds_per_s(view: ClusterView, allocation: str, *, order: str = "las") -> float:
    """First rounds of a policy that remembers nothing, until half a second is over."""
    policy, count, began = Synergy(order=order, allocation=allocation), 0, time.process_time()
    while time.process_time() - began < LEAST_S:
        policy.plan(view)
        count += 1
    return count / (time.process_time() - began)


class Timed(Synergy):
    """The policy, with the CPU seconds of its plans."""

    spent_s = 0.0

    def plan(self, view: ClusterView) -> Plan:
        began = time.process_time()
        try:
            return super().plan(view)
        finally:
            self.spent_s += time.process_time() - began


def simulated_rounds_per_s(gpus: int, active: int, order: str, allocation: str) -> tuple[float, float]:
    """Of a run in which all jobs are submitted before the first of ROUNDS rounds: with loop and simulated cluster, and the
    policy alone."""
    nodes = [
        NodeSpec(f"n{n}", 24_000, 500 * GIB, tuple(Device(f"n{n}", i, "Tesla-T4", 16 * GIB) for i in range(8)))
        for n in range(gpus // 8)
    ]
    cluster, draw = ClusterSpec(tuple(nodes), ClusterCosts()), Random("synergy_rounds/run")
    jobs = []
    for row in range(active):
        width, cpus, long_s = draw.choice([1, 1, 1, 2, 4]), draw.choice([3, 6, 9]), draw.uniform(3e3, 3e4)
        wanted = Configuration("gpu", width, 1_000 * width, best_cpu_milli=min(24, cpus * width) * 1_000)
        jobs.append(JobSpec(f"j{row}", "user", 0.0, round(long_s), (wanted,), {"gpu": TimedWork(long_s)}, row))
    truth = WorkloadTruth(Workload("rounds", tuple(jobs), ProfileTable.bundled()), cluster)
    simulated, policy = SimulatedCluster(truth, cluster.costs), Timed(order=order, allocation=allocation)
    end_ns = to_ns(ROUNDS * policy.round_s)
    ending = Ending(lambda _books: simulated.now_ns() >= end_ns)
    loop = SchedulerLoop(simulated, cluster, policy, parse_estimates("oracle", truth, 0), jobs, ending=ending)
    began = time.process_time()
    loop.run()
    return ROUNDS / (time.process_time() - began), ROUNDS / policy.spent_s
