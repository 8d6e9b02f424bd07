"""Derives the constants of the estimates of CUDA kernels (cuda.roofline in gpus.json) from published step times.

The work of a step comes from an unmodified program on emulated GPUs (tools/torchvision_steps.py), its time from the measurements
that the GPEmu paper was built on. Per GPU type, eight constants of the formula in docs/cuda.md are fitted to all models and batch
sizes at once; the error that counts is that of models which were left out of the fit.

    python tools/derive_cuda_costs.py DATA_DIR STEPS --run VENV/bin/python   makes STEPS first, 36 models, about 8 minutes
    python tools/derive_cuda_costs.py DATA_DIR STEPS                         fits and prints; writes nothing
    python tools/derive_cuda_costs.py DATA_DIR STEPS --write                 puts the constants into gpus.json

DATA_DIR has compute.csv.gz; STEPS is a JSON file with what each step asks of a GPU. `--run` needs a Python with torch and
torchvision. Ends with 0; 1: the errors are above the target; 2: the input is bad.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from emulator_runtime.domain.errors import EmuGpuError, InputError
from emulator_runtime.profiles.cuda_properties import PRECISIONS, Roofline, cuda_properties
from emulator_runtime.profiles.table import ProfileTable

GPU_TYPES = ("NVIDIA_A100-SXM4-40GB", "Tesla_V100-PCIE-32GB", "Tesla_P100-PCIE-16GB")
BATCH_SIZES = (16, 64, 128)
RUN_ON = "NVIDIA-A100-SXM4-80GB"
"""Enough memory for all models at 128."""
TARGET_MEDIAN = 0.12
PROGRAM = Path(__file__).with_name("torchvision_steps.py")
GPUS_FILE = Path(__file__).parents[1] / "emulator_runtime" / "profiles" / "gpus.json"
MARK_BYTES = 12345

CONVOLUTION, MEMORY_BOUND = 2, 4
"""`emu_work_kind` in the core."""

# Where a fit begins, and how strongly it is held there: 1 means that a factor of e weighs as much as a step time wrong by that.
# The models have few matrix products beside convolutions, so that their constants stay near where they begin.
BEGIN = Roofline(0.6, 0.6, 0.75, 1.0, 8.0, 8.0, 2000.0, 25000.0)
HOLD = Roofline(0.6, 0.6, 1.0, 0.5, 0.3, 0.6, 0.3, 0.1)
OUTLIER = 0.1
"""Relative errors above this count by their size, not by its square."""

Key = tuple[str, int]  # model, batch size


@dataclass(slots=True)
class Products:
    """Operations of convolutions, or of matrix products, of one number format; also divided by the products' narrow side, by
    their depth, and by both: with these sums the formula needs no single piece of work."""

    operations: float = 0
    by_columns: float = 0
    by_depth: float = 0
    by_both: float = 0

    def add(self, operations: float, columns: float, depth: float) -> None:
        self.operations += operations
        if columns > 0 and depth > 0:
            self.by_columns += operations / columns
            self.by_depth += operations / depth
            self.by_both += operations / columns / depth

    def weighted(self, constants: Roofline) -> float:
        """The operations as the formula counts them."""
        columns, depth = constants.half_columns, constants.half_depth
        return self.operations + columns * self.by_columns + depth * self.by_depth + columns * depth * self.by_both


@dataclass(slots=True)
class StepWork:
    """What a training step asks of a GPU: `works` pieces of work, of which `launches` come from the host one by one."""

    works: int = 0
    launches: int = 0
    normalisation_bytes: float = 0
    other_bytes: float = 0
    convolutions: dict[str, Products] = field(default_factory=dict)
    products: dict[str, Products] = field(default_factory=dict)

    def add(self, event: Mapping[str, Any]) -> None:
        """An event of the core's trace. Copies from and to the host use no compute units."""
        name, work = event["name"], event["args"]
        if name.startswith("Memcpy") and name != "Memcpy DtoD":
            return
        self.works += 1
        self.launches += not name.startswith("Mem")
        if work.get("kind") == MEMORY_BOUND:
            self.normalisation_bytes += work["bytes"]
        else:
            self.other_bytes += work.get("bytes", 0)
        if work.get("flops", 0) > 0:
            group = self.convolutions if work["kind"] == CONVOLUTION else self.products
            precision = PRECISIONS[work["precision"]]
            group.setdefault(precision, Products()).add(work["flops"], work.get("columns", 0), work.get("depth", 0))

    def seconds(self, gpu_type: str, constants: Roofline) -> float:
        """The formula, or what the host needs for the launches, whichever is longer."""
        cuda = cuda_properties(gpu_type, "tools")

        def rate(precision: str) -> float:
            return cuda.operations_per_s[precision] or cuda.operations_per_s["fp32"]

        seconds = self.works * constants.kernel_ns / 1e9
        seconds += (
            sum(p.weighted(constants) / rate(name) for name, p in self.convolutions.items())
            / constants.convolution_part
        )
        seconds += sum(p.weighted(constants) / rate(name) for name, p in self.products.items()) / constants.product_part
        moved = self.normalisation_bytes * constants.normalisation + self.other_bytes
        seconds += moved / (cuda.memory_bytes_per_s * constants.memory_part)
        return max(seconds, self.launches * constants.dispatch_ns / 1e9)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the tool; the module's docstring lists its exit codes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data_dir", type=Path, help="folder with compute.csv.gz")
    parser.add_argument("steps", type=Path, help="JSON file with the work of the steps")
    parser.add_argument("--run", type=Path, metavar="PYTHON", help="make STEPS, with a Python that has torch")
    parser.add_argument("--write", action="store_true", help="put the constants into gpus.json")
    args = parser.parse_args(argv)
    try:
        measured = read_measured(args.data_dir / "compute.csv.gz")
        if args.run is not None:
            args.steps.write_text(steps_json(run_steps(args.run, ProfileTable.bundled().models, BATCH_SIZES)))
        return derive(read_steps(args.steps), measured, write=args.write)
    except (EmuGpuError, OSError) as error:
        print(f"derive_cuda_costs: {error}", file=sys.stderr)
        return 2


