"""Megatron's published GPT table, predicted: 1.7 billion to 1 trillion parameters on 32 to 3,072 A100 (Narayanan et al., SC'21).

Each row is traced with megatron-core on virtual ranks, one for each pipeline stage, and predicted with the same constants as
everything else. Where a row has many microbatches, fewer are traced, and the others are added at the interval at which the last
stage ends its later ones. It needs a Python with torch and megatron-core (--torch), and is left out, with a line, without one.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from emulator_runtime.domain.units import NS_PER_S
from emulator_runtime.prediction.microbatches import with_microbatches
from emulator_runtime.prediction.prediction import Conditions, Predictor
from emulator_runtime.prediction.reading import read_trace
from emulator_runtime.timing.host import monotonic_ns

PROGRAM = Path(__file__).parents[1] / "cuda_frameworks" / "predicted" / "megatron_gpt.py"
PYTHON = Path(os.environ.get("EMUGPU_MEGATRON_PYTHON", "~/.cache/emugpu/torch/megatron/bin/python")).expanduser()
SEQUENCE, VOCABULARY = 2048, 51200
GPU, NETWORK_GBPS, GPUS_PER_NODE = "A100-80GB", 1600.0, 8
"""Selene's nodes: 8 A100 of 80 GB with NVLink, and 8 HDR InfiniBand adapters of 200 Gbit/s for the computation."""
STEPS = 3
"""Of the program: the optimizer makes its state in the first, and the third is measured."""


@dataclass(frozen=True, slots=True)
class Row:
    """`published`: achieved TFLOP/s of a GPU. `micro_batch`, `chunks` (of a stage, in the interleaved schedule): as in the
    scripts that the authors published for it (Megatron-LM, examples/sc21/run_table_1.sh). `traced`: microbatches, if fewer."""

    name: str
    heads: int
    hidden: int
    layers: int
    tp: int
    pp: int
    gpus: int
    batch: int
    published: float
    micro_batch: int
    chunks: int = 1
    traced: int | None = None

    @property
    def microbatches(self) -> int:
        return self.batch * self.tp * self.pp // (self.gpus * self.micro_batch)

    @property
    def flops(self) -> float:
        """Of a step, with one recomputation of the activations (section 4 of the paper, formula 3)."""
        operations = 96.0 * self.batch * SEQUENCE * self.layers * self.hidden**2
        return operations * (1 + SEQUENCE / (6 * self.hidden) + VOCABULARY / (16 * self.layers * self.hidden))

    def command(self, python: Path, folder: Path) -> list[str]:
        dp = self.gpus // (self.tp * self.pp)
        job = [
            "--world-size",
            self.gpus,
            "--gpus-per-node",
            GPUS_PER_NODE,
            "--layout",
            f"tp={self.tp},pp={self.pp},dp={dp}",
        ]
        model = [
            "--layers",
            self.layers,
            "--hidden",
            self.hidden,
            "--heads",
            self.heads,
            "--micro-batch",
            self.micro_batch,
        ]
        parallel = [
            "--tp",
            self.tp,
            "--pp",
            self.pp,
            "--chunks",
            self.chunks,
            "--microbatches",
            self.traced or self.microbatches,
            "--steps",
            STEPS,
            *(["--overlap"] if self.pp == 1 else []),
        ]
        words = ["trace", "--gpu-type", GPU, "--out", folder, *job, "--", python, PROGRAM, *model, *parallel]
        return [sys.executable, "-m", "emugpu", *map(str, words)]


