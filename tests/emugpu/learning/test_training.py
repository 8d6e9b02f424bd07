"""Training from times of kernels: the forest, cross-validation, and what comes of it."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest

from emugpu.learning.profiler import Measured
from emugpu.learning.training import exported, group_of, median_times, train_kernels, vocabulary
from emulator_runtime.domain.errors import InputError
from emulator_runtime.prediction.estimators import Roofline
from emulator_runtime.prediction.learned.estimator import Learned
from emulator_runtime.prediction.records import Work, WorkKind

A100 = "NVIDIA_A100-SXM4-40GB"


def product(n: int) -> Work:
    return Work("gemm", WorkKind.PRODUCT, 2.0 * n**3, 12.0 * n**2, 1, float(n), float(n))


def times(works: list[Work], factor: float = 1.0) -> list[Measured]:
    """Each work takes `factor` times what the roofline says."""
    roofline = Roofline(A100)
    return [Measured(work, factor * roofline.work(work).duration_ns) for work in works]


def test_exported_trees_give_what_scikit_learn_predicts() -> None:
    from sklearn.ensemble import RandomForestRegressor

    source = random.Random("forest")
    x = [[source.choice([0.0, 1.0]), source.uniform(0, 30), source.gauss(0, 5)] for _ in range(300)]
    y = [row[0] * math.sin(row[1]) + row[2] for row in x]
    forest = RandomForestRegressor(20, min_samples_leaf=2, random_state=1).fit(x, y)
    own = exported(forest)
    tried = [*x, *([source.uniform(-1, 2), source.uniform(-5, 40), source.gauss(0, 9)] for _ in range(300))]
    assert [own.predict(row) for row in tried] == pytest.approx(forest.predict(tried).tolist(), abs=1e-12)
    # At a threshold, where the walk takes a turn:
    tree = own.trees[0]
    row = [0.5, 15.0, 0.0]
    row[tree.feature[0]] = tree.threshold[0]
    assert own.predict(row) == pytest.approx(forest.predict([row])[0], abs=1e-12)


def test_what_is_measured_is_learned_and_goes_on_beyond() -> None:
    works = [product(n) for n in range(256, 4096, 128)]
    learned = train_kernels(times(works, 1.5), A100, "a test")
    estimator = Learned(A100, replace(learned, measured={}), Roofline(A100))
    for n in (300, 2000, 20000):
        ratio = estimator.work(product(n)).duration_ns / Roofline(A100).work(product(n)).duration_ns
        assert ratio == pytest.approx(1.5, rel=1e-3)
    assert learned.errors["product"].samples == len(works)
    assert learned.errors["product"].median < 0.001
    assert learned.kinds == ["product"]


def test_measured_works_keep_their_times() -> None:
    works = [product(n) for n in range(256, 4096, 128)]
    measured = [Measured(work, 1e5 + number) for number, work in enumerate(works)]
    estimator = Learned(A100, train_kernels(measured, A100, "a test"), Roofline(A100))
    assert [estimator.work(work).duration_ns for work in works] == [100_000 + number for number in range(len(works))]


def test_equal_works_are_one_sample_with_the_median_of_their_times() -> None:
    one, other = product(64), product(128)
    measured = [Measured(one, ns) for ns in (1.0, 90.0, 2.0)] + [Measured(other, 5.0)]
    assert median_times(measured) == {one: 2.0, other: 5.0}


def test_the_grid_makes_no_other_group() -> None:
    work = Work("add", WorkKind.KERNEL, bytes=100.0, grid=(1, 1, 1), block=(32, 1, 1))
    assert group_of(work) == group_of(replace(work, grid=(4, 1, 1)))
    assert group_of(work) != group_of(replace(work, bytes=101.0))


def test_repetitions_of_a_kernel_tell_nothing_about_its_own_error() -> None:
    """Six kernels whose times have nothing to do with each other, each with twenty grids and the same time. If a grid's time were
    estimated from the other grids of its kernel, errors would be near 0."""
    source = random.Random("unrelated")
    measured = []
    for number in range(6):
        work = Work(f"kernel_{'abcdef'[number] * 3}", WorkKind.KERNEL, bytes=1e6 * 2**number, block=(32, 1, 1))
        base_ns = Roofline(A100).work(work).duration_ns
        factor = math.exp(source.choice([-1, 1]) * source.uniform(1.0, 2.0))
        measured += [Measured(replace(work, grid=(1 + each, 1, 1)), base_ns * factor) for each in range(20)]
    assert train_kernels(measured, A100, "a test").errors["kernel"].median > 0.3


def test_words_tell_works_apart_if_several_have_them_and_not_all() -> None:
    names = ["add_kernel", "add_kernel", "add_kernel", "mul_kernel"]
    works = [Work(name, WorkKind.KERNEL, grid=(number, 1, 1)) for number, name in enumerate(names, start=1)]
    assert vocabulary([*works, product(64)]) == ["add"]


def test_too_few_kernels_are_refused() -> None:
    works = [product(n) for n in (64, 128, 256, 512)]
    with pytest.raises(InputError, match="has 4 different kernels and library calls; at least 5 are needed"):
        train_kernels(times(works * 10), A100, "a test")
