"""Writes workload.csv: 20 training jobs for the GPUs that two services leave, drawn here. Run: python generate.py"""

from __future__ import annotations

from pathlib import Path
from random import Random

SEED, JOBS, BETWEEN_S, LENGTHS_S = "services-2", 20, 500.0, (600, 5400)
SIZES = (1, 1, 2, 2, 4, 4, 8)
HEAD = """\
# 20 training jobs, drawn by generate.py.
job_id,submit_s,num_gpus,cpus,gpu_duration_s
"""


def rows() -> list[str]:
    """The lines of the workload, the same on every machine."""
    random, at_s, lines = Random(SEED), 0.0, []
    for number in range(JOBS):
        gpus = random.choice(SIZES)
        lines.append(f"train-{number:02},{at_s:.0f},{gpus},{2 * gpus},{random.randint(*LENGTHS_S)}\n")
        at_s += random.expovariate(1 / BETWEEN_S)
    return lines


if __name__ == "__main__":
    Path(__file__).with_name("workload.csv").write_text(HEAD + "".join(rows()), encoding="utf-8")
