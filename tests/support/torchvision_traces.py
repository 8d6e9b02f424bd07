"""Traces of training steps of torchvision's models (tools/torchvision_steps.py), made once and kept in the user's cache."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from cluster_harness.cache import default_root
from emulator_runtime.prediction.reading import SUFFIX, read_manifest, write_manifest
from tests.support.torch_releases import TorchRelease

PROGRAM = Path(__file__).parents[2] / "tools" / "torchvision_steps.py"
TRACED_ON = "NVIDIA-A100-SXM4-80GB"
"""Enough memory for all models at a batch size of 128."""

Pair = tuple[str, int]  # model, batch size


def ensure_traces(release: TorchRelease, models: Sequence[str], batch_sizes: Sequence[int]) -> dict[Pair, Path]:
    """The folder of each trace. Those that the cache lacks are made, in some seconds each. Raises CalledProcessError, OSError."""
    root = default_root() / "torchvision-traces" / release.torch
    folders = {(model, batch): root / f"{model}-{batch}" for model in models for batch in batch_sizes}
    for model in models:
        missing = [batch for batch in batch_sizes if not folders[model, batch].exists()]
        if missing:
            print(f"tracing {model} at batch size {', '.join(map(str, missing))}", file=sys.stderr, flush=True)
            _trace(release, model, missing, root)
    return folders


def _trace(release: TorchRelease, model: str, batch_sizes: Sequence[int], root: Path) -> None:
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root) as temporary:
        folder = Path(temporary) / "trace"
        command = [sys.executable, "-m", "emugpu", "trace", "--gpu-type", TRACED_ON, "--out", str(folder), "--"]
        words = [str(release.python), str(PROGRAM), "processes", model, ",".join(map(str, batch_sizes))]
        environment = os.environ | {"PYTHONWARNINGS": "ignore"}
        done = subprocess.run([*command, *words], stdout=subprocess.PIPE, text=True, env=environment, check=True)
        for (name, batch, process), file in _files(done.stdout, folder):
            _keep(folder, file, root / f"{name}-{batch}", process)


def _files(output: str, folder: Path) -> Iterator[tuple[tuple[str, int, int], Path]]:
    """What the program printed for each process, and the process's file."""
    for line in output.splitlines():
        if line.startswith('["'):
            name, batch, process = json.loads(line)
            yield (name, batch, process), folder / f"process-{process}{SUFFIX}"


def _keep(folder: Path, file: Path, target: Path, process: int) -> None:
    """A folder of its own for a process. It appears when it is complete."""
    own = folder.parent / target.name
    own.mkdir()
    shutil.copy(file, own / f"process-{process}{SUFFIX}")
    write_manifest(own, replace(read_manifest(folder), gpus=1))
    own.rename(target)
