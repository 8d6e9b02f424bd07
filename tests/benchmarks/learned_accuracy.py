"""Estimates of step times beside those that were measured on real GPUs: the roofline, the learned estimator, and anchored ones.

36 torchvision models at three batch sizes on 6 GPU types, as Wang et al. measured them (GPEmu, PVLDB 18(6) 2025). The learned
estimator is trained for each model anew, from the steps of the other 35 models. The roofline's constants are those of the
catalogue: they were fitted to these models on A100, V100 and P100; RTX 6000, M40 and K80 have the constants of another type.
Anchored estimates get the measured time of the step itself, or that of the same model at another batch size.

It needs a Python with torch (`make frameworks`), and EMUGPU_MEASUREMENTS, a folder with compute.csv.gz; without them it is left
out. The first run traces the models, which takes about ten minutes on two cores; the traces are kept in the user's cache.
`--out FILE` writes the estimator that all steps together give, with the errors of those that were left out.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

from emugpu.learning.measured_steps import MeasuredStep, StepPart, step_parts
from emugpu.learning.step_training import Task, learned_of, task_of
from emugpu.learning.training import error_of
from emulator_runtime.prediction.estimators import Estimator, Roofline
from emulator_runtime.prediction.learned.estimator import Learned
from emulator_runtime.prediction.learned.estimator_file import STEP, read_estimator, write_estimator
from emulator_runtime.prediction.reading import read_trace
from emulator_runtime.prediction.steps import step_factor, step_ns
from emulator_runtime.profiles.table import ProfileTable
from tests.support.published_steps import VARIABLE, Pair, measured_seconds, measurements, step_works, steps_of
from tests.support.torch_releases import RELEASES
from tests.support.torchvision_traces import ensure_traces

BATCH_SIZES = (16, 64, 128)
ANCHOR_BATCH = 64
SOURCE = "Wang et al., GPEmu, PVLDB 18(6) 2025"

Errors = Mapping[Pair, float]


def main(argv: Sequence[str]) -> int:
    """Prints the tables; 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", action="store_true", help="also print the errors of each model")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the estimator of all steps")
    parser.add_argument(
        "--gpu", action="append", metavar="TYPE", help="a GPU type of the measurements; may be repeated (default: all)"
    )
    parser.add_argument("--quick", action="store_true", help="one GPU type only")
    options, _ = parser.parse_known_args(argv)
    path, release = measurements(), next(iter(RELEASES.values()))
    if path is None or not release.python.exists():
        missing = f"{VARIABLE} names no folder with compute.csv.gz" if path is None else f"{release.python} isn't there"
        print(f"left out: {missing}")
        return 0
    parts = _parts(ensure_traces(release, ProfileTable.bundled().models, BATCH_SIZES))
    heading = f"{'':24}{'steps':>6}" + "".join(f"{name:>24}" for name in ("roofline", "learned, left out"))
    print(f"{heading}{'anchored':>12}{'anchored at 64':>24}")
    print(f"{'':24}{'':6}" + 2 * f"{'median  mean    max':>24}" + f"{'max':>12}{'median  mean    max':>24}")
    seconds = measured_seconds(path)
    for gpu_type in (options.gpu or list(seconds))[: 1 if options.quick else None]:
        steps = steps_of(parts, seconds[gpu_type])
        task = task_of(list(steps.values()), gpu_type)
        left_out = _left_out(gpu_type, steps, task)
        _print(gpu_type, steps, left_out, by_model=options.models)
        errors = {STEP: error_of([abs(error) for error in left_out.values()])}
        if options.out is not None:
            others = read_estimator(options.out) if options.out.exists() else {}
            learned = learned_of(task, task.fitted(), errors, f"{len(steps)} steps, {SOURCE}")
            write_estimator(options.out, {**others, gpu_type: learned})
    return 0


def _parts(folders: Mapping[Pair, Path]) -> dict[Pair, list[StepPart]]:
    return {pair: step_parts(read_trace(folder), str(folder)) for pair, folder in folders.items()}


def _print(gpu_type: str, steps: Mapping[Pair, MeasuredStep], of_learned: Errors, *, by_model: bool) -> None:
    roofline = Roofline(gpu_type)
    of_roofline = {pair: _error(step, roofline) for pair, step in steps.items()}
    anchored = {pair: _anchored(step, step, roofline) for pair, step in steps.items()}
    at_another = {
        (model, batch): _anchored(step, steps[model, ANCHOR_BATCH], roofline)
        for (model, batch), step in steps.items()
        if batch != ANCHOR_BATCH and (model, ANCHOR_BATCH) in steps
    }
    columns = f"{_summary(of_roofline):>24}{_summary(of_learned):>24}{max(map(abs, anchored.values())):>12.2%}"
    print(f"{gpu_type:24}{len(steps):6}{columns}{_summary(at_another):>24}", flush=True)
    if by_model:
        for (model, batch), error in of_learned.items():
            print(f"    {model:20}{batch:4}{of_roofline[model, batch]:+8.1%}{error:+8.1%}")


def _summary(errors: Errors) -> str:
    sizes = sorted(map(abs, errors.values()))
    return f"{statistics.median(sizes):6.1%}{statistics.mean(sizes):7.1%}{sizes[-1]:7.0%}"


def _error(step: MeasuredStep, estimator: Estimator) -> float:
    return step_ns(step_works(step, estimator)) / step.ns - 1


def _anchored(step: MeasuredStep, at: MeasuredStep, estimator: Estimator) -> float:
    factor = step_factor(step_works(at, estimator), at.ns)
    return step_ns(step_works(step, estimator), factor) / step.ns - 1


def _left_out(gpu_type: str, steps: Mapping[Pair, MeasuredStep], task: Task) -> dict[Pair, float]:
    """Each model's errors with an estimator that has seen no step of it."""
    roofline = Roofline(gpu_type)
    found: dict[Pair, float] = {}
    for model, parameters in task.left_out():
        learned = Learned(gpu_type, learned_of(task, parameters, {}, model), roofline)
        found |= {pair: _error(step, learned) for pair, step in steps.items() if pair[0] == model}
    return found
