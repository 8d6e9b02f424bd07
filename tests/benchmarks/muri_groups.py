"""Decisions of Muri-S per second of CPU time: 992 jobs of eight models on 64 GPUs, as in its third trace.

One job changes at each event. Sizes are 1 to 32 GPUs, most of them 8, and up to four times as many jobs are present as fit alone,
so that each decision has matchings. The peer, measured in the same run, is grouping in order of the jobs, without a matching.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from random import Random

from scheduler_sims.policies.muri.grouping import Candidate, Grouping
from scheduler_sims.policies.muri.interleaving import Profile

GPUS, WIDTH, JOBS, QUICK_JOBS = 64, 8, 992, 200
SIZES, WEIGHTS = (1, 2, 4, 8, 16, 32), (9, 4, 5, 70, 2, 10)


def main(argv: list[str]) -> int:
    """Print the table; always 0."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks muri_groups", description=__doc__)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_JOBS} jobs instead of {JOBS}")
    options, _ = parser.parse_known_args(argv)  # other benchmarks have options of their own
    jobs = drawn(QUICK_JOBS if options.quick else JOBS)
    print(f"{'present':>8}{'Muri-S decisions/s':>20}{'without matching':>18}{'ratio':>8}")
    for present in (16, 32, 64, 128):
        matched, peer = (per_s(jobs, present, Grouping(matched=matching)) for matching in (True, False))
        print(f"{present:>8}{matched:>20,.0f}{peer:>18,.0f}{matched / peer:>8.2f}", flush=True)
    return 0


def drawn(count: int) -> list[Candidate]:
    """Jobs with log-normal GPU-seconds left."""
    draw = Random("muri_groups/jobs")
    models = [tuple(draw.uniform(0.001, 0.5) for _ in range(4)) for _ in range(8)]
    profiles = [Profile(sum(stages), stages) for stages in models]
    return [
        Candidate(f"j{number}", draw.choices(SIZES, WEIGHTS)[0], draw.choice(profiles), draw.lognormvariate(10, 2))
        for number in range(count)
    ]


def per_s(jobs: list[Candidate], present: int, grouping: Grouping) -> float:
    """Decisions with `present` jobs at a time: at each event the job with the least left ends, and the next one arrives."""
    here, began = sorted(jobs[:present], key=lambda job: job.key), time.process_time()
    for arrived in jobs[present:]:
        grouping.groups(here, GPUS, empty)
        here[0] = arrived
        here.sort(key=lambda job: job.key)
    return (len(jobs) - present) / (time.process_time() - began)


def empty() -> Callable[[Candidate], bool]:
    """An empty cluster: first fit on one node, whole nodes for wide jobs."""
    free = [WIDTH] * (GPUS // WIDTH)

    def fits(candidate: Candidate) -> bool:
        each = min(candidate.gpus, WIDTH)
        chosen = [node for node, left in enumerate(free) if left >= each][: candidate.gpus // each]
        if len(chosen) * each < candidate.gpus:
            return False
        for node in chosen:
            free[node] -= each
        return True

    return fits
