"""The learned estimator on hand-worked cases: trees, features, its file, and the estimates that follow."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from emulator_runtime.domain.errors import InputError
from emulator_runtime.prediction.estimators import ANCHORED, LEARNED, ROOFLINE, TABLE, Anchored, Roofline
from emulator_runtime.prediction.learned.estimator import Learned, learned_estimator
from emulator_runtime.prediction.learned.estimator_file import (
    KERNELS,
    PUBLISHED,
    STEP,
    STEPS,
    Error,
    LearnedGpu,
    read_estimator,
    write_estimator,
)
from emulator_runtime.prediction.learned.features import feature, identity, input_uses, words
from emulator_runtime.prediction.learned.trees import Forest, Tree
from emulator_runtime.prediction.prediction import Conditions, Predictor
from emulator_runtime.prediction.records import RankTrace, Trace, Work, WorkKind
from tests.support.traces import Host

A100, V100 = "NVIDIA_A100-SXM4-40GB", "Tesla_V100-PCIE-32GB"
NOTHING_LEARNED = LearnedGpu(
    trained_from=KERNELS,
    source="a test",
    roofline=Roofline(A100).constants,
    kinds=["convolution", "kernel"],
    features=["log_columns", "kind=kernel"],
    ranges=[(0.0, 5.0), (0.0, 1.0)],
    weights=[0.0, 0.0],
    forest=Forest([]),
    least=-20.0,
    most=20.0,
    errors={"convolution": Error(10, 0.05, 0.07), "kernel": Error(4, 0.2, 0.3)},
)
CONVOLUTION = Work("convolution_forward", WorkKind.CONVOLUTION, flops=1e12, columns=math.e**3, depth=100.0)
STUMP = Tree(feature=[0, -1, -1], threshold=[2.0, 0.0, 0.0], left=[1, 0, 0], right=[2, 0, 0], value=[9.0, -1.0, 3.0])


def learned(**changes: Any) -> Learned:
    return Learned(A100, replace(NOTHING_LEARNED, **changes), Roofline(A100))


def ratio(estimator: Learned, work: Work) -> float:
    """Of the estimate to the roofline's."""
    return estimator.work(work).duration_ns / Roofline(A100).work(work).duration_ns


# ---- trees


@pytest.mark.parametrize(("x", "value"), [(1.9, -1.0), (2.0, -1.0), (2.1, 3.0)])
def test_a_value_up_to_the_threshold_goes_left(x: float, value: float) -> None:
    assert STUMP.predict([x]) == value


def test_a_forest_is_the_mean_of_its_trees() -> None:
    leaf = Tree([-1], [0.0], [0], [0], [5.0])
    assert Forest([STUMP, leaf]).predict([0.0]) == 2.0
    assert Forest([]).predict([0.0]) == 0.0


def test_features_are_compared_as_floats_of_32_bits() -> None:
    assert Forest([replace(STUMP, threshold=[0.1, 0.0, 0.0])]).predict([0.1]) == 3.0  # 0.1 rounds up


# ---- features


def test_the_uses_of_an_input_are_the_filter_by_the_stride() -> None:
    """8 images of 64 channels and 56 x 56, 128 filters of 3x3, stride 2: 28 x 28 results."""
    positions, inputs, depth = 8 * 28 * 28, 8 * 64 * 56 * 56, 64 * 9
    elements = inputs + positions * 128 + 128 * depth
    work = Work(
        "convolution_forward", WorkKind.CONVOLUTION, 2.0 * positions * 128 * depth, 4.0 * elements, 1, 128, depth
    )
    assert input_uses(work) == pytest.approx(9 / 4)
    assert input_uses(replace(work, kind=WorkKind.PRODUCT)) == 0


def test_words_are_those_of_the_demangled_name() -> None:
    assert {"add", "float"} <= words("_Z3addIfEvPT_i") == words("void add<float>(float*, int)")
    assert "conv_forward_kernel<5" in words("void conv_forward_kernel<5, float>(int)")


