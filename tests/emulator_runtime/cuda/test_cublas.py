"""cuBLAS and cuBLASLt: what they answer, and the work that they give to the device."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

FP64, FP32, TF32, FP16, BF16, FP8 = range(6)
"""Precisions, as the trace numbers them."""

START = """
from math_calls import *
blas = Library("libcublas.so.13")
lt = Library("libcublasLt.so.13")
handle = blas.created("cublasCreate_v2")
def gemm(name, *tail, m=2, n=3, k=4, a=0, b=0, lda=None, ldb=None, ldc=None, alpha=ONE, beta=ZERO):
    lda, ldb = lda or max(1, k if a else m), ldb or max(1, n if b else k)
    return blas.status(name, handle, a, b, m, n, k, alpha, A, lda, B, ldb, beta, C, ldc or max(1, m), *tail)
def gemm_ex(a_type, b_type, c_type, compute, m=2, n=3, k=4, beta=ZERO):
    return blas.status("cublasGemmEx", handle, 0, 0, m, n, k, ONE, A, a_type, m, B, b_type, k, beta, C, c_type, m, compute, -1)
def layout(kind, rows, columns, batch=1):
    made = lt.created("cublasLtMatrixLayoutCreate", kind, c_uint64(rows), c_uint64(columns), c_int64(rows))
    lt.call("cublasLtMatrixLayoutSetAttribute", made, 5, byref(c_int32(batch)), c_size_t(4))
    return made
def describe(compute, scale, **attributes):
    made = lt.created("cublasLtMatmulDescCreate", compute, scale)
    for name, value in attributes.items():
        number = {"transpose_a": 3, "transpose_b": 4, "epilogue": 7}[name]
        lt.call("cublasLtMatmulDescSetAttribute", made, number, byref(c_int32(value)), c_size_t(4))
    return made
def matmul(descriptor, a, b, d, beta=ZERO, c=None, stream=None):
    return lt.status("cublasLtMatmul", handle, descriptor, ONE, A, a, B, b, beta, c, d, C, d, None, None, c_size_t(0), stream)
preference = lt.created("cublasLtMatmulPreferenceCreate")
def heuristic(descriptor, a, b, d, requested=8):
    results, count = (ctypes.c_char * (96 * 8))(), c_int(-1)
    asked = (handle, descriptor, a, b, d, d, preference, requested)
    return lt.status("cublasLtMatmulAlgoGetHeuristic", *asked, results, byref(count)), count.value
