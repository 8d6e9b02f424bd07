"""The file of a learned estimator: data in JSON, for one or several GPU types; nothing in it is executed.

    {"format": "emugpu-estimator", "version": 1,
     "gpus": {"NVIDIA_A100-SXM4-40GB": {
        "trained_from": "kernels", "source": "...",
        "roofline": {... constants, half_product_part if it is known ...}, "kinds": ["convolution", ...],
        "features": ["log_bytes", ...], "ranges": [[0, 31.2], ...], "weights": [0.1, ...], "trees": [...],
        "least": -2.5, "most": 3.1,
        "errors": {"convolution": {"samples": 310, "median": 0.07, "mean": 0.11}, ...},
        "launches_ns": {"convolution": 41000, ...},
        "measured": [[2, "convolution_forward", 1, 2e9, 64, 576, [0, 0, 0], [0, 0, 0], 81000], ...]}}}

Work that was measured itself (features.identity, then nanoseconds) takes that time. The estimate of other work is that of the
roofline with these constants times e to the power of a ratio, which is the sum of weighted features and the mean of the trees.
Features are held in the ranges, and the ratio between the limits, of what was measured: beyond it the estimate grows as the
roofline does. `launches_ns`: what the measured host needs for a launch.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from emulator_runtime.domain.errors import InputError
from emulator_runtime.files import write_whole
from emulator_runtime.prediction.learned.features import KINDS, Identity, feature
from emulator_runtime.prediction.learned.trees import Forest, forest_document, read_forest
from emulator_runtime.profiles.cuda_properties import Roofline

FORMAT, VERSION = "emugpu-estimator", 1
KERNELS, STEPS = "kernels", "steps"
"""What an estimator was trained from: times of kernels, or only of whole training steps."""
STEP = "step"
"""Errors of an estimator that was trained from steps are those of whole steps."""
PUBLISHED = Path(__file__).with_name("published.json")
"""Trained from step times of 36 torchvision models on 6 GPU types (Wang et al., PVLDB 18(6) 2025); docs/prediction.md has its
errors and how it was made."""
LARGEST_RATIO = 20.0
_LONGEST_NS = 1e15
_LARGEST = 1e30


@dataclass(frozen=True, slots=True)
class Error:
    """Relative errors of estimates of what was left out of the training (cross-validation): of `samples`, without signs."""

    samples: int
    median: float
    mean: float


@dataclass(frozen=True, slots=True)
class LearnedGpu:
    """What was learned of a GPU type. `kinds`: of work (features.KINDS) that was measured. `errors`: by kind, or of a STEP.
    `ranges`: least and largest value of each feature. `measured`: nanoseconds of the works that were measured one by one.
    `launches_ns`: by kind; of others the dispatch time of the roofline."""

    trained_from: str
    source: str
    roofline: Roofline
    kinds: Sequence[str]
    features: Sequence[str]
    ranges: Sequence[tuple[float, float]]
    weights: Sequence[float]
    forest: Forest
    least: float
    most: float
    errors: Mapping[str, Error]
    launches_ns: Mapping[str, float] = field(default_factory=dict)
    measured: Mapping[Identity, float] = field(default_factory=dict)

    def error(self, kind: str) -> float | None:
        """The median error of estimates of a kind of work; None: it wasn't measured."""
        found = self.errors.get(kind) or self.errors.get(STEP)
        return None if found is None else found.median


def write_estimator(path: Path, gpus: Mapping[str, LearnedGpu]) -> None:
    """Raises OSError."""
    document = {"format": FORMAT, "version": VERSION, "gpus": {name: _document(gpu) for name, gpu in gpus.items()}}
    write_whole(path, json.dumps(document, allow_nan=False, separators=(",", ":")) + "\n", sync=False)


def _document(gpu: LearnedGpu) -> dict[str, object]:
    rows = {each.name: getattr(gpu, each.name) for each in fields(gpu) if each.name != "forest"}
    return {
        **rows,
        "roofline": {name: value for name, value in asdict(gpu.roofline).items() if value is not None},
        "errors": {name: asdict(error) for name, error in gpu.errors.items()},
        "launches_ns": dict(gpu.launches_ns),
        "measured": [[*identity, ns] for identity, ns in gpu.measured.items()],
        "trees": forest_document(gpu.forest),
    }


def read_estimator(path: Path) -> dict[str, LearnedGpu]:
    """By GPU type. Raises InputError, which names the place of what is wrong, and OSError."""
    try:
        document: Any = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise InputError(str(path), f"is not an estimator: it isn't JSON, or is cut off: {error}") from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise InputError(str(path), "is not an estimator; `emugpu profile import-trace` makes one")
    if document.get("version") != VERSION:
        raise InputError(
            str(path), f"has version {document.get('version')}, this emugpu reads {VERSION}: import the traces again"
        )
    gpus = document.get("gpus")
    if not isinstance(gpus, dict) or not gpus:
        raise InputError(f"{path}: gpus", "must have a GPU type")
    return {name: _read_gpu(gpu, f"{path}: gpus.{name}") for name, gpu in gpus.items()}


