"""Derives emulator_runtime/profiles/knots.json from the measurements that the GPEmu paper was built on.

The measurements (43,682 step times) aren't part of this project; about 16 knots per curve are enough to give them back
within the targets below, and this tool refuses to write a file that doesn't.

    python tools/derive_profiles.py DATA_DIR            writes the knots and prints their errors
    python tools/derive_profiles.py DATA_DIR --check    says whether the committed file is what DATA_DIR gives

DATA_DIR holds compute.csv.gz, memory.csv.gz and coverage.csv. Ends with 0; 1: a target or the comparison was missed;
2: the input is bad.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import statistics
import sys
from bisect import insort
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from emulator_runtime.domain.errors import EmuGpuError, InputError
from emulator_runtime.profiles.bundled import KNOTS_FILE, MemoryColumns, ModelColumns, StepColumns
from emulator_runtime.profiles.catalogue import gpu_spec
from emulator_runtime.profiles.curves import Curve

KNOTS_PER_CURVE = 16
FIXED_BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
NEGLIGIBLE_GAIN = 1e-9  # below it is the rounding of floating point
TARGET_MEDIAN, TARGET_P95 = 0.01, 0.07
SAMPLE_BYTES = 3 * 224 * 224 * 4
SPOILT_MEMORY_FLAGS = ("memory_", "persistent_")

ABOUT = {
    "source": (
        "Meng Wang et al., GPEmu: A GPU Emulator for Faster and Cheaper Prototyping and Evaluation of Deep Learning "
        "System Research, PVLDB 18(6), 2025; measurements published at github.com/mengwanguc/gpemu, commit 27e9534"
    ),
    "measured": (
        "torchvision models, FP32, eager PyTorch, input 3x224x224, one GPU; backward has loss, zero_grad and SGD step"
    ),
    "knots": (
        "measured points only, none of the source's regressions: batch sizes 1, 2, 4, ..., 256, the last measured one, and "
        f"up to {KNOTS_PER_CURVE} in all where straight lines between knots miss the step time most; "
        "memory is the median over the GPU types, without the series that the source got wrong"
    ),
    "units": "batch: samples per GPU; _us: microseconds; _bytes: bytes",
}

Series = dict[int, tuple[int, int]]  # batch size -> (forward, backward) in us, or (peak, persistent) in bytes
Key = tuple[str, str]  # model, GPU type


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the tool; the module's docstring lists its exit codes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data_dir", type=Path, help="folder with compute.csv.gz, memory.csv.gz and coverage.csv")
    parser.add_argument("--check", action="store_true", help="compare with the file instead of writing it")
    parser.add_argument("--out", type=Path, default=KNOTS_FILE, help="the knots file (default: the bundled one)")
    args = parser.parse_args(argv)
    try:
        return derive(args.data_dir, args.out, check=args.check)
    except EmuGpuError as error:
        print(f"derive_profiles: {error}", file=sys.stderr)
        return 2


def derive(data_dir: Path, out: Path, *, check: bool) -> int:
    """Chooses the knots, reports their errors, then writes `out` or compares with it; the exit status."""
    compute = _read_series(data_dir / "compute.csv.gz", "forward_s", "backward_s", 1e6)
    memory = _read_series(data_dir / "memory.csv.gz", "peak_bytes", "persistent_bytes", 1)
    spoilt = _read_spoilt(data_dir / "coverage.csv")
    models = choose_models(compute, {key: series for key, series in memory.items() if key not in spoilt})
    if not report(compute, models):
        print(f"missed: median <= {TARGET_MEDIAN:.0%} and p95 <= {TARGET_P95:.0%} on each GPU type; nothing written")
        return 1
    text = render(models)
    if not check:
        out.write_text(text, encoding="utf-8")
        print(f"wrote {out}")
        return 0
    same = out.exists() and out.read_bytes() == text.encode()
    print(f"{out} {'is' if same else 'is NOT'} what {data_dir} gives")
    return 0 if same else 1


def choose_models(compute: Mapping[Key, Series], memory: Mapping[Key, Series]) -> dict[str, ModelColumns]:
    """The knots of every model, in the order of their names; InputError for a model without memory."""
    models: dict[str, ModelColumns] = {}
    for model in sorted({model for model, _ in compute}):
        series = [memory[key] for key in sorted(memory) if key[0] == model]
        if not series:
            raise InputError("memory.csv.gz", f"no usable measured series for {model}")
        gpus = {gpu: _step_columns(compute[m, gpu]) for m, gpu in sorted(compute) if m == model}
        models[model] = {"sample_bytes": SAMPLE_BYTES, "memory": _memory_columns(_median(series)), "gpus": gpus}
    return models


def _step_columns(series: Series) -> StepColumns:
    batches = choose_knots({batch: sum(times) for batch, times in series.items()})
    forward, backward = ([series[batch][part] for batch in batches] for part in (0, 1))
    return {"batch": batches, "forward_us": forward, "backward_us": backward}


def _memory_columns(series: Series) -> MemoryColumns:
    batches = choose_knots({batch: peak for batch, (peak, _) in series.items()})
    peak, persistent = ([series[batch][part] for batch in batches] for part in (0, 1))
    return {"batch": batches, "peak_bytes": peak, "persistent_bytes": persistent}


def _median(series: Sequence[Series]) -> Series:
    """The median over GPU types at each batch size that any of them was measured at; whole bytes."""
    batches = sorted({batch for one in series for batch in one})
    found = {batch: [one[batch] for one in series if batch in one] for batch in batches}
    return {
        batch: (round(statistics.median(p for p, _ in rows)), round(statistics.median(r for _, r in rows)))
        for batch, rows in found.items()
    }


def choose_knots(values: Mapping[int, int], count: int = KNOTS_PER_CURVE) -> list[int]:
    """`count` batch sizes of `values` (all, if there are no more), the fixed ones and the ends among them.

    Greedy: each further knot is the point that takes most off the sum of relative errors of straight lines between knots.
    Batch sizes that people use stay exact, and a single noisy point is not chosen for being far off.
    """
    batches = sorted(values)
    heights = [values[batch] for batch in batches]
    chosen = sorted({0, len(batches) - 1} | {i for i, batch in enumerate(batches) if batch in FIXED_BATCHES})
    splits: dict[tuple[int, int], tuple[float, int]] = {}
    while len(chosen) < min(count, len(batches)):
        spans = list(pairwise(chosen))
        for span in spans:
            if span not in splits:
                splits[span] = _best_split(batches, heights, *span)
        gain, _, index = max((splits[span][0], -span[0], splits[span][1]) for span in spans)
        if gain <= NEGLIGIBLE_GAIN:
            break
        insort(chosen, index)
    return [batches[i] for i in chosen]


def _best_split(batches: Sequence[int], heights: Sequence[int], left: int, right: int) -> tuple[float, int]:
    """(Reduction of the error, index) of the best further knot between two; the first of equal ones, (0, -1) if none helps."""
    whole, best = _error_sum(batches, heights, left, right), (0.0, -1)
    for middle in range(left + 1, right):
        parts = _error_sum(batches, heights, left, middle) + _error_sum(batches, heights, middle, right)
        if whole - parts > best[0]:
            best = (whole - parts, middle)
    return best


def _error_sum(batches: Sequence[int], heights: Sequence[int], left: int, right: int) -> float:
    """The sum of relative errors of a straight line from knot `left` to knot `right`."""
    slope = (heights[right] - heights[left]) / (batches[right] - batches[left])
    start = heights[left] - slope * batches[left]
    return sum(abs(start + slope * batches[i] - heights[i]) / heights[i] for i in range(left + 1, right))


def report(compute: Mapping[Key, Series], models: Mapping[str, ModelColumns]) -> bool:
    """Prints the errors of the step time at measured points that are no knots; whether they meet the targets."""
    by_gpu: dict[str, list[float]] = {}
    for (model, gpu), series in sorted(compute.items()):
        by_gpu.setdefault(gpu, []).extend(_errors(series, models[model]["gpus"][gpu]))
    met = True
    print(f"{'GPU type':<24}{'points':>8}{'median':>9}{'p95':>9}{'max':>9}")
    everything = [error for errors in by_gpu.values() for error in errors]
    for gpu, errors in [*by_gpu.items(), ("all", everything)]:
        median, p95, largest = (_quantile(errors, q) for q in (0.5, 0.95, 1.0))
        met = met and median <= TARGET_MEDIAN and p95 <= TARGET_P95
        print(f"{gpu:<24}{len(errors):>8}{median:>9.2%}{p95:>9.2%}{largest:>9.2%}")
    knots = [len(columns["batch"]) for model in models.values() for columns in model["gpus"].values()]
    print(f"{len(models)} models, {len(knots)} curves, {sum(knots)} knots, {min(knots)} to {max(knots)} per curve")
    return met


def _errors(series: Series, columns: StepColumns) -> Iterator[float]:
    batches = tuple(columns["batch"])
    forward, backward = Curve(batches, tuple(columns["forward_us"])), Curve(batches, tuple(columns["backward_us"]))
    for batch, times in series.items():
        if batch not in batches:
            yield abs(forward.at(batch) + backward.at(batch) - sum(times)) / sum(times)


def _quantile(errors: Sequence[float], q: float) -> float:
    """The smallest error that a share of `q` of them doesn't exceed; 0 if there are none."""
    ranked = sorted(errors)
    return ranked[max(-int(-q * len(ranked) // 1), 1) - 1] if ranked else 0.0


def render(models: Mapping[str, ModelColumns]) -> str:
    """The knots file's text: one line a curve, so that a diff shows which curves changed."""
    head = ",\n".join(f"    {json.dumps(key)}: {json.dumps(text)}" for key, text in ABOUT.items())
    body = ",\n".join(_render_model(name, columns) for name, columns in models.items())
    return f'{{\n  "about": {{\n{head}\n  }},\n  "models": {{\n{body}\n  }}\n}}\n'


def _render_model(name: str, columns: ModelColumns) -> str:
    def compact(value: object) -> str:
        return json.dumps(value, separators=(",", ":"))

    gpus = ",\n".join(f"        {json.dumps(gpu)}: {compact(step)}" for gpu, step in columns["gpus"].items())
    return (
        f'    {json.dumps(name)}: {{\n      "sample_bytes": {columns["sample_bytes"]},\n'
        f'      "memory": {compact(columns["memory"])},\n      "gpus": {{\n{gpus}\n      }}\n    }}'
    )


def _read_series(path: Path, first: str, second: str, scale: float) -> dict[Key, Series]:
    """The measured rows of `path` by model and GPU type, values times `scale` as whole numbers."""
    series: dict[Key, Series] = {}
    for place, row in _rows(path, ("gpu", "model", "batch_size", first, second, "origin")):
        if row["origin"] != "measured":
            continue
        try:
            batch, values = (
                int(row["batch_size"]),
                (round(float(row[first]) * scale), round(float(row[second]) * scale)),
            )
        except (ValueError, OverflowError) as error:
            raise InputError(place, f"is no measurement: {error}") from error
        if batch < 1 or min(values) <= 0:
            raise InputError(place, "batch size and measured values must be > 0")
        points = series.setdefault((row["model"], gpu_spec(row["gpu"], place).gpu_type), {})
        if batch in points:
            raise InputError(place, f"batch size {batch} is there twice")
        points[batch] = values
    if not series:
        raise InputError(str(path), "has no measured rows")
    return series


def _read_spoilt(path: Path) -> set[Key]:
    """The model and GPU type of each memory series that is flagged as wrong."""
    spoilt: set[Key] = set()
    for place, row in _rows(path, ("gpu", "model", "flags")):
        if any(flag.startswith(SPOILT_MEMORY_FLAGS) for flag in row["flags"].split(";")):
            spoilt.add((row["model"], gpu_spec(row["gpu"], place).gpu_type))
    return spoilt


def _rows(path: Path, columns: Sequence[str]) -> Iterator[tuple[str, dict[str, str]]]:
    """(file:line, row) of a CSV file, plain or gzipped, that must have `columns`."""
    try:
        with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
            reader = csv.DictReader(file, restval="")
            missing = [column for column in columns if column not in (reader.fieldnames or ())]
            if missing:
                raise InputError(f"{path}:1", f"has no column {' and no column '.join(missing)}")
            for row in reader:
                yield f"{path}:{reader.line_num}", row
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise InputError(str(path), f"can't be read: {error}") from error


if __name__ == "__main__":
    sys.exit(main())
