"""Writes workload.csv: 12 language models for eight servers of 8 A100, drawn here. Run: python generate.py

Models, how they are divided, and the speed of a GPU are rows of table 1 of Narayanan et al., "Efficient Large-Scale Language
Model Training on GPU Clusters Using Megatron-LM", SC'21; the operations of a step are its formula 3. The jobs have fewer GPUs and
smaller batches than the rows of the table, at the same speed of a GPU without the pipeline's bubble.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from random import Random

from emulator_runtime.domain.parallelism import Parallelism

SEED, BETWEEN_S, GPUS_PER_NODE, CPUS_PER_GPU = "llm-12", 900.0, 8, 8
SEQUENCE, VOCABULARY, MICROBATCH = 2048, 51200, 4
HEAD = """\
# 12 language models for eight servers of 8 A100, drawn by generate.py. num_gpus is of the whole job, split equally over `nodes`.
job_id,submit_s,num_gpus,nodes,min_gpus,max_gpus,min_nodes,max_nodes,tensor_parallel,pipeline_parallel,microbatches,cpus,\
gpu_duration_s,steps
"""


@dataclass(frozen=True)
class Model:
    """A row of the table; `tflops`: of a GPU. `jobs`: how many, and `gpus` what one is submitted with."""

    name: str
    hidden: int
    layers: int
    tensor: int
    pipeline: int
    tflops: float
    jobs: int
    gpus: int

    def step_s(self, microbatches: int) -> float:
        """Of one step, on `gpus` GPUs."""
        operations = 96.0 * microbatches * MICROBATCH * SEQUENCE * self.layers * self.hidden**2
        operations *= 1 + SEQUENCE / (6 * self.hidden) + VOCABULARY / (16 * self.layers * self.hidden)
        replica = Parallelism(self.tensor, self.pipeline, microbatches)
        slots = replica.slots(self.gpus)
        return operations / (self.gpus * self.tflops * 1e12) * slots / (slots - self.pipeline + 1)


MODELS = (
    Model("1.7B", 2304, 24, 1, 1, 137, 4, 8),
    Model("3.6B", 3072, 30, 2, 1, 138, 3, 8),
    Model("7.5B", 4096, 36, 4, 1, 142, 3, 16),
    Model("18.4B", 6144, 40, 8, 1, 135, 1, 32),
    Model("39.1B", 8192, 48, 8, 2, 138, 1, 32),
)
LENGTHS_S = (1800, 7200)
MICROBATCHES = 64
MOST_GPUS = 64


def rows() -> list[str]:
    """The lines of the workload, the same on every machine."""
    order, arrivals, lengths = (Random(f"{SEED}/{purpose}") for purpose in ("order", "arrivals", "lengths"))
    models = [model for model in MODELS for _ in range(model.jobs)]
    order.shuffle(models)
    at_s, lines = 0.0, []
    for number, model in enumerate(models):
        step_s = model.step_s(MICROBATCHES)
        steps = round(lengths.uniform(*LENGTHS_S) / step_s)
        least = model.tensor * model.pipeline
        nodes, fewest, most = (max(1, gpus // GPUS_PER_NODE) for gpus in (model.gpus, least, MOST_GPUS))
        gpus = f"{model.gpus},{nodes},{least},{MOST_GPUS},{fewest},{most}"
        divided = f"{model.tensor},{model.pipeline},{MICROBATCHES}"
        cpus = model.gpus * CPUS_PER_GPU
        lines.append(f"job-{number:02}-{model.name},{at_s:.0f},{gpus},{divided},{cpus},{steps * step_s:.1f},{steps}\n")
        at_s += arrivals.expovariate(1 / BETWEEN_S)
    return lines


if __name__ == "__main__":
    Path(__file__).with_name("workload.csv").write_text(HEAD + "".join(rows()), encoding="utf-8")