def derive(steps: Mapping[Key, StepWork], measured: Mapping[str, Mapping[Key, float]], *, write: bool) -> int:
    """Fits the constants of each GPU type, prints them and their errors, and writes them if that is wanted; the exit status."""
    found = {}
    good = True
    for gpu_type in GPU_TYPES:
        times = {key: seconds for key, seconds in measured[gpu_type].items() if key in steps}
        found[gpu_type] = fit(gpu_type, steps, times)
        print(f"\n{gpu_type}: {len(times)} steps\n  {found[gpu_type]}")
        print(
            f"  now    {summary(errors(gpu_type, cuda_properties(gpu_type, 'tools').roofline, steps, times).values())}"
        )
        print(f"  fitted {summary(errors(gpu_type, found[gpu_type], steps, times).values())}")
        left_out = leave_one_out(gpu_type, steps, times, found[gpu_type])
        print(f"  models left out of the fit: {summary(left_out.values())}")
        for (model, batch), error in sorted(left_out.items(), key=lambda item: -abs(item[1]))[:5]:
            print(f"    {model} {batch}: {error:+.0%} of {times[model, batch] * 1e3:.1f} ms")
        good &= statistics.median(map(abs, left_out.values())) <= TARGET_MEDIAN
    if write:
        write_constants(found)
    return 0 if good else 1


def summary(found: Iterable[float]) -> str:
    sizes = sorted(map(abs, found))
    return f"mean {statistics.mean(sizes):.1%}, median {statistics.median(sizes):.1%}, largest {sizes[-1]:.0%}"


# ---- what is known