"""

Run = Callable[..., str]
Work = dict[str, Any]


@pytest.fixture
def run_math(run_core: Run, tmp_path: Path) -> Callable[..., tuple[str, list[Work]]]:
    """`run_math(code, **device)`: what it prints, and the work of the trace in its order."""

    def run(code: str, **device: object) -> tuple[str, list[Work]]:
        trace = tmp_path / "trace.json"
        program = START + textwrap.dedent(code) + "\ncore.library.emu_device_synchronize(0)\n"
        printed = run_core(program, device=device, trace=trace)
        events = [event for event in json.loads(trace.read_text() if trace.exists() else "[]") if event]
        return printed, [{"name": event["name"], **event["args"]} for event in events]

    return run


def test_a_product_tells_its_shape(run_math: Callable[..., tuple[str, list[Work]]]) -> None:
    _, (work,) = run_math("assert gemm('cublasSgemm_v2', m=100, n=200, k=300) == 0")
    assert (work["name"], work["flops"], work["precision"]) == ("gemm", 2 * 100 * 200 * 300, FP32)
    assert work["bytes"] == 4 * (100 * 300 + 300 * 200 + 100 * 200)


def test_a_product_that_adds_reads_c(run_math: Callable[..., tuple[str, list[Work]]]) -> None:
    _, (work,) = run_math("assert gemm('cublasSgemm_v2', m=100, n=200, k=300, beta=(c_float * 1)(0.5)) == 0")
    assert work["bytes"] == 4 * (100 * 300 + 300 * 200 + 2 * 100 * 200)


def test_batches(run_math: Callable[..., tuple[str, list[Work]]]) -> None:
    code = """
    strides = c_int64(8)
    a, b, c = (A, 2, strides), (B, 3, strides), (C, 2, strides)
    assert blas.status("cublasDgemmStridedBatched", handle, 0, 1, 2, 3, 4, ONE, *a, *b, ZERO, *c, 10) == 0
    assert gemm("cublasCgemmBatched", 5) == 0
    assert gemm("cublasSgemmBatched", 0) == 0
    """
    _, works = run_math(code)
    assert [(work["flops"], work["precision"]) for work in works] == [(2 * 24 * 10, FP64), (8 * 24 * 5, FP32)]


@pytest.mark.parametrize(
    ("types", "compute", "math_mode", "precision"),
    [
        ("0, 0, 0", 68, 0, FP32),
        ("0, 0, 0", 68, 3, TF32),
        ("0, 0, 0", 68, 3 | 16, TF32),
        ("0, 0, 0", 69, 3, FP32),  # pedantic
        ("0, 0, 0", 77, 0, TF32),
        ("0, 0, 0", 75, 0, BF16),
        ("2, 2, 2", 68, 0, FP16),
        ("2, 2, 2", 64, 0, FP16),
        ("14, 14, 0", 68, 0, BF16),
        ("1, 1, 1", 70, 3, FP64),
    ],
)
def test_precision_by_types_and_modes(
    run_math: Callable[..., tuple[str, list[Work]]], types: str, compute: int, math_mode: int, precision: int
) -> None:
    _, (work,) = run_math(
        f'blas.call("cublasSetMathMode", handle, {math_mode})\nassert gemm_ex({types}, {compute}) == 0'
    )
    assert work["precision"] == precision


@pytest.mark.parametrize(
    ("call", "status"),
    [
        ("gemm('cublasSgemm_v2', m=-1, lda=1)", 7),
        ("gemm('cublasSgemm_v2', n=-1)", 7),
        ("gemm('cublasSgemm_v2', k=-1)", 7),
        ("gemm('cublasSgemm_v2', a=3)", 7),
        ("gemm('cublasSgemm_v2', lda=1)", 7),
        ("gemm('cublasSgemm_v2', ldb=3)", 7),
        ("gemm('cublasSgemm_v2', ldc=1)", 7),
        ("gemm('cublasSgemm_v2', alpha=None)", 7),
        ("gemm('cublasSgemm_v2', beta=None)", 7),
        ("gemm('cublasSgemmBatched', -1)", 7),
        ("gemm('cublasSgemm_v2', m=0)", 0),
        ("gemm_ex(0, 2, 0, 68)", 15),  # types that don't go together
        ("gemm_ex(1, 1, 1, 68)", 15),
        ("gemm_ex(28, 28, 0, 68)", 15),  # FP8 needs a newer device
        ("gemm_ex(0, 0, 99, 68)", 15),
        ("blas.status('cublasSgemm_v2', None, 0, 0, 2, 2, 2, ONE, A, 2, B, 2, ZERO, C, 2)", 1),
        ("blas.status('cublasSgemm_v2', c_void_p(0x1234), 0, 0, 2, 2, 2, ONE, A, 2, B, 2, ZERO, C, 2)", 1),
        ("blas.status('cublasCreate_v2', None)", 7),
        ("blas.status('cublasDestroy_v2', c_void_p(0x1234))", 1),
        ("blas.status('cublasSetMathMode', handle, 7)", 7),
        ("blas.status('cublasSetPointerMode_v2', handle, 2)", 7),
        ("blas.status('cublasGetMathMode', handle, None)", 7),
        ("blas.status('cublasSetSmCountTarget', handle, -1)", 7),
        ("blas.status('cublasSetWorkspace_v2', handle, None, c_size_t(1))", 7),
        ("blas.status('cublasSetWorkspace_v2', handle, c_void_p(0x1001), c_size_t(1))", 7),
        ("blas.status('cublasSetWorkspace_v2', handle, c_void_p(0x1000), c_size_t(1))", 0),
        ("blas.status('cublasStrsm_v2', handle, 0, 0, 0, 0, 4, 2, ONE, A, 3, B, 4)", 7),
        ("blas.status('cublasStrsm_v2', handle, 2, 0, 0, 0, 4, 2, ONE, A, 4, B, 4)", 7),
        ("blas.status('cublasSsyrk_v2', handle, 0, 0, 4, -2, ONE, A, 4, ZERO, C, 4)", 7),
        ("blas.status('cublasSgemv_v2', handle, 0, 4, 2, ONE, A, 4, B, 0, ZERO, C, 1)", 7),
        ("blas.status('cublasSaxpy_v2', handle, 4, None, A, 1, B, 1)", 7),
        ("blas.status('cublasSdot_v2', handle, 4, A, 1, B, 1, None)", 7),
        ("blas.status('cublasSrotg_v2', handle, ONE, ONE, ONE, ONE)", 15),
    ],
)
def test_arguments_are_checked(run_math: Callable[..., tuple[str, list[Work]]], call: str, status: int) -> None:
    printed, works = run_math(f"print({call})")
    assert printed.splitlines()[0] == str(status)
    assert works == []


def test_a_destroyed_handle_is_unknown(run_math: Callable[..., tuple[str, list[Work]]]) -> None:
    run_math("""
    blas.call("cublasDestroy_v2", handle)
    assert gemm("cublasSgemm_v2") == 1
    assert blas.status("cublasDestroy_v2", handle) == 1
    """)


def test_settings_come_back(run_math: Callable[..., tuple[str, list[Work]]]) -> None:
    run_math("""
    for name, value in (("MathMode", 3), ("PointerMode_v2", 1), ("AtomicsMode", 1), ("SmCountTarget", 8)):
        found = c_int(-1)
        blas.call("cublasSet" + name, handle, value)
        blas.call("cublasGet" + name, handle, byref(found))
        assert found.value == value, name
    stream = core.stream()
    blas.call("cublasSetStream_v2", handle, stream)
    assert blas.made("cublasGetStream_v2", handle).value == stream.value
    """)


def test_numbers_for_the_host_are_zero_when_the_stream_is_done(
    run_math: Callable[..., tuple[str, list[Work]]],
) -> None:
    _, works = run_math("""
    result, index, none = c_float(7), c_int(7), c_int(7)
    blas.call("cublasSdot_v2", handle, 1000, A, 1, B, 1, byref(result))
    assert result.value == 0
    result.value = 7
    blas.call("cublasSnrm2_v2", handle, 1000, A, 1, byref(result))
    assert result.value == 0
    blas.call("cublasIsamax_v2", handle, 1000, A, 1, byref(index))
    blas.call("cublasIsamax_v2", handle, 0, A, 1, byref(none))
    assert (index.value, none.value) == (1, 0)
    assert core.library.emu_stream_query(core.default_stream()) == 0
    """)
    assert [(work["name"], work["bytes"]) for work in works] == [("dot", 8000), ("nrm2", 4000), ("iamax", 4000)]


def test_numbers_for_the_device_stay_there(run_math: Callable[..., tuple[str, list[Work]]]) -> None:
    run_math("""
    blas.call("cublasSetPointerMode_v2", handle, 1)
    blas.call("cublasSdot_v2", handle, 1000, A, 1, B, 1, C)
    """)


def test_factorisations_say_that_they_succeeded(run_math: Callable[..., tuple[str, list[Work]]]) -> None:
    _, works = run_math("""
    infos = core.allocate(512)
    core.write(infos, b"\\xff" * 512)
    blas.call("cublasSgetrfBatched", handle, 8, A, 8, B, infos, 4)
    assert core.read(infos, 20) == b"\\0" * 16 + b"\\xff" * 4
    info = c_int(7)
    assert blas.status("cublasSgetrsBatched", handle, 0, 8, -1, A, 8, B, C, 8, byref(info), 4) == 7
    assert info.value == -3
    blas.call("cublasSgetrsBatched", handle, 0, 8, 2, A, 8, B, C, 8, byref(info), 4)
    assert info.value == 0
    assert blas.status("cublasSgetrfBatched", handle, 8, A, 8, B, c_void_p(0x1234), 4) == 7
    """)
    names = [work["name"] for work in works]
    assert names.count("getrf_batched") == 2
    assert names.count("getrs_batched") == 1


def test_copies_between_host_and_device(run_math: Callable[..., tuple[str, list[Work]]]) -> None:
    run_math("""
    memory, back = core.allocate(512), ints(*[0] * 6)
    blas.call("cublasSetMatrixAsync", 2, 2, 4, ints(1, 2, 0, 3, 4, 0), 3, memory, 2, None)
    blas.call("cublasGetMatrixAsync", 2, 2, 4, memory, 2, back, 3, None)
    assert list(back) == [1, 2, 0, 3, 4, 0]
    blas.call("cublasSetVectorAsync", 2, 4, ints(5, 0, 6), 2, memory, 1, None)
    blas.call("cublasGetVectorAsync", 2, 4, memory, 1, back, 1, None)
    assert list(back)[:2] == [5, 6]
    assert blas.status("cublasSetMatrixAsync", 4, 2, 4, back, 3, memory, 4, None) == 7
    assert blas.status("cublasSetMatrixAsync", 2, 2, 4, None, 2, memory, 2, None) == 11
    """)


def test_names_and_versions(run_math: Callable[..., tuple[str, list[Work]]]) -> None:
    run_math("""
    version, part = c_int(), c_int()
    blas.call("cublasGetVersion_v2", handle, byref(version))
    assert version.value == 130401
    blas.call("cublasGetProperty", 0, byref(part))
    assert part.value == 13
    older = Library("libcublas.so.12")
    older.call("cublasGetVersion_v2", None, byref(version))
    assert version.value == 120804
    assert lt.status("cublasLtGetVersion") == 130401
    assert blas.text("cublasGetStatusName", 15) == "CUBLAS_STATUS_NOT_SUPPORTED"
    assert blas.text("cublasGetStatusString", 7) == "an unsupported value or parameter was passed to the function"
    assert blas.text("cublasGetStatusName", 4711) == "CUBLAS_STATUS_UNKNOWN"
    assert lt.text("cublasLtGetStatusName", 0) == "CUBLAS_STATUS_SUCCESS"
    """)


# ---- cuBLASLt


def test_a_described_product(run_math: Callable[..., tuple[str, list[Work]]]) -> None:
    _, works = run_math("""
    one = layout(2, 64, 128, 4), layout(2, 128, 32, 4), layout(2, 64, 32, 4)
    plain = describe(68, 0)
    assert heuristic(plain, *one) == (0, 1)
    assert matmul(plain, *one) == 0
    turned = describe(77, 0, transpose_a=1, transpose_b=1, epilogue=4)
    assert matmul(turned, layout(0, 128, 64), layout(0, 32, 128), layout(0, 64, 32), beta=(c_float * 1)(1), c=C) == 0
    """)
    assert [(work["name"], work["flops"], work["precision"]) for work in works] == [
        ("matmul", 2 * 64 * 32 * 128 * 4, FP16),
        ("matmul_epilogue", 2 * 64 * 32 * 128, TF32),
    ]
    assert works[1]["bytes"] == 4 * (64 * 128 + 128 * 32 + 2 * 64 * 32)


@pytest.mark.parametrize(
    ("capability", "code", "status"),
    [
        (
            80,
            "matmul(describe(68, 0), layout(28, 64, 32), layout(28, 64, 48), layout(14, 32, 48))",
            7,
        ),  # A isn't transposed
        (80, "matmul(describe(68, 0, transpose_a=1), layout(28, 64, 32), layout(28, 64, 48), layout(14, 32, 48))", 15),
        (89, "matmul(describe(68, 0, transpose_a=1), layout(28, 64, 32), layout(28, 64, 48), layout(14, 32, 48))", 0),
        (90, "matmul(describe(68, 0), layout(28, 32, 64), layout(28, 64, 48), layout(14, 32, 48))", 15),
        (100, "matmul(describe(68, 0), layout(28, 32, 64), layout(28, 64, 48), layout(14, 32, 48))", 0),
        (90, "matmul(describe(68, 0, transpose_a=1), layout(28, 60, 32), layout(28, 60, 48), layout(14, 32, 48))", 15),
        (90, "matmul(describe(68, 0), layout(0, 2, 3), layout(2, 3, 4), layout(0, 2, 4))", 15),
        (90, "matmul(describe(68, 0), layout(0, 2, 3, 2), layout(0, 3, 4, 3), layout(0, 2, 4, 3))", 7),
        (90, "matmul(None, layout(0, 2, 3), layout(0, 3, 4), layout(0, 2, 4))", 7),
        (90, "matmul(describe(68, 0), C, layout(0, 3, 4), layout(0, 2, 4))", 7),
        (90, "heuristic(describe(68, 0), layout(0, 2, 3), layout(0, 3, 4), layout(0, 2, 4), 0)[0]", 7),
        (90, "heuristic(describe(68, 0), layout(0, 2, 3), layout(2, 3, 4), layout(0, 2, 4))", "(15, 0)"),
    ],
)
def test_which_products_there_are(
    run_math: Callable[..., tuple[str, list[Work]]], capability: int, code: str, status: object
) -> None:
    printed, _ = run_math(f"print({code})", capability_major=capability // 10, capability_minor=capability % 10)
    assert printed.splitlines()[0] == str(status)


def test_attributes_have_a_size(run_math: Callable[..., tuple[str, list[Work]]]) -> None:
    run_math("""
    one = layout(0, 8, 8)
    def set_(attribute, value):
        size = c_size_t(ctypes.sizeof(value))
        return lt.status("cublasLtMatrixLayoutSetAttribute", one, attribute, byref(value), size)
    assert set_(5, c_int32(2)) == 0
    assert set_(5, c_int64(2)) == 7
    assert set_(47, c_int32(2)) == 7
    assert set_(1000, c_int32(2)) == 7
    assert lt.status("cublasLtMatrixLayoutSetAttribute", one, 5, None, c_size_t(4)) == 7
    value, written = c_int32(-1), c_size_t()
    lt.call("cublasLtMatrixLayoutGetAttribute", one, 5, byref(value), c_size_t(4), byref(written))
    assert (value.value, written.value) == (2, 4)
    lt.call("cublasLtMatrixLayoutGetAttribute", one, 6, None, c_size_t(0), byref(written))
    assert written.value == 8
    assert lt.status("cublasLtMatrixLayoutGetAttribute", one, 6, byref(value), c_size_t(4), None) == 7
    assert lt.status("cublasLtMatmulDescSetAttribute", one, 3, byref(value), c_size_t(4)) == 7, "it is a layout"
    lt.call("cublasLtMatrixLayoutDestroy", one)
    assert set_(5, c_int32(2)) == 7
    """)


def test_a_configured_algorithm(run_math: Callable[..., tuple[str, list[Work]]]) -> None:
    run_math("""
    algorithm, result, value = (c_uint64 * 8)(), (ctypes.c_char * 96)(), c_int32(3)
    lt.call("cublasLtMatmulAlgoInit", handle, 68, 0, 0, 0, 0, 0, 5, algorithm)
    lt.call("cublasLtMatmulAlgoConfigSetAttribute", algorithm, 2, byref(value), c_size_t(4))
    value.value = 0
    lt.call("cublasLtMatmulAlgoConfigGetAttribute", algorithm, 2, byref(value), c_size_t(4), None)
    assert value.value == 3
    one = layout(0, 2, 3), layout(0, 3, 4), layout(0, 2, 4)
    assert lt.status("cublasLtMatmulAlgoCheck", handle, describe(68, 0), *one, one[2], algorithm, result) == 0
    assert lt.status("cublasLtMatmulAlgoCheck", handle, describe(68, 0), *one, one[2], (c_uint64 * 8)(), result) == 7
    assert lt.status("cublasLtMatmulAlgoInit", handle, 70, 0, 0, 0, 0, 0, 5, algorithm) == 15
    """)
