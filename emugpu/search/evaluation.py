"""What a configuration of a recipe takes: its command is traced once, and predicted on each GPU type.

Traces are kept in the search's folder by their command, so that a search that goes on, and another GPU type, don't trace again.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from emugpu.prediction.figures import cost_of
from emugpu.search.recipe import GPU_TYPE, Configuration, Recipe
from emulator_runtime.domain.errors import EmuGpuError
from emulator_runtime.domain.units import GIB
from emulator_runtime.prediction.microbatches import with_microbatches
from emulator_runtime.prediction.prediction import Conditions, Prediction, Predictor
from emulator_runtime.prediction.reading import read_manifest, read_trace
from emulator_runtime.profiles.catalogue import gpu_spec
from emulator_runtime.virtual_ranks.layout import STAGES

_LOG = "program.log"
_OUT_OF_MEMORY = "out of memory"
_ERROR = re.compile(r"Error|^emugpu:")
_NO_MEMORY = re.compile(rf"OutOfMemoryError|(?:Error|error|^emugpu:).*(?i:{_OUT_OF_MEMORY})")
"""An error of that kind, not a hint about "out of memory errors", which may precede any other failure."""


class State(StrEnum):
    """How an evaluation ended. PRUNED: it didn't need to be done."""

    DONE = "done"
    OUT_OF_MEMORY = _OUT_OF_MEMORY
    FAILED = "failed"
    PRUNED = "pruned"


@dataclass(frozen=True, slots=True)
class Outcome:
    """`reason`: why it isn't DONE. `sample_s`, `sample_cost`: of a step, divided by its samples; the cost is None without prices,
    in their currency. `memory_bytes`: of the rank that needs most. `seconds`: where a step's time goes."""

    state: State
    reason: str = ""
    step_s: float | None = None
    sample_s: float | None = None
    sample_cost: float | None = None
    memory_bytes: int | None = None
    bound: str = ""
    seconds: Mapping[str, float] = field(default_factory=dict)


class Evaluate(Protocol):
    """Finds what a configuration takes. May be called by several threads at once."""

    def __call__(self, configuration: Configuration) -> Outcome: ...


class TracedEvaluation:
    """Traces and predicts. `stop` ends the programs that run."""

    def __init__(self, recipe: Recipe, folder: Path) -> None:
        """`folder`: for traces."""
        self._recipe, self._folder = recipe, folder
        self._lock = threading.Lock()
        self._traced: dict[Path, threading.Lock] = {}
        self._children: set[subprocess.Popen[bytes]] = set()
        self._stopped = False
        specs = [gpu_spec(str(name), "gpu_types") for name in recipe.knobs[GPU_TYPE]]
        self._largest = max(specs, key=lambda spec: spec.memory_bytes)

    def __call__(self, configuration: Configuration) -> Outcome:
        """Raises InputError for expressions that can't be worked out, and OSError."""
        words, job = self._recipe.words(configuration), self._job(configuration)
        key = hashlib.sha256(json.dumps([words, job]).encode()).hexdigest()[:16]
        folder = self._folder / key
        with self._lock:
            one_at_a_time = self._traced.setdefault(folder, threading.Lock())
        with one_at_a_time:  # configurations may differ in the GPU type only
            problem = self._trace(folder, words, job)
        if problem:
            return problem
        try:
            found = Predictor(read_trace(folder)).predict(
                str(configuration[GPU_TYPE]), Conditions(self._recipe.network_gbps)
            )
            return self.outcome(configuration, found)
        except EmuGpuError as error:
            return Outcome(State.FAILED, str(error))

    def outcome(self, configuration: Configuration, found: Prediction) -> Outcome:
        """What a prediction means for the recipe. Raises InputError if its microbatches can't be found."""
        if found.out_of_memory:
            need, has = found.memory_bytes / GIB, found.device_memory_bytes / GIB
            reason = f"rank {found.out_of_memory[0]} needs {need:.1f} GiB of {has:.1f} GiB"
            return Outcome(State.OUT_OF_MEMORY, reason, memory_bytes=found.memory_bytes)
        if found.step_s is None:
            return Outcome(State.FAILED, "no step was found in its trace: at least two must run, six are better")
        step_s, seconds = found.step_s, found.seconds
        count, traced = self._recipe.microbatch_counts(configuration)
        if count > traced:
            step_s, seconds = with_microbatches(found, traced, count, self._recipe.axes(configuration).get(STAGES, 1))
        samples = self._recipe.samples_in_step(configuration)
        price = self._recipe.prices.get(found.gpu_type)
        cost = None
        if price is not None:
            cost = cost_of(step_s, self._recipe.gpu_count(configuration), price) / samples
        return Outcome(
            State.DONE,
            step_s=step_s,
            sample_s=step_s / samples,
            sample_cost=cost,
            memory_bytes=found.memory_bytes,
            bound=found.bound,
            seconds=seconds,
        )

    def _job(self, configuration: Configuration) -> list[str]:
        """The options of `emugpu trace` that say which GPUs the command has."""
        gpus, axes = self._recipe.gpu_count(configuration), self._recipe.axes(configuration)
        if not axes:
            return ["--gpus", str(gpus)]
        layout = ",".join(f"{axis}={size}" for axis, size in axes.items())
        return ["--world-size", str(gpus), "--gpus-per-node", str(self._recipe.gpus_per_node), "--layout", layout]

    def stop(self) -> None:
        """Ends the programs that are being traced."""
        with self._lock:
            self._stopped = True
            for child in self._children:
                child.terminate()

    def _trace(self, folder: Path, words: list[str], job: list[str]) -> Outcome | None:
        """What was wrong with the program; None: nothing."""
        if (folder / "trace.json").is_file() and read_manifest(folder).exit_status == 0:
            return None
        folder.mkdir(parents=True, exist_ok=True)
        options = [*job, "--gpu-type", self._largest.gpu_type, "--out", str(folder / "new")]
        with (folder / _LOG).open("wb") as log:
            with self._lock:
                if self._stopped:
                    return Outcome(State.FAILED, "interrupted")
                child = subprocess.Popen(
                    [sys.executable, "-m", "emugpu", "trace", *options, "--", *words],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                )
                self._children.add(child)
            status = child.wait()
            with self._lock:
                self._children.discard(child)
        if status:
            state, line = _failure(folder / _LOG)
            return Outcome(state, f"exit status {status}: {line[:300]} ({folder / _LOG})")
        for path in (folder / "new").iterdir():
            path.replace(folder / path.name)
        (folder / "new").rmdir()
        return None


def _failure(log: Path) -> tuple[State, str]:
    """How a program failed, and the line of its output that says most: an error's, else the last one. Where several ranks ran,
    one may be out of memory, after which `emugpu trace` has the last word."""
    lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    if no_memory := [line for line in lines if _NO_MEMORY.search(line)]:
        return State.OUT_OF_MEMORY, no_memory[-1]
    errors = [line for line in lines if _ERROR.search(line)]
    return State.FAILED, (errors or lines or ["it printed nothing"])[-1]