def run_steps(python: Path, models: Sequence[str], batch_sizes: Sequence[int]) -> dict[Key, StepWork]:
    """The work of a step of each model and batch size, from an emulated GPU. Raises InputError with the program's errors."""
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace.json"
        sizes = ",".join(map(str, batch_sizes))
        words = ["--gpu-type", RUN_ON, "--warp", "--trace", str(trace), "--", str(python), str(PROGRAM), "steps"]
        command = [sys.executable, "-m", "emugpu", "run", *words, ",".join(models), sizes]
        environment = os.environ | {"PYTHONWARNINGS": "ignore"}
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, env=environment)
        if done.returncode:
            raise InputError("--run", f"{python} {PROGRAM} failed with status {done.returncode}")
        rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('["')]
        with trace.open(encoding="utf-8") as lines:
            return {
                (model, batch): work for (model, batch, _), work in zip(rows, works_between_marks(lines), strict=True)
            }


def works_between_marks(lines: Iterable[str]) -> Iterator[StepWork]:
    """The work between each two copies of MARK_BYTES in a trace of the core, which has an event in each line."""
    current: StepWork | None = None
    for line in lines:
        if not line.startswith('{"ph"'):
            continue
        event = json.loads(line.rstrip().rstrip(","))
        if event["args"].get("bytes") == MARK_BYTES and event["name"].startswith("Memcpy"):
            if current is not None:
                yield current
            current = StepWork() if current is None else None
        elif current is not None:
            current.add(event)


def steps_json(steps: Mapping[Key, StepWork]) -> str:
    rows = [{"model": model, "batch_size": batch, **asdict(work)} for (model, batch), work in sorted(steps.items())]
    return json.dumps({"steps": rows}, indent=1) + "\n"


def read_steps(path: Path) -> dict[Key, StepWork]:
    """What `steps_json` wrote. Raises InputError."""
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))["steps"]
        return {(row.pop("model"), row.pop("batch_size")): _step_work(row) for row in rows}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(str(path), f"isn't a file of steps, make one with --run: {error!r}") from error


def _step_work(row: dict[str, Any]) -> StepWork:
    read = {}
    for name in ("convolutions", "products"):
        read[name] = {precision: Products(**sums) for precision, sums in row.pop(name).items()}
    return StepWork(**row, **read)


def read_measured(path: Path) -> dict[str, dict[Key, float]]:
    """Seconds of forward and backward pass, by GPU type; what the source filled in is left out. Raises InputError and OSError."""
    times: dict[str, dict[Key, float]] = defaultdict(dict)
    with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            try:
                if row["origin"] == "measured":
                    seconds = float(row["forward_s"]) + float(row["backward_s"])
                    times[row["gpu"]][row["model"], int(row["batch_size"])] = seconds
            except (KeyError, ValueError) as error:
                raise InputError(str(path), f"isn't a file of step times: {error!r}") from error
    missing = [gpu_type for gpu_type in GPU_TYPES if gpu_type not in times]
    if missing:
        raise InputError(str(path), f"has no measured times of {', '.join(missing)}")
    return times


# ---- the fit


def errors(
    gpu_type: str, constants: Roofline, steps: Mapping[Key, StepWork], times: Mapping[Key, float]
) -> dict[Key, float]:
    """Estimate / measured time - 1."""
    return {key: steps[key].seconds(gpu_type, constants) / seconds - 1 for key, seconds in times.items()}


def fit(gpu_type: str, steps: Mapping[Key, StepWork], times: Mapping[Key, float], begin: Roofline = BEGIN) -> Roofline:
    """The constants with which the logarithms of estimate and time differ least, outliers damped, held near BEGIN."""
    anchor = [math.log(value) for value in _fitted(BEGIN)]
    hold = _fitted(HOLD)

    def residuals(x: Sequence[float]) -> list[float]:
        constants = _constants(x)
        own = [math.log(steps[key].seconds(gpu_type, constants) / seconds) for key, seconds in times.items()]
        return own + [weight * (value - start) for value, start, weight in zip(x, anchor, hold, strict=True)]

    return _constants(least_squares(residuals, [math.log(value) for value in _fitted(begin)]))


def leave_one_out(
    gpu_type: str, steps: Mapping[Key, StepWork], times: Mapping[Key, float], begin: Roofline
) -> dict[Key, float]:
    """The error of each step with constants from the other models."""
    found: dict[Key, float] = {}
    for model in sorted({model for model, _ in times}):
        others = {key: seconds for key, seconds in times.items() if key[0] != model}
        own = {key: seconds for key, seconds in times.items() if key[0] == model}
        found |= errors(gpu_type, fit(gpu_type, steps, others, begin), steps, own)
    return found