def _read_gpu(row: object, place: str) -> LearnedGpu:
    if not isinstance(row, dict):
        raise InputError(place, "must be what was learned of a GPU type")
    features = _texts(row, "features", place)
    unknown = [name for name in features if feature(name) is None]
    if unknown:
        raise InputError(
            f"{place}.features", f"there is no feature '{unknown[0]}'; a newer emugpu may have written this"
        )
    trained_from, source = row.get("trained_from"), row.get("source")
    if trained_from not in (KERNELS, STEPS) or not isinstance(source, str):
        raise InputError(f"{place}.trained_from", f"must be {KERNELS} or {STEPS}, with a source")
    kinds = _texts(row, "kinds", place)
    if not kinds or not set(kinds) <= KINDS.keys():
        raise InputError(f"{place}.kinds", f"must be some of {', '.join(KINDS)}")
    weights = _numbers(row.get("weights"), f"{place}.weights", len(features))
    least, most = _numbers([row.get("least"), row.get("most")], f"{place}.least, most", 2)
    if not -LARGEST_RATIO <= least <= most <= LARGEST_RATIO:
        raise InputError(
            f"{place}.least", f"must be at most `most`, and both between -{LARGEST_RATIO} and {LARGEST_RATIO}"
        )
    forest = read_forest(row.get("trees"), len(features), f"{place}.trees")
    errors = _errors(row.get("errors"), f"{place}.errors")
    ranges = _ranges(row.get("ranges"), f"{place}.ranges", len(features))
    constants = _roofline(row.get("roofline"), f"{place}.roofline")
    return LearnedGpu(
        trained_from=trained_from,
        source=source,
        roofline=constants,
        kinds=kinds,
        features=features,
        ranges=ranges,
        weights=weights,
        forest=forest,
        least=least,
        most=most,
        errors=errors,
        launches_ns=_launches(row.get("launches_ns", {}), f"{place}.launches_ns"),
        measured=_measured(row.get("measured", []), f"{place}.measured"),
    )


def _texts(row: Mapping[str, object], name: str, place: str) -> list[str]:
    values = row.get(name)
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise InputError(f"{place}.{name}", "must be a list of names")
    return values


def _numbers(values: object, place: str, count: int) -> list[float]:
    if not isinstance(values, list) or len(values) != count or not all(map(_is_finite, values)):
        raise InputError(place, f"must be {count} finite numbers")
    return values


def _is_finite(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _LARGEST


def _ranges(rows: object, place: str, count: int) -> list[tuple[float, float]]:
    if not isinstance(rows, list) or len(rows) != count:
        raise InputError(place, f"must be {count} pairs of numbers, one for each feature")
    pairs = []
    for number, row in enumerate(rows):
        least, most = _numbers(row, f"{place}[{number}]", 2)
        if least > most:
            raise InputError(f"{place}[{number}]", f"must rise, not {least}, {most}")
        pairs.append((least, most))
    return pairs


def _roofline(row: object, place: str) -> Roofline:
    names = {each.name for each in fields(Roofline)}
    optional = {each.name for each in fields(Roofline) if each.default is None}
    if not isinstance(row, dict) or not names - optional <= set(row) <= names:
        raise InputError(place, f"must have {', '.join(sorted(names - optional))}, and may have {', '.join(optional)}")
    for name, value in row.items():
        if not _is_finite(value) or value < 0 or (name.endswith("_part") and value == 0):
            raise InputError(f"{place}.{name}", f"must be a number above 0, not {value!r}")
    return Roofline(**row)


def _errors(rows: object, place: str) -> dict[str, Error]:
    if not isinstance(rows, dict) or not rows:
        raise InputError(place, "must have the errors by kind of work")
    found = {}
    for name, row in rows.items():
        if not isinstance(row, dict) or sorted(row) != ["mean", "median", "samples"]:
            raise InputError(f"{place}.{name}", "must have samples, median and mean")
        median, mean = _numbers([row["median"], row["mean"]], f"{place}.{name}", 2)
        samples = row["samples"]
        if isinstance(samples, bool) or not isinstance(samples, int) or samples < 1 or min(median, mean) < 0:
            raise InputError(f"{place}.{name}", "must have a number of samples above 0, and errors without sign")
        found[name] = Error(samples, median, mean)
    return found


def _launches(row: object, place: str) -> dict[str, float]:
    if not isinstance(row, dict) or not row.keys() <= KINDS.keys():
        raise InputError(place, f"must have times of some of {', '.join(KINDS)}")
    for name, value in row.items():
        if not _is_finite(value) or not 0 <= value <= _LONGEST_NS:
            raise InputError(f"{place}.{name}", f"must be a number of nanoseconds, not {value!r}")
    return row


def _measured(rows: object, place: str) -> dict[Identity, float]:
    if not isinstance(rows, list):
        raise InputError(place, "must be a list of works with their times")
    found: dict[Identity, float] = {}
    for number, row in enumerate(rows):
        if not isinstance(row, list) or len(row) != 9:
            raise InputError(f"{place}[{number}]", "must have the 8 values of a work, and its time")
        kind, name, precision, amount, columns, depth, grid, block, ns = row
        numbers = [kind, precision, amount, columns, depth, ns]
        if not all(map(_is_finite, numbers)) or not isinstance(name, str) or not 0 < ns <= _LONGEST_NS:
            raise InputError(f"{place}[{number}]", "must have a name, finite numbers, and a time above 0")
        sizes = [_sizes(each, f"{place}[{number}]") for each in (grid, block)]
        found[kind, name, precision, float(amount), float(columns), float(depth), sizes[0], sizes[1]] = float(ns)
    return found


def _sizes(value: object, place: str) -> tuple[int, int, int]:
    if isinstance(value, list) and len(value) == 3 and all(type(each) is int for each in value):
        return value[0], value[1], value[2]
    raise InputError(place, "a grid and a block are three whole numbers")
