"""Traces of torch.profiler as pieces of work: which kernels are one library call, and what it did."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from emugpu.learning.operators import Operator, UnknownShapesError, library_calls
from emugpu.learning.profiler import Measured, read_profiler_traces
from emulator_runtime.domain.errors import InputError
from emulator_runtime.prediction.learned.features import input_uses
from emulator_runtime.prediction.records import Work, WorkKind

A100 = "NVIDIA_A100-SXM4-40GB"
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >(int)"
FP32, TF32, FP16 = 1, 2, 3


def kernel(name: str, us: float, operator: int | None = None, grid: int = 2) -> dict[str, object]:
    arguments = {"grid": [grid, 1, 1], "block": [128, 1, 1]} | ({} if operator is None else {"External id": operator})
    return {"ph": "X", "cat": "kernel", "name": name, "dur": us, "args": arguments}


def operator(name: str, number: int, shapes: list[list[int]], types: list[str], values: list[str]) -> dict[str, object]:
    arguments = {"External id": number, "Input Dims": shapes, "Input type": types, "Concrete Inputs": values}
    return {"ph": "X", "cat": "cpu_op", "name": name, "args": arguments}


def mm(number: int) -> dict[str, object]:
    """(64 x 32) times (32 x 16)"""
    return operator("aten::mm", number, [[64, 32], [32, 16]], ["float", "float"], ["", ""])


def written(tmp_path: Path, *events: object, device: str | None = None) -> Path:
    path = tmp_path / "trace.json"
    devices = {} if device is None else {"deviceProperties": [{"id": 0, "name": device}]}
    path.write_text(json.dumps({"traceEvents": list(events), **devices}), encoding="utf-8")
    return path


PRODUCT = Work("gemm", WorkKind.PRODUCT, 2.0 * 64 * 32 * 16, 4.0 * (64 * 32 + 32 * 16 + 64 * 16), FP32, 16.0, 32.0)


# ---- operators


def test_a_matrix_product() -> None:
    (call,) = library_calls(Operator("aten::mm", [(64, 32), (32, 16)], ["float"] * 2, []), ["ampere_sgemm"]) or []
    assert call.work == PRODUCT
    operator = Operator("aten::addmm", [(16,), (64, 32), (32, 16)], ["float"] * 3, [])
    (call,) = library_calls(operator, ["ampere_sgemm"]) or []
    assert call.work == PRODUCT


def test_tf32_shows_in_the_names_of_kernels() -> None:
    (call,) = library_calls(Operator("aten::mm", [(64, 32), (32, 16)], ["float"] * 2, []), ["cutlass_tf32_gemm"]) or []
    assert call.work == replace(PRODUCT, precision=TF32)


def test_a_batch_of_products_in_half_precision() -> None:
    operator = Operator("aten::bmm", [(5, 64, 32), (5, 32, 16)], ["c10::Half"] * 2, [])
    (call,) = library_calls(operator, []) or []
    assert call.work == replace(
        PRODUCT, name="gemm_batched", flops=5 * PRODUCT.flops, bytes=5 * PRODUCT.bytes / 2, precision=FP16
    )


IMAGE, FILTER, RESULT = (8, 64, 56, 56), (128, 64, 3, 3), (8, 128, 28, 28)
CONVOLUTION = Work(
    "convolution_forward",
    WorkKind.CONVOLUTION,
    flops=2.0 * 8 * 28 * 28 * 128 * 64 * 9,
    bytes=4.0 * (8 * 64 * 56 * 56 + 128 * 64 * 9 + 8 * 28 * 28 * 128),
    precision=FP32,
    columns=128.0,
    depth=64.0 * 9,
)


def test_a_convolution_with_stride_and_padding() -> None:
    values = ["", "", "[1, 1]", "[2, 2]", "[1]", "1", "False", "False", "True"]
    operator = Operator("aten::cudnn_convolution", [IMAGE, FILTER, *[()] * 7], ["float"] * 2 + [""] * 7, values)
    (call,) = library_calls(operator, ["cudnn_kernel"]) or []
    assert call.work == CONVOLUTION
    assert input_uses(call.work) == pytest.approx(9 / 4)


def test_groups_make_a_convolution_narrow() -> None:
    values = ["", "", "[1, 1]", "[2, 2]", "[1, 1]", "32"]
    shapes = [IMAGE, (128, 2, 3, 3), (), (), (), ()]
    (call,) = library_calls(Operator("aten::cudnn_convolution", shapes, ["float"] * 2, values), []) or []
    assert (call.work.columns, call.work.depth) == (128 / 32, 2 * 9)
    assert call.work.flops == CONVOLUTION.flops / 32


@pytest.mark.parametrize(
    ("mask", "names"),
    [
        ("[True, True, False]", ["convolution_backward_data", "convolution_backward_filter"]),
        ("[False, True, False]", ["convolution_backward_filter"]),
    ],
)
def test_the_mask_says_which_gradients_are_wanted(mask: str, names: list[str]) -> None:
    operator = Operator("aten::convolution_backward", [RESULT, IMAGE, FILTER], ["float"] * 3, [""] * 10 + [mask])
    calls = library_calls(operator, []) or []
    assert [call.work for call in calls] == [replace(CONVOLUTION, name=name) for name in names]


def test_batch_normalisation_reads_twice_and_writes() -> None:
    operator = Operator("aten::cudnn_batch_norm", [IMAGE], ["float"], [])
    (call,) = library_calls(operator, []) or []
    assert call.work == Work("batch_norm_forward", WorkKind.MEMORY_BOUND, bytes=3.0 * 4 * 8 * 64 * 56 * 56)
    operator = Operator("aten::cudnn_batch_norm_backward", [IMAGE, IMAGE], ["float"] * 2, [])
    (call,) = library_calls(operator, []) or []
    assert call.work == Work("batch_norm_backward", WorkKind.MEMORY_BOUND, bytes=5.0 * 4 * 8 * 64 * 56 * 56)


@pytest.mark.parametrize(("causal", "part"), [("True", 0.5), ("False", 1.0)])
def test_causal_attention_has_half_of_the_pairs(causal: str, part: float) -> None:
    shapes = [(2, 8, 128, 64)] * 3
    values = ["", "", "", "", "True", "0.", causal, "False"]
    name = "aten::_scaled_dot_product_cudnn_attention"
    (call,) = library_calls(Operator(name, shapes, ["c10::Half"] * 3, values), []) or []
    assert call.work.flops == part * 2 * 2 * 8 * 128 * 128 * (64 + 64)
    assert call.work.bytes == 2 * 2 * 8 * (128 + 128) * (64 + 64)
    assert (call.work.kind, call.work.precision) == (WorkKind.ATTENTION, FP16)


@pytest.mark.parametrize(
    "operator",
    [
        Operator("aten::mm", [], [], []),
        Operator("aten::mm", [(64, 32), (31, 16)], ["float"] * 2, []),
        Operator("aten::mm", [(64, 32), (32, 16)], ["quint8"] * 2, []),
        Operator("aten::cudnn_convolution", [IMAGE, FILTER], ["float"] * 2, []),
        Operator("aten::cudnn_convolution", [IMAGE, FILTER], ["float"] * 2, ["", "", "[1, 1, 1]", "[1]", "[1]"]),
        Operator("aten::cudnn_convolution", [IMAGE, FILTER], ["float"] * 2, ["", "", "[1, 1]", "[0, 0]", "[1]"]),
        Operator("aten::convolution_backward", [RESULT, IMAGE, FILTER], ["float"] * 3, [""] * 10 + ["3"]),
        Operator("aten::cudnn_batch_norm", [()], ["float"], []),
    ],
)
def test_an_operator_whose_arguments_say_too_little(operator: Operator) -> None:
    with pytest.raises(UnknownShapesError):
        library_calls(operator, [])


def test_other_operators_make_no_library_calls() -> None:
    assert library_calls(Operator("aten::add", [(4,), (4,)], ["float"] * 2, []), [ADD]) is None


# ---- traces


def test_kernels_of_a_library_call_are_one_work(tmp_path: Path) -> None:
    path = written(tmp_path, mm(7), kernel("ampere_sgemm_64x64", 10, 7), kernel("splitKreduce_kernel", 2, 7))
    assert read_profiler_traces([path], A100).measured == [Measured(PRODUCT, 12000.0)]


def test_the_same_number_in_another_trace_is_another_operator(tmp_path: Path) -> None:
    first = written(tmp_path, mm(7), kernel("ampere_sgemm_64x64", 10, 7))
    (tmp_path / "second").mkdir()
    second = written(tmp_path / "second", kernel(ADD, 4, 7))
    found = read_profiler_traces([first, second], A100).measured
    assert [each.work.kind for each in found] == [WorkKind.PRODUCT, WorkKind.KERNEL]


def test_own_kernels_keep_their_name_and_grid(tmp_path: Path) -> None:
    found = read_profiler_traces([written(tmp_path, kernel(ADD, 4.5, 7), kernel(ADD, 4.5))], A100).measured
    work = Work(ADD, WorkKind.KERNEL, bytes=2 * 128 * 8 * 3 * 4, grid=(2, 1, 1), block=(128, 1, 1))
    assert found == [Measured(work, 4500.0)] * 2


def test_an_operator_may_launch_own_kernels_beside_those_of_a_library(tmp_path: Path) -> None:
    path = written(tmp_path, mm(7), kernel("ampere_sgemm_64x64", 10, 7), kernel(ADD, 3, 7))
    found = read_profiler_traces([path], A100).measured
    assert [(each.work.name, each.ns) for each in found] == [(ADD, 3000.0), ("gemm", 10000.0)]


def backward(number: int) -> dict[str, object]:
    shapes = [list(RESULT), list(IMAGE), list(FILTER)]
    values = [""] * 10 + ["[True, True, False]"]
    return operator("aten::convolution_backward", number, shapes, ["float"] * 3, values)


def test_names_of_kernels_tell_the_two_gradients_apart(tmp_path: Path) -> None:
    kernels = [kernel("xmma_dgrad_fp32", 30, 7), kernel("xmma_wgrad_fp32", 50, 7), kernel("nchwToNhwcKernel", 8, 7)]
    found = read_profiler_traces([written(tmp_path, backward(7), *kernels)], A100).measured
    assert [(each.work.name, each.ns) for each in found] == [
        ("convolution_backward_data", 34000.0),
        ("convolution_backward_filter", 54000.0),
    ]


def test_kernels_of_libraries_without_a_known_operator_are_counted(tmp_path: Path) -> None:
    unshaped = operator("aten::mm", 7, [], [], [])
    path = written(tmp_path, unshaped, kernel("sgemm", 1, 7), kernel("cutlass_gemm", 1, 8), kernel(ADD, 1, 9))
    found = read_profiler_traces([path], A100)
    assert len(found.measured) == 1
    assert found.left_out == {
        "of aten::mm without the shapes of its arguments (record_shapes=True)": 1,
        "without an operator that is known": 1,
    }


def test_times_of_zero_are_left_out(tmp_path: Path) -> None:
    path = written(tmp_path, mm(7), kernel("sgemm", 0, 7), kernel(ADD, 0))
    assert read_profiler_traces([path], A100).measured == []


@pytest.mark.parametrize("device", ["NVIDIA A100-SXM4-40GB", "A100"])
def test_the_gpu_of_the_trace_is_the_one_that_is_named(device: str, tmp_path: Path) -> None:
    path = written(tmp_path, kernel(ADD, 1), device=device)
    assert read_profiler_traces([path], A100).unknown_gpus == set()


def test_a_trace_of_another_gpu_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, kernel(ADD, 1), device="Tesla V100-PCIE-32GB")
    with pytest.raises(InputError, match=f"is a trace of a Tesla V100-PCIE-32GB, not of a {A100}"):
        read_profiler_traces([path], A100)


def test_a_gpu_that_the_catalogue_lacks_is_said(tmp_path: Path) -> None:
    path = written(tmp_path, kernel(ADD, 1), device="NVIDIA GeForce RTX 4090")
    assert read_profiler_traces([path], A100).unknown_gpus == {"NVIDIA GeForce RTX 4090"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "is not a Chrome trace in JSON"),
        ('{"traceEvents": [{"cat": "ker', "is not a Chrome trace in JSON"),
        ('{"traceEvents": []}', "has no kernels"),
        ('{"traceEvents": [{"cat": "cpu_op", "name": "aten::mm", "args": {"External id": 1}}]}', "has no kernels"),
        (json.dumps({"traceEvents": [kernel(ADD, 1) | {"dur": float("nan")}]}), "dur: must be a duration"),
    ],
)
def test_traces_without_times_are_refused(text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=message):
        read_profiler_traces([path], A100)