def test_a_product_of_features() -> None:
    found = feature("kind=convolution*log_columns")
    assert found is not None
    assert found(CONVOLUTION, 1.0) == pytest.approx(3.0)
    assert found(replace(CONVOLUTION, kind=WorkKind.KERNEL), 1.0) == 0.0
    assert feature("kind=convolution*no_such") is None is feature("no_such")


def test_works_that_take_the_same_time_are_the_same() -> None:
    product = Work("gemm", WorkKind.PRODUCT, 1e9, 100.0, columns=8.0, depth=4.0)
    assert identity(product) == identity(replace(product, name="matmul_epilogue", bytes=120.0))
    assert identity(product) != identity(replace(product, depth=8.0))
    kernel = Work("_Z3addIfEvPT_i", WorkKind.KERNEL, bytes=8.0, grid=(1, 1, 1), block=(32, 1, 1))
    assert identity(kernel) == identity(replace(kernel, name="void add<float>(float*, int)", bytes=9.0))
    assert identity(kernel) != identity(replace(kernel, grid=(2, 1, 1)))


# ---- estimates


def test_weights_and_trees_are_logarithms_of_the_ratio_to_the_roofline() -> None:
    assert ratio(learned(weights=[0.1, 0.0]), CONVOLUTION) == pytest.approx(math.exp(0.3), rel=1e-6)
    assert ratio(learned(forest=Forest([STUMP])), CONVOLUTION) == pytest.approx(math.exp(3), rel=1e-6)


def test_beyond_what_was_measured_the_ratio_stays() -> None:
    wide = replace(CONVOLUTION, columns=math.e**8)
    assert ratio(learned(weights=[0.1, 0.0]), wide) == pytest.approx(math.exp(0.5), rel=1e-6)
    assert ratio(learned(weights=[1.0, 0.0], most=0.7), CONVOLUTION) == pytest.approx(math.exp(0.7), rel=1e-6)
    assert ratio(learned(weights=[-1.0, 0.0], least=-0.7), CONVOLUTION) == pytest.approx(math.exp(-0.7), rel=1e-6)


def test_the_source_and_the_error_are_those_of_the_kind() -> None:
    found = learned().work(CONVOLUTION)
    assert (found.source, found.error) == (LEARNED, 0.05)
    assert learned(errors={STEP: Error(9, 0.04, 0.05)}).work(CONVOLUTION).error == 0.04


def test_kinds_that_were_not_measured_are_estimated_by_the_others() -> None:
    product = Work("gemm", WorkKind.PRODUCT, 1e12)
    assert learned(weights=[1.0, 1.0]).work(product) == Roofline(A100).work(product)
    assert learned().copy(0, 0, 1000) == Roofline(A100).copy(0, 0, 1000)


def test_work_that_was_measured_takes_that_time_and_is_not_anchored() -> None:
    estimator = learned(measured={identity(CONVOLUTION): 81000.0})
    for each in (estimator, Anchored(estimator, 2.0)):
        assert (each.work(CONVOLUTION).duration_ns, each.work(CONVOLUTION).source) == (81000, TABLE)
    assert estimator.work(replace(CONVOLUTION, depth=101.0)).source == LEARNED


def test_launches_take_the_time_of_their_kind_and_are_anchored() -> None:
    estimator = learned(launches_ns={"convolution": 40000.0})
    assert estimator.work(CONVOLUTION).dispatch_ns == 40000
    assert estimator.work(Work("kernel", WorkKind.KERNEL, bytes=1e6)).dispatch_ns is None
    anchored = Anchored(estimator, 2.0).work(CONVOLUTION)
    assert (anchored.dispatch_ns, anchored.source) == (80000, ANCHORED)


def test_from_steps_the_dispatch_and_the_copies_are_learned_too() -> None:
    constants = replace(Roofline(A100).constants, dispatch_ns=7000.0, memory_part=0.1)
    assert learned(roofline=constants).dispatch_ns == Roofline(A100).dispatch_ns
    assert learned(roofline=constants).copy(0, 0, 10**9) == Roofline(A100).copy(0, 0, 10**9)
    from_steps = learned(roofline=constants, trained_from=STEPS)
    assert from_steps.dispatch_ns == 7000
    assert from_steps.copy(0, 0, 10**9).duration_ns > 2 * Roofline(A100).copy(0, 0, 10**9).duration_ns


