"""Writes workload.csv: 24 jobs of 1 to 16 GPUs for four servers of 8, drawn here. Run: python generate.py

Sizes and numbers of jobs are given, as few as 24 can't follow a distribution; their order, models and lengths are drawn, and
the times between submissions are exponential (a Poisson process). Steps follow from the wanted length and the time of a step,
which is the profile's and, with several GPUs, the exchange of gradients.
"""

from __future__ import annotations

from pathlib import Path
from random import Random

from emulator_runtime.domain.job import ModelWork
from emulator_runtime.domain.sensitivity import HostShare
from emulator_runtime.domain.units import to_s
from emulator_runtime.profiles.table import ProfileTable
from emulator_runtime.workloads.step_costs.work import Spread, step_times

SEED, BETWEEN_S, GPU_TYPE, CPUS_PER_GPU = "gangs-24", 6.0, "Tesla_V100-PCIE-32GB", 3
SIZES = {(1, 1): 8, (2, 1): 4, (4, 1): 4, (8, 1): 3, (8, 2): 3, (16, 2): 2}
"""(GPUs, nodes) -> jobs."""
LENGTHS_S = {1: (60, 160), 2: (60, 140), 4: (60, 130), 8: (50, 110), 16: (40, 70)}
"""GPUs -> the shortest and the longest, seconds; all in between are as likely."""
MODELS = (("resnet50", 64), ("resnet18", 128), ("densenet121", 64), ("mobilenet_v2", 128), ("googlenet", 128))
"""And batch size per GPU: models whose gradients a 10 Gbit/s network can carry."""
HEAD = """\
# 24 jobs of 1 to 16 GPUs for four servers of 8, drawn by generate.py. num_gpus is of the whole job, split equally over `nodes`.
job_id,submit_s,num_gpus,nodes,cpus,model,batch_size,steps
"""


def rows() -> list[str]:
    """The lines of the workload, the same on every machine."""
    order, arrivals, lengths = (Random(f"{SEED}/{purpose}") for purpose in ("order", "arrivals", "lengths"))
    sizes = [size for size, count in SIZES.items() for _ in range(count)]
    order.shuffle(sizes)
    profiles, at_s, lines = ProfileTable.bundled(), 0.0, []
    for number, (gpus, nodes) in enumerate(sizes):
        model, batch_size = order.choice(MODELS)
        work, spread = ModelWork(model, batch_size, exchanges=True), Spread(gpus // nodes, nodes)
        step_s = to_s(step_times(work, 1, GPU_TYPE, HostShare(1000), profiles, spread=spread).total_device_ns)
        steps = round(lengths.uniform(*LENGTHS_S[gpus]) / step_s)
        name = f"job-{number:02}-{nodes}x{gpus // nodes}"
        lines.append(f"{name},{at_s:.1f},{gpus},{nodes},{gpus * CPUS_PER_GPU},{model},{batch_size},{steps}\n")
        at_s += arrivals.expovariate(1 / BETWEEN_S)
    return lines


if __name__ == "__main__":
    Path(__file__).with_name("workload.csv").write_text(HEAD + "".join(rows()), encoding="utf-8")
