"""cuDNN with a function for each layer: what it answers, and the work that it gives to the device."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

FP64, FP32, TF32, FP16, BF16 = range(5)
"""Precisions, as the trace numbers them."""

START = """
from math_calls import *
dnn = Library("libcudnn.so.9")
handle = dnn.created("cudnnCreate")
BAD, UNSUPPORTED = range(2000, 3000), range(3000, 4000)
def tensor(*sizes, type=0):
    made, strides = dnn.created("cudnnCreateTensorDescriptor"), [1]
    for size in reversed(sizes[1:]):
        strides.insert(0, strides[0] * size)
    dnn.call("cudnnSetTensorNdDescriptor", made, type, len(sizes), ints(*sizes), ints(*strides))
    return made
def filter_(*sizes, type=0):
    made = dnn.created("cudnnCreateFilterDescriptor")
    dnn.call("cudnnSetFilterNdDescriptor", made, type, 0, len(sizes), ints(*sizes))
    return made
def convolution(padding=1, stride=1, dilation=1, groups=1, math=0, spatial=2):
    made = dnn.created("cudnnCreateConvolutionDescriptor")
    same = lambda value: ints(*[value] * spatial)
    dnn.call("cudnnSetConvolutionNdDescriptor", made, spatial, same(padding), same(stride), same(dilation), 1, 0)
    dnn.call("cudnnSetConvolutionGroupCount", made, groups)
    dnn.call("cudnnSetConvolutionMathType", made, math)
    return made
def forward(x, w, conv, y, alpha=ONE):
    return dnn.status("cudnnConvolutionForward", handle, alpha, x, A, w, B, conv, 1, None, c_size_t(0), ZERO, y, C)
def network(mode=2, bias=2, bidirectional=0, input=10, hidden=20, projection=None, layers=1, type=0, skip=0, math=0):
    made = dnn.created("cudnnCreateRNNDescriptor")
    dnn.call("cudnnSetRNNDescriptor_v8", made, 0, mode, bias, bidirectional, skip, type, type, math, input, hidden,
             hidden if projection is None else projection, layers, None, 0)
    return made
def sequences(vector, *lengths, type=0):
    made = dnn.created("cudnnCreateRNNDataDescriptor")
    dnn.call("cudnnSetRNNDataDescriptor", made, type, 0, max(lengths), len(lengths), vector, ints(*lengths), None)
    return made
def space(rnn):
    size = c_size_t()
    dnn.call("cudnnGetRNNWeightSpaceSize", handle, rnn, byref(size))
    return size.value
def part(rnn, layer, number, base=0x10000):
    matrix, bias = dnn.created("cudnnCreateTensorDescriptor"), dnn.created("cudnnCreateTensorDescriptor")
    at, bias_at = c_void_p(1), c_void_p(1)
    answers = (matrix, byref(at), bias, byref(bias_at))
    dnn.call("cudnnGetRNNWeightParams", handle, rnn, layer, c_size_t(1 << 40), c_void_p(base), number, *answers)
    return (*read(matrix), at.value and at.value - base), (*read(bias), bias_at.value and bias_at.value - base)
def read(descriptor):
    type, count, sizes, strides = c_int(-1), c_int(-1), ints(*[-1] * 8), ints(*[-1] * 8)
    dnn.call("cudnnGetTensorNdDescriptor", descriptor, 8, byref(type), byref(count), sizes, strides)
    return tuple(sizes[: count.value]),