# ---- predictions


def trace_of_steps() -> Trace:
    host = Host()
    for _ in range(4):
        host.launch(10**6)
        host.records.append(replace(host.records[-1], work=CONVOLUTION))
        host.records.append(replace(host.records[-1], work=Work("gemm", WorkKind.PRODUCT, 1e12)))
    return Trace([RankTrace(0, host.records, {}, (A100,))])


def test_a_prediction_shows_what_was_learned_beside_the_roofline(tmp_path: Path) -> None:
    path = tmp_path / "a100.estimator"
    write_estimator(path, {A100: replace(NOTHING_LEARNED, weights=[0.1, 0.0])})
    before = Predictor(trace_of_steps()).predict(A100)
    found = Predictor(trace_of_steps()).predict(A100, Conditions(learned=path))
    assert before.sources == {ROOFLINE: (pytest.approx(1.0), None)}
    share, error = found.sources[LEARNED]
    convolution_s = Roofline(A100).work(CONVOLUTION).duration_ns / 1e9
    kernel_s = Roofline(A100).work(trace_of_steps().ranks[0].records[0].work).duration_ns / 1e9  # type: ignore[attr-defined]
    learned_s = convolution_s * math.exp(0.3) + kernel_s
    product_s = found.ranks[0].source_s[ROOFLINE]
    assert share == pytest.approx(learned_s / (learned_s + product_s), rel=1e-4)
    wrong_s = 0.05 * convolution_s * math.exp(0.3) + 0.2 * kernel_s
    assert error == pytest.approx(wrong_s / learned_s, rel=1e-4)
    assert found.sources[ROOFLINE] == (pytest.approx(1 - share), None)
    assert found.step_s is not None
    assert before.step_s is not None
    assert found.step_s - before.step_s == pytest.approx(convolution_s * (math.exp(0.3) - 1), rel=1e-3)


# ---- the file


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a100.estimator"
    complete = replace(
        NOTHING_LEARNED,
        forest=Forest([STUMP]),
        launches_ns={"kernel": 9000.0},
        measured={identity(CONVOLUTION): 81000.0},
    )
    write_estimator(path, {A100: complete})
    assert read_estimator(path) == {A100: complete}


def test_the_published_estimator_is_a_file_like_any_other() -> None:
    gpus = read_estimator(PUBLISHED)
    assert {A100, V100, "Tesla_P100-PCIE-16GB", "Quadro_RTX_6000", "Tesla_M40", "Tesla_K80"} == set(gpus)
    for gpu_type, found in gpus.items():
        assert found.trained_from == STEPS
        assert found.error("convolution") == found.errors[STEP].median < 0.1
        estimate = learned_estimator(PUBLISHED, gpu_type, Roofline(gpu_type)).work(CONVOLUTION)
        assert estimate.source == LEARNED
        assert 0.1 < estimate.duration_ns / Roofline(gpu_type).work(CONVOLUTION).duration_ns < 10


def test_another_gpu_type_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a100.estimator"
    write_estimator(path, {A100: NOTHING_LEARNED})
    with pytest.raises(InputError, match=f"was trained on {A100}, not on {V100}"):
        learned_estimator(path, "V100", Roofline("V100"))
    assert learned_estimator(path, "A100", Roofline("A100")).work(CONVOLUTION).source == LEARNED


def test_a_number_that_is_none_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="JSON"):
        write_estimator(tmp_path / "file", {A100: replace(NOTHING_LEARNED, weights=[math.nan, 0.0])})


def put(*keys: str | int, value: object) -> Callable[[Any], object]:
    """Sets a value in the document."""

    def change(document: Any) -> object:
        place = document
        for key in keys[:-1]:
            place = place[key]
        place[keys[-1]] = value
        return document

    return change