def _fitted(constants: Roofline) -> list[float]:
    """All but half_product_part, for which these models have no steps."""
    return [value for value in asdict(constants).values() if value is not None]


def _constants(x: Sequence[float]) -> Roofline:
    return Roofline(*map(math.exp, x))


def least_squares(
    residuals: Callable[[Sequence[float]], list[float]], start: Sequence[float], rounds: int = 60
) -> list[float]:
    """Levenberg-Marquardt with damped outliers: each residual r weighs 1 / sqrt(1 + (r / OUTLIER)^2)."""
    x, damping = list(start), 1e-2
    now = residuals(x)
    for _ in range(rounds):
        slopes = _slopes(residuals, x, now)
        weights = [1 / math.sqrt(1 + (r / OUTLIER) ** 2) for r in now]
        normal = [[sum(map(_product, weights, one, other)) for other in slopes] for one in slopes]
        right = [-sum(map(_product, weights, slope, now)) for slope in slopes]
        for i in range(len(x)):
            normal[i][i] *= 1 + damping
        step = solve(normal, right)
        tried = [value + change for value, change in zip(x, step, strict=True)]
        then = residuals(tried)
        if _loss(then) < _loss(now):
            x, now, damping = tried, then, damping / 3
            if max(map(abs, step)) < 1e-4:
                break
        else:
            damping *= 5
            if damping > 1e8:
                break
    return x


def _product(one: float, two: float, three: float) -> float:
    return one * two * three


def _loss(found: Iterable[float]) -> float:
    return sum(math.sqrt(1 + (r / OUTLIER) ** 2) - 1 for r in found)


def _slopes(
    residuals: Callable[[Sequence[float]], list[float]], x: Sequence[float], now: Sequence[float]
) -> list[list[float]]:
    """For each parameter, how the residuals change with it."""
    width = 1e-5
    moved = [residuals([*x[:i], x[i] + width, *x[i + 1 :]]) for i in range(len(x))]
    return [[(after - before) / width for before, after in zip(now, each, strict=True)] for each in moved]


def solve(matrix: Sequence[Sequence[float]], right: Sequence[float]) -> list[float]:
    """The solution of linear equations, by elimination with pivots."""
    rows = [[*row, value] for row, value in zip(matrix, right, strict=True)]
    size = len(rows)
    for i in range(size):
        pivot = max(range(i, size), key=lambda row: abs(rows[row][i]))
        rows[i], rows[pivot] = rows[pivot], rows[i]
        for below in range(i + 1, size):
            factor = rows[below][i] / rows[i][i] if rows[i][i] else 0.0
            rows[below] = [b - factor * a for a, b in zip(rows[i], rows[below], strict=True)]
    solution = [0.0] * size
    for i in reversed(range(size)):
        known = sum(rows[i][j] * solution[j] for j in range(i + 1, size))
        solution[i] = (rows[i][size] - known) / rows[i][i] if rows[i][i] else 0.0
    return solution


def write_constants(found: Mapping[str, Roofline]) -> None:
    """Replace cuda.roofline of these GPU types in gpus.json."""
    document = json.loads(GPUS_FILE.read_text(encoding="utf-8"))
    for row in document["gpus"]:
        if row["gpu_type"] in found:
            constants = asdict(found[row["gpu_type"]])
            constants["half_product_part"] = row["cuda"]["roofline"].get("half_product_part")  # from other measurements
            for name in ("kernel", "dispatch"):
                constants[f"{name}_us"] = constants.pop(f"{name}_ns") / 1000
            row["cuda"]["roofline"] = {
                name: float(f"{value:.3g}") for name, value in constants.items() if value is not None
            }
    GPUS_FILE.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"wrote {GPUS_FILE}")


assert len(fields(Roofline)) == 9, "the formula above has eight constants, and none for half_product_part"

if __name__ == "__main__":
    sys.exit(main())
