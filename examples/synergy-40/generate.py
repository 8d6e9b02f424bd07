"""Writes workload.csv: 40 one-GPU jobs in the shape of Synergy's static traces, drawn here. Run: python generate.py

All are submitted at 0. Models take turns among nine (five for images, three for language, one for
speech). Run time with the proportional share: 60 x 10^U(1.5, 2.5) s, for one job in five 60 x 10^U(2.5, 2.7) s; this is
the distribution that Synergy's generator calls a small trace (Mohan et al., OSDI 2022; msr-fiddle/synergy at 1bb2bed).
"""

from __future__ import annotations

from pathlib import Path
from random import Random

from emulator_runtime.profiles.synergy import SYNERGY_MODELS

JOBS, SEED = 40, "synergy-40"
NAMES = ("alexnet", "gnmt", "deepspeech", "res18", "res50", "transformer", "mobilenet", "shufflenet", "lstm")
HEAD = """\
# 40 one-GPU jobs in the shape of Synergy's static traces, drawn by generate.py (which says how, and with which seed).
job_id,model,steps
"""


def rows() -> list[str]:
    """The lines of the workload, the same on every machine."""
    draw = Random(f"{SEED}/durations")
    lines = []
    for number in range(JOBS):
        low, high = (2.5, 2.7) if draw.random() >= 0.8 else (1.5, 2.5)
        model = f"synergy/{NAMES[number % len(NAMES)]}"
        steps = round(60 * 10 ** draw.uniform(low, high) / SYNERGY_MODELS[model].step_s)
        lines.append(f"job-{number:02},{model},{steps}\n")
    return lines


if __name__ == "__main__":
    Path(__file__).with_name("workload.csv").write_text(HEAD + "".join(rows()), encoding="utf-8")
