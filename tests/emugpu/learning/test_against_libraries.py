"""Amounts by a profiler's trace beside those of the emulated libraries, compiled from their C files: equal for equal work."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from ctypes import byref, c_bool, c_char_p, c_double, c_int, c_uint

import pytest

from emugpu.learning.kernel_traffic import kernel_bytes
from emugpu.learning.operators import Operator, library_calls
from emulator_runtime.cuda.families import SOURCES
from emulator_runtime.prediction.estimators import demangled
from emulator_runtime.prediction.records import Work

SPATIAL = c_double * 6
NAMES = (
    "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIfEESt5arrayIPcLm1EELb0EEEviT0_T1_",
    "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_15CUDAFunctor_addIfEESt5arrayIPcLm3EELb0EEEviT0_T1_",
    "_ZN2at6native29vectorized_elementwise_kernelILi4ENS0_11FillFunctorIN3c104HalfEEESt5arrayIPcLm1EEEEviT0_T1_",
    "_ZN2at6native18elementwise_kernelILi128ELi2EZNS0_22gpu_kernel_impl_nocastINS0_15CUDAFunctor_addIfEEEEvRNS_18TensorIterator"
    "BaseERKT_EUliE_EEviT1_",
    "_ZN2at6native18elementwise_kernelILi128ELi4EZNS0_22gpu_kernel_impl_nocastINS0_13BUnaryFunctorIfffNS0_15binary_internal10Mul"
    "FunctorIfEEEEEEvRNS_18TensorIteratorBaseERKT_EUliE_EEviT1_",
    "_ZN2at6native13reduce_kernelILi512ELi1ENS0_8ReduceOpIfNS0_7MeanOpsIffffEEjfLi4ELi4EEEEEvT1_",
    "_ZN2at6native52_GLOBAL__N__3235d1b4_19_DilatedMaxPool2d_cu_6258b57422max_pool_backward_nchwIffiEEvPKT_PKlT1_S8_S8_S8_S8_S8_"
    "iiiiiiiiPS3_",
    "_ZN2at6native52_GLOBAL__N__3235d1b4_19_DilatedMaxPool2d_cu_6258b57421max_pool_forward_nchwIfiEEvT0_PKT_llliiiiiiiiiiPS4_Pl",
    "_ZN43_GLOBAL__N__f71e7945_10_SoftMax_cu_9f978f6320softmax_warp_forwardIfffLi10ELb1ELb0ELi32EEEvPT0_PKT_iiiPKbib",
    "triton_poi_fused_add_0",
)


class Traffic(ctypes.Structure):
    _fields_ = (("by_block", c_bool), ("by_arguments", c_bool), ("bytes", c_double))


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


@pytest.fixture(scope="module")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    library = tmp_path_factory.mktemp("libraries") / "amounts.so"
    compiler = shutil.which("cc") or "gcc"
    files = [SOURCES / "core" / "kernels.c", SOURCES / "libraries" / "mathematics" / "work_formulas.c"]
    options = ["-std=c11", "-D_GNU_SOURCE", "-fPIC", "-shared", f"-I{SOURCES / 'core'}", "-o", str(library)]
    subprocess.run([compiler, *options, *map(str, files)], check=True)
    loaded = ctypes.CDLL(str(library))
    loaded.kernel_traffic_of.restype = Traffic
    loaded.kernel_traffic_of.argtypes = [c_char_p]
    loaded.kernel_bytes.restype = c_double
    for name in ("gemm", "convolution", "attention_forward", "attention_backward"):
        getattr(loaded, f"{name}_amount").restype = Amount
    return loaded


def work_of(name: str, shapes: list[tuple[int, ...]], values: list[str] | None = None, index: int = 0) -> Work:
    calls = library_calls(Operator(name, shapes, ["float"] * len(shapes), values or []), [])
    assert calls is not None
    return calls[index].work


def amounts(work: Work) -> tuple[float, float, float, float]:
    return work.flops, work.bytes, work.columns, work.depth


def of_library(found: Amount) -> tuple[float, float, float, float]:
    return found.flops, found.bytes, found.columns, found.depth


@pytest.mark.parametrize("name", NAMES)
def test_bytes_of_own_kernels(libraries: ctypes.CDLL, name: str) -> None:
    """The core knows the mangled name, a profiler shows the other one."""
    grid, block = (3, 2, 1), (128, 1, 1)
    traffic = libraries.kernel_traffic_of(name.encode())
    wanted = libraries.kernel_bytes(byref(traffic), (c_uint * 3)(*grid), (c_uint * 3)(*block), None)
    assert kernel_bytes(demangled(name), grid, block) == pytest.approx(wanted)


def test_products(libraries: ctypes.CDLL) -> None:
    shape = Gemm(64, 16, 32, 5, 4, 4, 0, 4, False)
    wanted = of_library(libraries.gemm_amount(byref(shape)))
    assert amounts(work_of("aten::bmm", [(5, 64, 32), (5, 32, 16)])) == wanted


@pytest.mark.parametrize("groups", [1, 8])
def test_convolutions(libraries: ctypes.CDLL, groups: int) -> None:
    sizes = SPATIAL(56, 40), SPATIAL(3, 3), SPATIAL(28, 20)
    wanted = of_library(libraries.convolution_amount(byref(Convolution(2, 8, 64, 128, groups, *sizes, 4, 4, 4))))
    image, filters, result = (8, 64, 56, 40), (128, 64 // groups, 3, 3), (8, 128, 28, 20)
    values = ["", "", "[1, 1]", "[2, 2]", "[1, 1]", str(groups)]
    assert amounts(work_of("aten::cudnn_convolution", [image, filters], values)) == wanted
    for index in (0, 1):
        assert amounts(work_of("aten::convolution_backward", [result, image, filters], index=index)) == wanted


@pytest.mark.parametrize("causal", [False, True])
def test_attention(libraries: ctypes.CDLL, causal: bool) -> None:
    shape = Attention(2, 8, 4, 100, 90, 64, 32, 4, causal)
    tensors = [(2, 8, 100, 64), (2, 4, 90, 64), (2, 4, 90, 32)]
    forward = work_of("aten::_scaled_dot_product_cudnn_attention", tensors, [*[""] * 6, str(causal)])
    assert amounts(forward)[:2] == of_library(libraries.attention_forward_amount(byref(shape)))[:2]
    name, values = "aten::_scaled_dot_product_cudnn_attention_backward", [*[""] * 14, str(causal)]
    backward = work_of(name, [(2, 8, 100, 32), *tensors], values)
    assert amounts(backward)[:2] == of_library(libraries.attention_backward_amount(byref(shape)))[:2]
