"""An analytic model of what training a GPT takes on 32 GPUs, to test searches with: quick as a formula, crooked as real ones.

Products are slower if they are narrow, tensor parallelism communicates in each layer, pipelines have bubbles, recomputation
costs a third, and memory decides what runs at all.
"""

from __future__ import annotations

from pathlib import Path

from emugpu.search.evaluation import Outcome, State
from emugpu.search.recipe import Configuration, Recipe, read_recipe

RECIPE = """
command: train --tp {tp} --pp {pp} --micro-batch {micro_batch} --virtual {virtual} --zero {zero} {checkpointing} {sequence}
knobs:
  tp: [1, 2, 4, 8]
  pp: [1, 2, 4, 8]
  micro_batch: [1, 2, 4, 8, 16]
  virtual: [1, 2, 4]
  zero: [0, 1, 2]
  checkpointing: ["", --checkpointing]
  sequence: ["", --sequence-parallel]
constants: {gpu_count: 32, batch: 512, layers: 24}
constraints:
  - tp * pp <= gpu_count
  - batch % (gpu_count // (tp * pp) * micro_batch) == 0
  - virtual == 1 or (pp > 1 and layers % (pp * virtual) == 0)
  - sequence == "" or tp > 1
gpus: gpu_count
samples: batch
gpu_types: [H100]
memory_rises_with: [micro_batch]
"""
PARAMETERS, LAYERS, GPUS, BATCH = 1.3e9, 24, 32, 512


def gpt_recipe(folder: Path) -> Recipe:
    path = folder / "gpt.yaml"
    path.write_text(RECIPE, encoding="utf-8")
    return read_recipe(path)


def gpt(configuration: Configuration) -> Outcome:
    """What a step takes, in seconds, and the memory of a rank."""
    tp, pp, micro, virtual, zero = (int(configuration[name]) for name in ("tp", "pp", "micro_batch", "virtual", "zero"))
    again, sequence = bool(configuration["checkpointing"]), bool(configuration["sequence"])
    dp = GPUS // (tp * pp)
    rounds = BATCH // (dp * micro)
    own = PARAMETERS / (tp * pp)
    states = own * (4 + 12 / (dp if zero >= 1 else 1)) - own * 2 * (1 - 1 / dp) * (zero == 2)
    kept = 114 * 2048 * 2048 * micro * LAYERS / pp * min(pp, rounds) / (tp if sequence or again else 0.7 * tp + 0.3)
    memory = states + kept * (0.1 if again else 1.0) + 1e9
    if memory > 80e9:
        return Outcome(State.OUT_OF_MEMORY, f"{memory / 1e9:.0f} GB", memory_bytes=int(memory))
    efficiency = 0.62 * micro / (micro + 0.7 * tp)
    compute = 6 * own * 2048 * micro / (990e12 * efficiency) * (4 / 3 if again else 1.0)
    inside = 4 * 2 * 2048 * 2048 * micro * 2 * LAYERS / pp * (tp - 1) / tp / 400e9 * (0.9 if sequence else 1.0)
    hops = 0.0004 * pp * (virtual - 1) + (0.0002 if pp > 1 else 0)
    pipeline = (compute + inside) * (rounds + (pp - 1) / virtual) + hops * rounds
    outside = 2 * own * 2 * (dp - 1) / dp / 50e9 * (1.0 if zero < 2 else 1.2)
    step = pipeline + max(0.0, outside - 0.5 * pipeline) + 0.1 * outside
    return Outcome(State.DONE, step_s=step, sample_s=step / BATCH, memory_bytes=int(memory), bound="compute")
