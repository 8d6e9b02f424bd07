"""Rounds of Synergy-TUNE per second: one policy object, 32 to 512 GPUs, each with 1.25 one-GPU jobs per GPU in the system.

The peer, measured in the same run, is the same round with the proportional allocation, which pushes nobody.
"""

from __future__ import annotations

import argparse
import time
from random import Random

from emulator_runtime.domain.units import GIB
from emulator_runtime.profiles.synergy import SYNERGY_MODELS
from scheduler_sims.interface.view import ClusterView
from scheduler_sims.policies.synergy import Synergy
from scheduler_sims.testing import Job, Node, cluster_view

GPUS, QUICK_GPUS = (32, 128, 512), (32, 128)
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
