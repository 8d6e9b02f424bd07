"""Trains an estimator from measured times of kernels: a random forest of the logarithm of measured time by roofline time.

Equal works are one sample, with the median of their times. For the error, samples are put into groups of the same call with the
same amounts, and each group is estimated by a forest that was trained without it.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from emugpu.learning.profiler import Measured
from emulator_runtime.domain.errors import InputError
from emulator_runtime.prediction.estimators import Roofline
from emulator_runtime.prediction.learned.estimator_file import KERNELS, LARGEST_RATIO, Error, LearnedGpu
from emulator_runtime.prediction.learned.features import (
    CATEGORIES,
    KINDS,
    NUMBERS,
    feature,
    identity,
    token_feature,
    vector,
    words,
)
from emulator_runtime.prediction.learned.trees import Forest, Tree
from emulator_runtime.prediction.records import Work, WorkKind

if TYPE_CHECKING:
    from sklearn.ensemble import RandomForestRegressor

FEWEST_GROUPS, FOLDS = 5, 10
_TREES, _LEAF, _MOST_TOKENS, _TOKEN_WORKS = 64, 2, 60, 3
_NAMES = {int(kind): name for name, kind in KINDS.items()}


def train_kernels(measured: Sequence[Measured], gpu_type: str, source: str) -> LearnedGpu:
    """What the times of these works tell of a GPU type. Raises InputError if they are too few, and ImportError
    without scikit-learn."""
    samples = median_times(measured)
    base = Roofline(gpu_type)
    groups = [group_of(work) for work in samples]
    if len(set(groups)) < FEWEST_GROUPS:
        raise InputError(
            "TRACE", f"has {len(set(groups))} different kernels and library calls; at least {FEWEST_GROUPS} are needed"
        )
    base_ns = [float(base.work(work).duration_ns) for work in samples]
    names = [*NUMBERS, *CATEGORIES, *map(token_feature, vocabulary(samples))]
    features = [found for name in names if (found := feature(name)) is not None]
    x = [vector(features, work, ns) for work, ns in zip(samples, base_ns, strict=True)]
    y = [math.log(ns / own_ns) for ns, own_ns in zip(samples.values(), base_ns, strict=True)]
    errors = _errors([_NAMES[work.kind] for work in samples], y, _left_out(x, y, groups))
    return LearnedGpu(
        trained_from=KERNELS,
        source=source,
        roofline=base.constants,
        kinds=sorted({_NAMES[work.kind] for work in samples}),
        features=names,
        ranges=[(min(column), max(column)) for column in zip(*x, strict=True)],
        weights=[0.0] * len(names),
        forest=exported(_fitted(x, y)),
        least=max(min(y), -LARGEST_RATIO),
        most=min(max(y), LARGEST_RATIO),
        errors=errors,
        measured={identity(work): ns for work, ns in samples.items()},
    )


def median_times(measured: Iterable[Measured]) -> dict[Work, float]:
    """The median of each work's times in nanoseconds."""
    times: defaultdict[Work, list[float]] = defaultdict(list)
    for each in measured:
        times[each.work].append(each.ns)
    return {work: statistics.median(found) for work, found in times.items()}


def group_of(work: Work) -> tuple[object, ...]:
    """Works of one group are so alike that the time of one gives away that of another: the same kernel or call with the same
    amounts, whatever the grid."""
    return work.kind, work.name, work.flops, work.bytes, work.columns, work.depth


def vocabulary(samples: Iterable[Work]) -> list[str]:
    """Words that tell works apart: those of several works, but not of all. Names of matrix products say which function was
    called, which a profiler doesn't know."""
    works = [work for work in samples if work.kind != WorkKind.PRODUCT]
    counts = Counter(word for work in works for word in words(work.name))
    useful = [(-count, word) for word, count in counts.items() if _TOKEN_WORKS <= count < len(works)]
    return [word for _, word in sorted(useful)[:_MOST_TOKENS]]


def _left_out(x: Sequence[Sequence[float]], y: Sequence[float], groups: Sequence[tuple[object, ...]]) -> list[float]:
    """The estimate of each sample by a forest that has no sample of its group."""
    numbers = {group: number for number, group in enumerate(dict.fromkeys(groups))}
    folds = [numbers[group] % min(FOLDS, len(numbers)) for group in groups]
    found = [0.0] * len(y)
    for fold in sorted(set(folds)):
        kept = [index for index, each in enumerate(folds) if each != fold]
        out = [index for index, each in enumerate(folds) if each == fold]
        forest = _fitted([x[index] for index in kept], [y[index] for index in kept])
        for index, value in zip(out, forest.predict([x[index] for index in out]), strict=True):
            found[index] = float(value)
    return found


def _errors(kinds: Sequence[str], y: Sequence[float], estimates: Sequence[float]) -> Mapping[str, Error]:
    by_kind: defaultdict[str, list[float]] = defaultdict(list)
    for kind, true, estimate in zip(kinds, y, estimates, strict=True):
        by_kind[kind].append(abs(math.expm1(min(estimate - true, LARGEST_RATIO))))
    return {kind: error_of(found) for kind, found in sorted(by_kind.items())}


def error_of(errors: Sequence[float]) -> Error:
    """Of relative errors without signs."""
    return Error(len(errors), statistics.median(errors), statistics.mean(errors))


def _fitted(x: Sequence[Sequence[float]], y: Sequence[float]) -> RandomForestRegressor:
    from sklearn.ensemble import RandomForestRegressor  # here: it takes a second to load

    forest = RandomForestRegressor(_TREES, min_samples_leaf=_LEAF, max_features=0.5, random_state=0)
    return forest.fit(x, y)


def exported(forest: RandomForestRegressor) -> Forest:
    """The same trees as arrays."""
    return Forest([_tree(each.tree_) for each in forest.estimators_])


def _tree(nodes: Any) -> Tree:
    leaf = nodes.children_left == -1
    return Tree(
        feature=[-1 if is_leaf else int(number) for is_leaf, number in zip(leaf, nodes.feature, strict=True)],
        threshold=[0.0 if is_leaf else float(value) for is_leaf, value in zip(leaf, nodes.threshold, strict=True)],
        left=nodes.children_left.tolist(),
        right=nodes.children_right.tolist(),
        value=[float(value) for value in nodes.value.reshape(-1)],
    )
