"""Writes workload.csv: 40 one-GPU jobs in the shape of Synergy's static traces, drawn here. Run: python generate.py

All are submitted at 0. Models take turns among nine (five for images, three for language, one for
speech). Run time with the proportional share: 60 x 10^U(1.5, 2.5) s, for one job in five 60 x 10^U(2.5, 2.7) s; this is
the distribution that Synergy's generator calls a small trace (Mohan et al., OSDI 2022; msr-fiddle/synergy at 1bb2bed).
Steps are ten seconds long, not as short as real ones, so that a run with real processes has 50,000 of them, not millions.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

JOBS, STEP_S, SEED = 40, 10, "synergy-40"
NAMES = ("alexnet", "gnmt", "deepspeech", "res18", "res50", "transformer", "mobilenet", "shufflenet", "lstm")
HEAD = """\
# 40 one-GPU jobs in the shape of Synergy's static traces, drawn by generate.py (which says how, and with which seed).
# gpu_duration_s holds with the proportional share, 3 CPUs and 62.5 GiB; the models' profiles say how much faster more is.
job_id,model,gpu_duration_s,steps
"""


def rows() -> list[str]:
    """The lines of the workload, the same on every machine."""
    draw = Random(f"{SEED}/durations")
    lines = []
    for number in range(JOBS):
        low, high = (2.5, 2.7) if draw.random() >= 0.8 else (1.5, 2.5)
        seconds = round(60 * 10 ** draw.uniform(low, high))
        lines.append(f"job-{number:02},synergy/{NAMES[number % len(NAMES)]},{seconds},{round(seconds / STEP_S)}\n")
    return lines


if __name__ == "__main__":
    Path(__file__).with_name("workload.csv").write_text(HEAD + "".join(rows()), encoding="utf-8")