ROWS = (
    Row("1.7B", 24, 2304, 24, 1, 1, 32, 512, 137, 16),
    Row("3.6B", 32, 3072, 30, 2, 1, 64, 512, 138, 16),
    Row("7.5B", 32, 4096, 36, 4, 1, 128, 512, 142, 16),
    Row("18.4B", 48, 6144, 40, 8, 1, 256, 1024, 135, 8),
    Row("39.1B", 64, 8192, 48, 8, 2, 512, 1536, 138, 4),
    Row("76.1B", 80, 10240, 60, 8, 4, 1024, 1792, 140, 2, chunks=3),
    Row("145.6B", 96, 12288, 80, 8, 8, 1536, 2304, 148, 2, chunks=2),
    Row("310.1B", 128, 16384, 96, 8, 16, 1920, 2160, 155, 1, chunks=2, traced=48),
    Row("529.6B", 128, 20480, 105, 8, 35, 2520, 2520, 163, 1, chunks=3, traced=70),
    Row("1008B", 160, 25600, 128, 8, 64, 3072, 3072, 163, 1, traced=80),
)


def main(argv: Sequence[str]) -> int:
    """Prints the table; 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--torch", type=Path, default=PYTHON, help=f"a Python with torch and megatron-core (default: {PYTHON})"
    )
    parser.add_argument("--rows", default="", help="names of rows with commas between (default: all)")
    parser.add_argument("--quick", action="store_true", help="nothing, unless --rows names rows: each takes minutes")
    options, _ = parser.parse_known_args(argv)
    if options.quick and not options.rows:
        print("left out: a row takes minutes; name some by --rows")
        return 0
    if not _has_megatron(options.torch):
        print(
            f"left out: {options.torch} has no megatron-core; docs/prediction.md says what it needs, --torch names another one"
        )
        return 0
    print(
        f"{'model':8}{'GPUs':>6}{'stages':>7}{'microbatches':>14}{'step s':>9}{'TFLOP/s':>9}{'published':>11}{'error':>8}{'s':>7}"
    )
    wanted = options.rows.split(",") if options.rows else [row.name for row in ROWS]
    for row in ROWS:
        if row.name in wanted:
            _print(row, options.torch)
    return 0


def _has_megatron(python: Path) -> bool:
    if not python.exists():
        return False
    code = "import importlib.util, sys; sys.exit(importlib.util.find_spec('megatron.core') is None)"
    return subprocess.run([python, "-c", code], capture_output=True, check=False).returncode == 0


def _print(row: Row, python: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        begun_ns = monotonic_ns()
        environment = os.environ | {
            "OMP_NUM_THREADS": "1",
            "TORCHINDUCTOR_COMPILE_THREADS": "1",
            "CUDA_DEVICE_MAX_CONNECTIONS": "1",
        }
        done = subprocess.run(
            row.command(python, Path(folder) / "trace"), capture_output=True, text=True, env=environment, check=False
        )
        if done.returncode != 0:
            print(done.stdout[-2000:] + done.stderr[-4000:])
            raise RuntimeError(f"{row.name}: emugpu trace ended with status {done.returncode}")
        step_s = step_of(row, Path(folder) / "trace")
        took_s = (monotonic_ns() - begun_ns) / NS_PER_S
    achieved = row.flops / step_s / row.gpus / 1e12
    traced = f"{row.traced or row.microbatches} of {row.microbatches}"
    print(
        f"{row.name:8}{row.gpus:6}{row.pp:7}{traced:>14}{step_s:9.2f}{achieved:9.1f}{row.published:11.0f}"
        f"{achieved / row.published - 1:+8.1%}{took_s:7.0f}",
        flush=True,
    )


def step_of(row: Row, folder: Path) -> float:
    """Seconds of a step with all microbatches."""
    found = Predictor(read_trace(folder)).predict(GPU, Conditions(network_gbps=NETWORK_GBPS))
    assert found.step_s is not None, "the trace has no steps"
    assert all(1 < rank.steps <= STEPS for rank in found.ranks), "what repeats isn't a step, but a microbatch"
    assert not found.out_of_memory, f"ranks {found.out_of_memory} need {found.memory_bytes} bytes"
    if row.traced is None:
        return found.step_s
    step_s, _ = with_microbatches(found, row.traced, row.microbatches, row.pp)
    return step_s