GPU = ("gpus", A100)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda document: [], "is not an estimator; `emugpu profile import-trace` makes one"),
        (put("format", value="other"), "is not an estimator"),
        (put("version", value=2), "has version 2, this emugpu reads 1"),
        (put("gpus", value={}), "gpus: must have a GPU type"),
        (put(*GPU, value=3), f"gpus.{A100}: must be what was learned"),
        (put(*GPU, "features", value=["log_columns", 4]), "features: must be a list of names"),
        (put(*GPU, "features", 1, value="mood"), "features: there is no feature 'mood'"),
        (put(*GPU, "trained_from", value="dreams"), "trained_from: must be kernels or steps"),
        (put(*GPU, "kinds", value=["kernel", "rest"]), "kinds: must be some of kernel, product"),
        (put(*GPU, "weights", value=[1.0]), "weights: must be 2 finite numbers"),
        (put(*GPU, "weights", 0, value=1e300), "weights: must be 2 finite numbers"),
        (put(*GPU, "weights", 0, value=math.nan), "weights: must be 2 finite numbers"),
        (put(*GPU, "ranges", value=[[0, 1]]), "ranges: must be 2 pairs"),
        (put(*GPU, "ranges", 1, value=[1, 0]), r"ranges\[1\]: must rise"),
        (put(*GPU, "least", value=21), "must be at most `most`"),
        (put(*GPU, "roofline", "kernel_ns", value=-1), "roofline.kernel_ns: must be a number above 0"),
        (put(*GPU, "roofline", value={}), "roofline: must have convolution_part"),
        (put(*GPU, "errors", value={}), "errors: must have the errors by kind"),
        (put(*GPU, "errors", "kernel", value={"median": 0.1}), "errors.kernel: must have samples"),
        (put(*GPU, "errors", "kernel", "samples", value=0), "errors.kernel: must have a number of samples"),
        (put(*GPU, "launches_ns", value={"rest": 1}), "launches_ns: must have times of some of"),
        (put(*GPU, "launches_ns", value={"kernel": math.inf}), "launches_ns.kernel: must be a number of nanoseconds"),
        (put(*GPU, "measured", value={}), "measured: must be a list"),
        (put(*GPU, "measured", value=[[1, 2]]), r"measured\[0\]: must have the 8 values"),
        (put(*GPU, "measured", 0, 8, value=0), r"measured\[0\]: must have a name, finite numbers"),
        (put(*GPU, "measured", 0, 6, value=[1, 2]), r"measured\[0\]: a grid and a block are three whole numbers"),
        (put(*GPU, "trees", value={}), "trees: must be a list of trees"),
        (put(*GPU, "trees", 0, value=[]), r"trees\[0\]: must be a tree"),
        (put(*GPU, "trees", 0, "feature", value=[]), r"trees\[0\].feature: must be a list of 1 to"),
        (put(*GPU, "trees", 0, "value", value=[1.0]), r"trees\[0\].value: must be a list of 3 finite numbers"),
        (put(*GPU, "trees", 0, "threshold", 0, value=math.nan), r"trees\[0\].threshold: must be a list of 3 finite"),
        (put(*GPU, "trees", 0, "left", 0, value=1.5), r"trees\[0\].left: must be a list of 3 whole numbers"),
        (put(*GPU, "trees", 0, "feature", 0, value=2), r"trees\[0\].feature\[0\]: there is no feature 2, only 0 to 1"),
        (put(*GPU, "trees", 0, "left", 0, value=0), r"trees\[0\].left\[0\]: must be a node after 0, up to 2, not 0"),
        (put(*GPU, "trees", 0, "right", 0, value=3), r"trees\[0\].right\[0\]: must be a node after 0, up to 2, not 3"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(change: Callable[[Any], object], message: str, tmp_path: Path) -> None:
    path = tmp_path / "broken.estimator"
    write_estimator(
        path, {A100: replace(NOTHING_LEARNED, forest=Forest([STUMP]), measured={identity(CONVOLUTION): 81000.0})}
    )
    document = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(change(document)), encoding="utf-8")
    with pytest.raises(InputError, match=message):
        read_estimator(path)


@pytest.mark.parametrize("data", [b"", b"\x80\x04]", b'{"format": "emugpu-est', b"[" * 100_000])
def test_a_file_that_is_cut_off_or_no_text_is_refused(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "broken.estimator"
    path.write_bytes(data)
    with pytest.raises(InputError, match="is not an estimator: it isn't JSON, or is cut off"):
        read_estimator(path)