"""

Run = Callable[..., str]
Work = dict[str, Any]
RunLayers = Callable[..., list[Work]]


@pytest.fixture
def run_layers(run_core: Run, tmp_path: Path) -> RunLayers:
    """`run_layers(code, **device)`: the work of the trace in its order."""

    def run(code: str, **device: object) -> list[Work]:
        trace = tmp_path / "trace.json"
        run_core(
            START + textwrap.dedent(code) + "\ncore.library.emu_device_synchronize(0)\n", device=device, trace=trace
        )
        events = [event for event in json.loads(trace.read_text() if trace.exists() else "[]") if event]
        return [{"name": event["name"], **event["args"]} for event in events]

    return run


def test_versions_and_errors(run_layers: RunLayers) -> None:
    run_layers("""
    dnn.library.cudnnGetVersion.restype = c_size_t
    assert dnn.library.cudnnGetVersion() == 92600
    parts = [c_int() for _ in range(3)]
    for number, part in enumerate(parts):
        dnn.call("cudnnGetProperty", number, byref(part))
    assert [part.value for part in parts] == [9, 26, 0]
    assert dnn.status("cudnnGetProperty", 3, byref(parts[0])) in BAD
    assert dnn.text("cudnnGetErrorString", 0) == "CUDNN_STATUS_SUCCESS"
    assert dnn.text("cudnnGetErrorString", 3000) == "CUDNN_STATUS_NOT_SUPPORTED"
    assert dnn.status("cudnnSetTensorNdDescriptor", tensor(2), 99, 1, ints(2), ints(1)) in BAD
    message = ctypes.create_string_buffer(64)
    dnn.library.cudnnGetLastErrorString(message, c_size_t(64))
    assert message.value == b"there is no data type 99"
    dnn.library.cudnnGetLastErrorString(message, c_size_t(64))
    assert message.value == b""
    dnn.library.cudnnGetLastErrorString(None, c_size_t(64))
    """)


def test_handles(run_layers: RunLayers) -> None:
    run_layers("""
    stream = core.stream()
    dnn.call("cudnnSetStream", handle, stream)
    assert dnn.made("cudnnGetStream", handle).value == stream.value
    dnn.call("cudnnDestroy", handle)
    assert dnn.status("cudnnSetStream", handle, None) in BAD
    assert dnn.status("cudnnDestroy", handle) == 1001
    assert dnn.status("cudnnCreate", None) in BAD
    """)


def test_descriptors_tell_what_was_set(run_layers: RunLayers) -> None:
    run_layers("""
    one = tensor(2, 3, 5, 7, type=2)
    type, count, sizes, strides = c_int(), c_int(), ints(*[0] * 8), ints(*[0] * 8)
    dnn.call("cudnnGetTensorNdDescriptor", one, 3, byref(type), byref(count), sizes, strides)
    assert (type.value, count.value, list(sizes)[:4], list(strides)[:4]) == (2, 4, [2, 3, 5, 0], [105, 35, 7, 0])
    format = c_int(-1)
    dnn.call("cudnnGetFilterNdDescriptor", filter_(4, 3, 2), 8, byref(type), byref(format), byref(count), sizes)
    assert (type.value, format.value, count.value, list(sizes)[:3]) == (0, 0, 3, [4, 3, 2])
    for count_, values in ((0, (1,)), (9, (1,) * 9), (2, (1, 0)), (2, (1, -1))):
        assert dnn.status("cudnnSetTensorNdDescriptor", one, 0, count_, ints(*values), ints(*values)) >= 2000
    assert dnn.status("cudnnSetFilterNdDescriptor", one, 0, 0, 1, ints(1)) in BAD, "it is a tensor"
    dnn.call("cudnnDestroyTensorDescriptor", one)
    assert dnn.status("cudnnDestroyTensorDescriptor", one) in BAD
    dnn.call("cudnnDestroyTensorDescriptor", None)
    """)


def test_convolutions_in_their_three_directions(run_layers: RunLayers) -> None:
    works = run_layers("""
    x, w, y, conv = tensor(2, 8, 16, 16), filter_(4, 4, 3, 3), tensor(2, 4, 8, 8), convolution(stride=2, groups=2)
    assert forward(x, w, conv, y) == 0
    workspace = (None, c_size_t(0))
    dnn.call("cudnnConvolutionBackwardData", handle, ONE, w, B, y, C, conv, 1, *workspace, ZERO, x, A)
    dnn.call("cudnnConvolutionBackwardFilter", handle, ONE, x, A, y, C, conv, 1, *workspace, ZERO, w, B)
    """)
    assert [work["name"] for work in works] == [
        "convolution_forward",
        "convolution_backward_data",
        "convolution_backward_filter",
    ]
    assert {work["flops"] for work in works} == {2 * (2 * 8 * 8) * 4 * 4 * 9}
    assert {work["bytes"] for work in works} == {4 * (2 * 8 * 256 + 4 * 4 * 9 + 2 * 4 * 64)}
    assert {work["precision"] for work in works} == {TF32}


@pytest.mark.parametrize(
    ("type_", "math", "capability", "precision"),
    [
        (0, 0, 8, TF32),
        (0, 3, 8, FP32),
        (0, 0, 7, FP32),
        (2, 0, 7, FP32),
        (2, 1, 7, FP16),
        (2, 0, 8, FP16),
        (9, 1, 8, BF16),
        (1, 0, 8, FP64),
    ],
)
def test_precision_by_type_math_and_device(
    run_layers: RunLayers, type_: int, math: int, capability: int, precision: int
) -> None:
    code = f"""
    x = tensor(1, 2, 4, 4, type={type_})
    assert forward(x, filter_(2, 2, 3, 3, type={type_}), convolution(math={math}), x) == 0
    """
    (work,) = run_layers(code, capability_major=capability)
    assert work["precision"] == precision


@pytest.mark.parametrize(
    "call",
    [
        "forward(None, w, conv, y)",
        "forward(x, w, None, y)",
        "forward(x, x, conv, y)",
        "forward(x, w, conv, y, alpha=None)",
        "forward(tensor(2, 8, 16), w, conv, y)",
        "forward(x, w, conv, tensor(2, 4, 9, 8))",
        "forward(x, w, conv, tensor(2, 5, 8, 8))",
        "forward(x, w, conv, tensor(1, 4, 8, 8))",
        "forward(tensor(2, 6, 16, 16), w, conv, y)",
        "forward(x, w, dnn.created('cudnnCreateConvolutionDescriptor'), y)",
        "dnn.status('cudnnSetConvolutionGroupCount', conv, 0)",
        "dnn.status('cudnnSetConvolutionMathType', conv, 4)",
        "dnn.status('cudnnSetConvolutionNdDescriptor', conv, 2, ints(0, 0), ints(0, 1), ints(1, 1), 1, 0)",
        "dnn.status('cudnnSetConvolutionNdDescriptor', conv, 7, ints(0, 0), ints(1, 1), ints(1, 1), 1, 0)",
        "dnn.status('cudnnSetConvolutionNdDescriptor', conv, 2, None, ints(1, 1), ints(1, 1), 1, 0)",
    ],
)
def test_convolutions_that_do_not_fit(run_layers: RunLayers, call: str) -> None:
    code = "x, w, y, conv = tensor(2, 8, 16, 16), filter_(4, 4, 3, 3), tensor(2, 4, 8, 8), convolution(stride=2, groups=2)\n"
    assert run_layers(code + f"assert {call} >= 2000") == []


def test_bfloat16_needs_ampere(run_layers: RunLayers) -> None:
    code = """
    x = tensor(1, 2, 4, 4, type=9)
    assert forward(x, filter_(2, 2, 3, 3, type=9), convolution(), x) in UNSUPPORTED
    """
    assert run_layers(code, capability_major=7) == []


def test_algorithms(run_layers: RunLayers) -> None:
    run_layers("""
    import struct
    x, w, y, conv = tensor(2, 8, 16, 16), filter_(4, 8, 3, 3), tensor(2, 4, 16, 16), convolution(math=1)
    results, count, size = (ctypes.c_char * (48 * 4))(), c_int(-1), c_size_t(7)
    for name, order in (("Forward", (x, w, conv, y)), ("BackwardData", (w, y, conv, x)), ("BackwardFilter", (x, y, conv, w))):
        dnn.call(f"cudnnGetConvolution{name}Algorithm_v7", handle, *order, 4, byref(count), results)
        algorithm, status, time, memory, deterministic, math = struct.unpack_from("iif4xqii", results)
        assert (count.value, algorithm, status, memory, deterministic, math) == (1, 1, 0, 0, 1, 1)
        dnn.call(f"cudnnGetConvolution{name}WorkspaceSize", handle, *order, algorithm, byref(size))
        assert size.value == 0
        assert dnn.status(f"cudnnGetConvolution{name}Algorithm_v7", handle, *order, 0, byref(count), results) in BAD
    rest = (4, byref(count), results, None, c_size_t(0))
    dnn.call("cudnnFindConvolutionForwardAlgorithmEx", handle, x, A, w, B, conv, y, C, *rest)
    dnn.call("cudnnFindConvolutionBackwardDataAlgorithmEx", handle, w, A, y, B, conv, x, C, *rest)
    dnn.call("cudnnFindConvolutionBackwardFilterAlgorithmEx", handle, x, A, y, B, conv, w, C, *rest)
    """)


def test_batch_normalization(run_layers: RunLayers) -> None:
    works = run_layers("""
    x, s, size = tensor(4, 8, 10, 10), tensor(1, 8, 1, 1), c_size_t(7)
    no_reserve = (None, c_size_t(0), None, c_size_t(0))
    def train(operations, mode=1, y=x):
        tensors, saved = (x, A, x, B, y, C, s, A, A), (c_double(0.1), A, A, c_double(1e-5), A, A, None)
        rest = (*tensors, *saved, *no_reserve)
        return dnn.status("cudnnBatchNormalizationForwardTrainingEx", handle, mode, operations, ONE, ZERO, *rest)
    assert (train(0), train(2)) == (0, 0)
    assert train(3) in BAD and train(0, mode=3) in BAD and train(0, y=s) in BAD
    tensors = (x, A, None, None, x, A, None, None, x, A, s, A, A, A, A)
    rest = (*tensors, c_double(1e-5), A, A, None, *no_reserve)
    dnn.call("cudnnBatchNormalizationBackwardEx", handle, 1, 0, ONE, ZERO, ONE, ZERO, *rest)
    dnn.call("cudnnBatchNormalizationForwardInference", handle, 1, ONE, ZERO, x, A, x, B, s, A, A, A, A, c_double(1e-5))
    for operations, expected in ((0, 0), (1, 4 * 8 * 100 // 8)):
        dnn.call("cudnnGetBatchNormalizationTrainingExReserveSpaceSize", handle, 1, operations, None, x, byref(size))
        assert size.value == expected
    dnn.call("cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize", handle, 1, 0, x, None, x, s, None, byref(size))
    assert size.value == 0
    dnn.call("cudnnGetBatchNormalizationBackwardExWorkspaceSize", handle, 1, 0, x, None, x, None, x, s, None, byref(size))
    """)
    elements = 4 * 8 * 100
    assert [work["bytes"] for work in works] == [4 * elements * passes for passes in (3, 4, 5, 2)]


def test_an_lstms_weights(run_layers: RunLayers) -> None:
    """One layer: W_i W_f W_c W_o R_i ... R_o, then their biases in the same order."""
    run_layers("""
    rnn = network()
    matrices = 4 * (20 * 10 + 20 * 20)
    assert space(rnn) == 4 * (matrices + 8 * 20)
    for gate in range(4):
        assert part(rnn, 0, gate) == (((1, 20, 10), 4 * gate * 200), ((1, 20, 1), 4 * (matrices + gate * 20)))
        recurrent, bias = part(rnn, 0, 4 + gate)
        assert recurrent == ((1, 20, 20), 4 * (800 + gate * 400))
        assert bias == ((1, 20, 1), 4 * (matrices + (4 + gate) * 20))
    assert part(rnn, 0, 8) == (((), None), ((), None)), "there is no projection"
    """)


def test_layers_and_directions_follow_each_other(run_layers: RunLayers) -> None:
    run_layers("""
    rnn = network(mode=3, bidirectional=1, layers=2, type=2)
    first, second = 3 * (20 * 10 + 20 * 20), 3 * (20 * 40 + 20 * 20)
    assert space(rnn) == 2 * (2 * first + 2 * second + 4 * 6 * 20)
    assert part(rnn, 1, 0)[0] == ((1, 20, 10), 2 * first)
    assert part(rnn, 2, 0)[0] == ((1, 20, 40), 2 * 2 * first)
    assert part(rnn, 3, 5) == (((1, 20, 20), 2 * (2 * first + second + 3 * 800 + 2 * 400)),
                               ((1, 20, 1), 2 * (2 * first + 2 * second + 23 * 20)))
    """)


@pytest.mark.parametrize(
    ("bias", "with_input", "with_recurrence"), [(0, False, False), (1, True, False), (2, True, True), (3, False, True)]
)
def test_bias_modes(run_layers: RunLayers, bias: int, with_input: bool, with_recurrence: bool) -> None:
    run_layers(f"""
    rnn = network(mode=1, bias={bias})
    assert space(rnn) == 4 * (200 + 400 + 20 * ({with_input} + {with_recurrence}))
    assert (part(rnn, 0, 0)[1][1] is not None, part(rnn, 0, 1)[1][1] is not None) == ({with_input}, {with_recurrence})
    """)


def test_projections_and_skipped_inputs(run_layers: RunLayers) -> None:
    run_layers("""
    rnn = network(projection=5, layers=2)
    assert part(rnn, 0, 4)[0][0] == (1, 20, 5)
    assert part(rnn, 0, 8) == (((1, 5, 20), 4 * (4 * 200 + 4 * 100)), ((), None))
    assert part(rnn, 1, 0)[0] == ((1, 20, 5), 4 * (4 * 200 + 4 * 100 + 100))
    skipping = network(mode=0, input=20, skip=1)
    assert part(skipping, 0, 0)[0] == ((), None)
    assert part(skipping, 0, 1)[0] == ((1, 20, 20), 0)
    """)


def test_recurrent_work(run_layers: RunLayers) -> None:
    works = run_layers("""
    rnn, x, y, h = network(layers=2), sequences(10, 7, 5, 2), sequences(20, 7, 5, 2), tensor(2, 3, 20)
    size, workspace, reserve = c_size_t(space(rnn)), c_size_t(), c_size_t()
    def forward(input=x, space=size, mode=1):
        return dnn.status("cudnnRNNForward", handle, rnn, mode, None, input, A, y, B, h, None, None, h, None, None, space, C,
                          c_size_t(0), None, c_size_t(0), None)
    assert forward() == 0
    assert forward(input=y) in BAD and forward(space=c_size_t(1)) in BAD and forward(mode=2) in BAD
    rest = (c_size_t(0), None, c_size_t(0), None)
    states = (h, None, None, None)
    dnn.call("cudnnRNNBackwardData_v8", handle, rnn, None, y, A, A, x, A, *states, *states, size, C, *rest)
    dnn.call("cudnnRNNBackwardWeights_v8", handle, rnn, 0, None, x, A, h, None, y, B, size, C, *rest)
    assert dnn.status("cudnnRNNBackwardWeights_v8", handle, rnn, 1, None, x, A, h, None, y, B, size, C, *rest) in UNSUPPORTED
    dnn.call("cudnnGetRNNTempSpaceSizes", handle, rnn, 1, x, byref(workspace), byref(reserve))
    assert workspace.value > 0 and reserve.value > 0
    dnn.call("cudnnGetRNNTempSpaceSizes", handle, rnn, 0, x, byref(workspace), byref(reserve))
    assert reserve.value == 0
    """)
    parameters = 4 * 20 * (10 + 20) + 4 * 20 * (20 + 20)
    for name, kernels in (("forward", 2 * 7), ("backward_data", 2 * 7), ("backward_weights", 1)):
        flops = [work["flops"] for work in works if work["name"] == f"rnn_{name}"]
        assert len(flops) == kernels, "one for each layer and step, as each needs the one before"
        assert sum(flops) == pytest.approx(2 * 14 * parameters, abs=kernels)


@pytest.mark.parametrize(
    "call",
    [
        "network(mode=4)",
        "network(bias=4)",
        "network(hidden=0, projection=0)",
        "network(layers=0)",
        "network(layers=2**31 - 1)",
        "network(mode=3, projection=5)",
        "network(projection=21)",
        "network(type=11)",
        "sequences(0, 3)",
        "sequences(3, 0)",
        "dnn.call('cudnnSetRNNDataDescriptor', sequences(1, 1), 0, 0, 2, 2, 3, ints(1, 3), None)",
        "dnn.call('cudnnSetRNNDataDescriptor', sequences(1, 1), 0, 0, 2, 2, 3, None, None)",
        "part(network(), 1, 0)",
        "part(network(), 0, 9)",
        "part(None, 0, 0)",
        "space(dnn.created('cudnnCreateRNNDescriptor'))",
    ],
)
def test_recurrent_networks_that_do_not_exist(run_layers: RunLayers, call: str) -> None:
    run_layers(f"""
    try:
        {call}
    except CallError as error:
        assert error.status >= 2000
    else:
        raise AssertionError("it was accepted")
    """)


def test_the_other_layers(run_layers: RunLayers) -> None:
    works = run_layers("""
    x, y, size = tensor(2, 3, 8, 8), tensor(2, 3, 4, 4), c_size_t(0)
    pooling = dnn.created("cudnnCreatePoolingDescriptor")
    dnn.call("cudnnSetPooling2dDescriptor", pooling, 0, 0, 2, 2, 0, 0, 2, 2)
    dnn.call("cudnnPoolingForward", handle, pooling, ONE, x, A, ZERO, y, B)
    assert dnn.status("cudnnSetPooling2dDescriptor", pooling, 4, 0, 2, 2, 0, 0, 2, 2) in BAD
    assert dnn.status("cudnnSetPooling2dDescriptor", pooling, 0, 0, 2, 2, 0, 0, 0, 2) in BAD
    assert dnn.status("cudnnPoolingForward", handle, None, ONE, x, A, ZERO, y, B) in BAD
    loss, scores = dnn.created("cudnnCreateCTCLossDescriptor"), tensor(50, 4, 20)
    dnn.call("cudnnSetCTCLossDescriptor_v9", loss, 0, 1, 0, 10)
    dnn.call("cudnnGetCTCLossWorkspaceSize_v8", handle, 0, loss, scores, scores, byref(size))
    assert size.value == 2 * 50 * 4 * 21 * 4
    dnn.call("cudnnCTCLoss_v8", handle, 0, loss, scores, A, A, A, A, A, scores, B, size, C)
    assert dnn.status("cudnnCTCLoss", handle, scores, A, None, ints(1), ints(1), A, scores, B, 0, loss, C, size) in BAD
    transformer = dnn.created("cudnnCreateSpatialTransformerDescriptor")
    dnn.call("cudnnSetSpatialTransformerNdDescriptor", transformer, 0, 0, 4, ints(2, 3, 8, 8))
    dnn.call("cudnnSpatialTfGridGeneratorForward", handle, transformer, A, B)
    dnn.call("cudnnSpatialTfSamplerForward", handle, transformer, ONE, x, A, B, ZERO, x, C)
    activation = dnn.created("cudnnCreateActivationDescriptor")
    dnn.call("cudnnSetActivationDescriptor", activation, 1, 0, c_double(0))
    assert dnn.status("cudnnSetActivationDescriptor", activation, 7, 0, c_double(0)) in BAD
    """)
    pixels = 2 * 3 * 64
    assert [(work["name"], work["bytes"]) for work in works] == [
        ("pooling", 4 * (pixels + pixels // 4)),
        ("ctc_loss", 4 * (2 * 50 * 4 * 20 + 2 * 2 * 50 * 4 * 21)),
        ("grid_generator_forward", 4 * 2 * 2 * 64),
        ("grid_sampler_forward", 4 * (2 * 2 * 64 + 2 * pixels)),
    ]


def test_dropout_states(run_layers: RunLayers) -> None:
    run_layers(
        """
    dropout, size = dnn.created("cudnnCreateDropoutDescriptor"), c_size_t()
    dnn.call("cudnnDropoutGetStatesSize", handle, byref(size))
    assert size.value > 0
    seed = c_uint64(7)
    dnn.call("cudnnSetDropoutDescriptor", dropout, handle, c_float(0.5), A, size, seed)
    dnn.call("cudnnRestoreDropoutDescriptor", dropout, handle, c_float(0.5), A, size, seed)
    dnn.call("cudnnSetDropoutDescriptor", dropout, handle, c_float(0), None, c_size_t(0), seed)
    assert dnn.status("cudnnSetDropoutDescriptor", dropout, handle, c_float(1.5), A, size, seed) in BAD
    assert dnn.status("cudnnSetDropoutDescriptor", dropout, handle, c_float(float("nan")), A, size, seed) in BAD
    assert dnn.status("cudnnSetDropoutDescriptor", dropout, handle, c_float(0.5), A, c_size_t(1), seed) in BAD
    assert dnn.status("cudnnSetDropoutDescriptor", dropout, None, c_float(0.5), A, size, seed) in BAD
    """,
        multiprocessors=108,
    )
