"""Operations and bytes of library calls, against numbers that were worked out by hand."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from collections.abc import Callable
from ctypes import c_bool, c_double, c_int, c_int64

import pytest

from emulator_runtime.cuda.families import SOURCES

SPATIAL = c_double * 6


class Amount(ctypes.Structure):
    _fields_ = (("flops", c_double), ("bytes", c_double), ("columns", c_double), ("depth", c_double))


class Gemm(ctypes.Structure):
    _fields_ = (
        *((name, c_double) for name in ("m", "n", "k", "batch", "a_bytes", "b_bytes", "c_bytes", "d_bytes")),
        ("is_complex", c_bool),
    )


class Convolution(ctypes.Structure):
    _fields_ = (
        ("spatial", c_int),
        *((name, c_double) for name in ("batch", "channels_in", "channels_out", "groups")),
        *((name, SPATIAL) for name in ("input", "filter", "output")),
        *((name, c_double) for name in ("input_bytes", "filter_bytes", "output_bytes")),
    )


class Attention(ctypes.Structure):
    _fields_ = (
        *(
            (name, c_double)
            for name in ("batch", "heads", "key_heads", "queries", "keys", "key_size", "value_size", "element_bytes")
        ),
        ("causal", c_bool),
    )


class Rnn(ctypes.Structure):
    _fields_ = tuple(
        (name, c_double)
        for name in (
            "gates",
            "layers",
            "directions",
            "batch",
            "steps",
            "input",
            "hidden",
            "projection",
            "element_bytes",
        )
    )


Formula = Callable[..., Amount]


@pytest.fixture(scope="module")
def formulas(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    assert compiler, "the emulated CUDA libraries need a C compiler"
    library = tmp_path_factory.mktemp("formulas") / "formulas.so"
    source = SOURCES / "libraries" / "mathematics" / "work_formulas.c"
    subprocess.run([compiler, "-std=c11", "-shared", "-fPIC", "-o", library, source], check=True)
    loaded = ctypes.CDLL(str(library))
    loaded.convolution_output_size.restype = c_int64
    loaded.convolution_output_size.argtypes = [c_int64] * 6
    loaded.rnn_parameters.restype = c_double
    return loaded


def amount(formula: object, *arguments: object) -> tuple[float, float]:
    formula.restype = Amount  # type: ignore[attr-defined]
    result = formula(*arguments)  # type: ignore[operator]
    return result.flops, result.bytes


def of_shape(formula: object, shape: ctypes.Structure) -> tuple[float, float]:
    return amount(formula, ctypes.byref(shape))


def test_a_matrix_product(formulas: ctypes.CDLL) -> None:
    shape = Gemm(m=2, n=3, k=4, batch=5, a_bytes=2, b_bytes=2, d_bytes=4)
    assert of_shape(formulas.gemm_amount, shape) == (2 * 2 * 3 * 4 * 5, 5 * (2 * 4 * 2 + 4 * 3 * 2 + 2 * 3 * 4))


def test_a_matrix_product_that_adds_reads_what_is_there(formulas: ctypes.CDLL) -> None:
    shape = Gemm(m=2, n=3, k=4, batch=1, a_bytes=4, b_bytes=4, c_bytes=4, d_bytes=4)
    assert of_shape(formulas.gemm_amount, shape)[1] == 4 * (8 + 12 + 6 + 6)


def test_a_complex_multiplication_is_four_real_ones(formulas: ctypes.CDLL) -> None:
    real = Gemm(m=7, n=7, k=7, batch=1)
    complex_ = Gemm(m=7, n=7, k=7, batch=1, is_complex=True)
    assert of_shape(formulas.gemm_amount, complex_)[0] == 4 * of_shape(formulas.gemm_amount, real)[0]


def convolution(spatial: int, filters: list[int], output: list[int], **sizes: float) -> Convolution:
    inputs = sizes.pop("input", None) or [8] * spatial
    fields = {"batch": 1, "groups": 1, "input_bytes": 4, "filter_bytes": 4, "output_bytes": 4} | sizes
    return Convolution(
        spatial=spatial, input=SPATIAL(*inputs), filter=SPATIAL(*filters), output=SPATIAL(*output), **fields
    )


def test_the_first_convolution_of_resnet_50(formulas: ctypes.CDLL) -> None:
    """64 images of 3 x 224 x 224, 64 filters of 7 x 7, stride 2: 118 million multiply-adds an image."""
    shape = convolution(2, [7, 7], [112, 112], input=[224, 224], batch=64, channels_in=3, channels_out=64)
    flops, moved = of_shape(formulas.convolution_amount, shape)
    assert flops == 64 * 2 * 118_013_952
    assert moved == 4 * (64 * 3 * 224 * 224 + 64 * 3 * 7 * 7 + 64 * 64 * 112 * 112)


@pytest.mark.parametrize("groups", [1, 2, 32])
def test_groups_divide_the_work(formulas: ctypes.CDLL, groups: int) -> None:
    shape = convolution(2, [3, 3], [8, 8], batch=2, channels_in=32, channels_out=64, groups=groups)
    assert of_shape(formulas.convolution_amount, shape)[0] == 2 * 2 * 8 * 8 * 64 * (32 // groups) * 9


def test_a_convolution_in_three_dimensions(formulas: ctypes.CDLL) -> None:
    shape = convolution(3, [3, 3, 3], [2, 4, 4], channels_in=4, channels_out=8)
    assert of_shape(formulas.convolution_amount, shape)[0] == 2 * (2 * 4 * 4) * 8 * 4 * 27


@pytest.mark.parametrize(
    ("input_", "filter_", "padding", "stride", "dilation", "output"),
    [
        (224, 7, 3, 2, 1, 112),
        (56, 3, 1, 1, 1, 56),
        (56, 1, 0, 2, 1, 28),
        (10, 3, 2, 1, 2, 10),  # the filter spans 5
        (10, 3, 0, 3, 3, 2),  # it spans 7: at 0 and at 3
        (2, 5, 0, 1, 1, 0),
        (2, 5, 0, 0, 1, 0),
        (2, 2, 0, 1, 0, 0),
        (2, 2, -1, 1, 1, 0),
        (2**62, 2**62, 2**62, 1, 2**62, 0),
    ],
)
def test_output_sizes(
    formulas: ctypes.CDLL, input_: int, filter_: int, padding: int, stride: int, dilation: int, output: int
) -> None:
    assert formulas.convolution_output_size(input_, filter_, padding, padding, stride, dilation) == output


def attention(**fields: float) -> Attention:
    sizes = {"batch": 2, "heads": 3, "key_heads": 3, "queries": 128, "keys": 64, "key_size": 32, "value_size": 16}
    return Attention(**(sizes | {"element_bytes": 2} | fields))


def test_attention(formulas: ctypes.CDLL) -> None:
    flops, moved = of_shape(formulas.attention_forward_amount, attention())
    assert flops == 2 * (2 * 3 * 128 * 64) * (32 + 16)
    assert moved == 2 * 2 * (3 * 128 * (32 + 16) + 3 * 64 * (32 + 16))


def test_attention_backward_does_five_products(formulas: ctypes.CDLL) -> None:
    flops, _ = of_shape(formulas.attention_backward_amount, attention())
    assert flops == 2 * (2 * 3 * 128 * 64) * (3 * 32 + 2 * 16)


def test_causal_attention_does_half(formulas: ctypes.CDLL) -> None:
    whole, _ = of_shape(formulas.attention_forward_amount, attention())
    assert of_shape(formulas.attention_forward_amount, attention(causal=True))[0] == whole / 2


def test_grouped_queries_share_their_keys(formulas: ctypes.CDLL) -> None:
    own = of_shape(formulas.attention_forward_amount, attention())
    shared = of_shape(formulas.attention_forward_amount, attention(key_heads=1))
    assert own[0] == shared[0]
    assert own[1] - shared[1] == 2 * 2 * 2 * 64 * (32 + 16)


def rnn(**fields: float) -> Rnn:
    sizes = {"gates": 4, "layers": 1, "directions": 1, "batch": 2, "steps": 5, "input": 10, "hidden": 20}
    return Rnn(**(sizes | {"projection": 0, "element_bytes": 4} | fields))


@pytest.mark.parametrize(
    ("fields", "parameters"),
    [
        ({}, 4 * 20 * (10 + 20)),
        ({"gates": 3}, 3 * 20 * (10 + 20)),
        ({"layers": 3}, 4 * 20 * (10 + 20) + 2 * 4 * 20 * (20 + 20)),
        ({"directions": 2, "layers": 2}, 2 * 4 * 20 * (10 + 20) + 2 * 4 * 20 * (40 + 20)),
        ({"projection": 5}, 4 * 20 * (10 + 5) + 5 * 20),
        ({"projection": 5, "layers": 2}, 4 * 20 * (10 + 5) + 5 * 20 + 4 * 20 * (5 + 5) + 5 * 20),
        ({"layers": 0}, 0),
    ],
)
def test_parameters_of_recurrent_networks(formulas: ctypes.CDLL, fields: dict[str, float], parameters: int) -> None:
    assert formulas.rnn_parameters(ctypes.byref(rnn(**fields))) == parameters


def test_each_parameter_meets_each_step(formulas: ctypes.CDLL) -> None:
    forward, _ = of_shape(formulas.rnn_forward_amount, rnn())
    assert forward == 2 * (2 * 5) * 4 * 20 * (10 + 20)
    assert of_shape(formulas.rnn_backward_data_amount, rnn())[0] == forward
    assert of_shape(formulas.rnn_backward_weights_amount, rnn())[0] == forward


def test_factorisations(formulas: ctypes.CDLL) -> None:
    number = c_double
    lu, _ = amount(formulas.lu_amount, number(30), number(2), number(4), c_bool(False))
    assert lu == pytest.approx(2 * 2 / 3 * 30**3)
    qr, _ = amount(formulas.qr_amount, number(30), number(20), number(1), number(4), c_bool(False))
    assert qr == pytest.approx(2 * 20**2 * (30 - 20 / 3))
    wide, _ = amount(formulas.qr_amount, number(20), number(30), number(1), number(4), c_bool(False))
    assert wide == qr
    squares, _ = amount(
        formulas.least_squares_amount, number(30), number(20), number(3), number(1), number(4), c_bool(False)
    )
    assert squares == pytest.approx(qr + 3 * 2 * (2 * 30 * 20 - 20**2 / 2))


def test_the_rest_of_level_3(formulas: ctypes.CDLL) -> None:
    number = c_double
    assert amount(formulas.triangular_amount, number(4), number(3), number(2), number(4), c_bool(False))[0] == 2 * 48
    assert amount(formulas.symmetric_product_amount, number(4), number(3), number(4), c_bool(False))[0] == 2 * 48
    assert amount(formulas.rank_update_amount, number(4), number(3), c_int(1), number(4), c_bool(False))[0] == 2 * 30
    assert amount(formulas.rank_update_amount, number(4), number(3), c_int(2), number(4), c_bool(True))[0] == 8 * 60
