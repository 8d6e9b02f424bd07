"""cuFFT, cuSOLVER, cuSPARSE, NVRTC, CUPTI: each test is a program of its own, as a process reads its settings once."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from emulator_runtime.cuda.build import built
from emulator_runtime.cuda.launch import ProcessSettings, devices_of, settings_text

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")

PRELUDE = """
import ctypes, json, random, sys
from ctypes import byref, c_char_p, c_double, c_int, c_longlong, c_size_t, c_void_p
LIBRARIES = sys.argv[1]
def library(name): return ctypes.CDLL(f"{LIBRARIES}/{name}")
core = library("libemugpu_core.so")
def memory(size):
    address = c_void_p()
    assert core.emu_memory_allocate(0, 2, c_size_t(size), byref(address)) == 0
    return address
def free_bytes():
    free, total = c_size_t(), c_size_t()
    core.emu_memory_usage(0, byref(free), byref(total))
    return free.value
core.emu_now_ns.restype = c_longlong
def elapsed_us():
    core.emu_device_synchronize(0)
    return core.emu_now_ns() / 1000
"""


@pytest.fixture
def program(tmp_path: Path) -> Callable[[str], str]:
    """Runs code with ctypes, the core and its memory at hand, on one A100 where waits cost no time; what it prints."""

    def run(code: str) -> str:
        file = tmp_path / "settings"
        file.write_text(settings_text(ProcessSettings(warp=True), devices_of("A100", 1, "node")), encoding="utf-8")
        command = [sys.executable, "-c", PRELUDE + textwrap.dedent(code), str(built())]
        environment = os.environ | {"EMUGPU_CUDA_SETTINGS": str(file)}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=100)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


FFT = """
fft = library("libcufft.so.12")
C_32F, R_32F, C_64F = 4, 0, 5
def make(plan, sizes, kind=C_32F, out=None, batch=1, execution=None):
    size = c_size_t(77)
    given = (c_longlong * len(sizes))(*sizes)
    layout = (None, c_longlong(1), c_longlong(0))
    status = fft.cufftXtMakePlanMany(plan, len(sizes), given, *layout, kind,
        *layout, kind if out is None else out, c_longlong(batch), byref(size), execution or C_32F)
    return status, size.value
def create():
    plan = c_int()
    assert fft.cufftCreate(byref(plan)) == 0
    return plan.value
"""


def test_a_transform_takes_time_that_grows_with_its_size(program: Callable[[str], str]) -> None:
    code = """
    data = memory(1 << 30)
    def time_us(plan):
        begin = elapsed_us()
        assert fft.cufftXtExec(plan, data, data, -1) == 0
        return elapsed_us() - begin
    times = []
    for size in (1024, 1 << 24, 1 << 26):
        plan = create()
        assert make(plan, [size])[0] == 0
        times.append(min(time_us(plan) for _ in range(5)))  # a busy host only adds to it
    print(json.dumps(times))
    """
    small, large, largest = eval(program(FFT + textwrap.dedent(code)))
    assert 2 < small < 1000
    assert 3 < largest / large < 5


def test_work_areas_are_memory_of_the_device_unless_the_program_has_its_own(program: Callable[[str], str]) -> None:
    code = """
    memory(512)
    before = free_bytes()
    plan = create()
    status, size = make(plan, [1 << 20, 4])
    print(status, size, before - free_bytes() >= size)
    print(fft.cufftDestroy(plan), free_bytes() == before)
    plan = create()
    assert fft.cufftSetAutoAllocation(plan, 0) == 0
    status, size = make(plan, [1 << 20, 4])
    print(status, size, free_bytes() == before, fft.cufftSetWorkArea(plan, None), fft.cufftSetStream(plan, None))
    """
    size = 8 * 4 * (1 << 20)
    assert program(FFT + textwrap.dedent(code)).splitlines() == [f"0 {size} True", "0 True", f"0 {size} True 0 0"]


def test_wrong_transforms_are_refused(program: Callable[[str], str]) -> None:
    code = """
    data, plan = memory(4096), create()
    print([
        fft.cufftXtExec(plan, data, data, -1),
        fft.cufftCreate(None),
        fft.cufftDestroy(0),
        fft.cufftDestroy(-5),
        fft.cufftDestroy(70000),
    ])
    print([
        make(plan, [0])[0],
        make(plan, [])[0],
        make(plan, [1] * 4)[0],
        make(plan, [8], kind=99)[0],
        make(plan, [8], batch=0)[0],
    ])
    print([make(plan, [8], kind=R_32F)[0], make(plan, [8], kind=C_64F)[0], make(plan + 1, [8])[0], make(plan, [1 << 60])[0]])
    print([make(plan, [8])[0], make(plan, [8])[0], fft.cufftXtExec(plan, None, data, -1), fft.cufftXtExec(plan, data, data, 0)])
    """
    assert program(FFT + textwrap.dedent(code)).splitlines() == [
        "[1, 4, 1, 1, 1]",
        "[8, 4, 4, 3, 8]",
        "[3, 3, 1, 2]",
        "[0, 1, 4, 4]",
    ]


SOLVER = """
solver = library("libcusolver.so.12")
handle = c_void_p()
assert solver.cusolverDnCreate(byref(handle)) == 0
matrix, info, size = memory(1 << 20), memory(4096), c_int(-1)
"""


def test_a_factorisation_says_its_work_area_takes_time_and_sets_the_error_number(program: Callable[[str], str]) -> None:
    code = """
    print(solver.cusolverDnSpotrf_bufferSize(handle, 0, 100, matrix, 100, byref(size)), size.value)
    assert core.emu_set(core_stream(), info, 7, 4, 1) == 0
    begin = elapsed_us()
    print(solver.cusolverDnSpotrf(handle, 0, 4000, matrix, 4000, matrix, size, info))
    print(elapsed_us() - begin > 1000)
    value = c_int(-1)
    assert core.emu_copy(core_stream(), byref(value), info, c_size_t(4), True) == 0
    print(value.value)
    """
    stream = "core.emu_stream_of.restype = c_void_p\ndef core_stream(): return c_void_p(core.emu_stream_of(None))\n"
    assert program(SOLVER + stream + textwrap.dedent(code)).splitlines() == ["0 6400", "0", "True", "0"]


def test_wrong_problems_are_refused(program: Callable[[str], str]) -> None:
    code = """
    wrong = c_void_p(1234)
    print([solver.cusolverDnCreate(None), solver.cusolverDnDestroy(wrong), solver.cusolverDnSetStream(None, None)])
    print([
        solver.cusolverDnSpotrf(wrong, 0, 4, matrix, 4, matrix, 4, info),
        solver.cusolverDnSpotrf(handle, 0, -1, matrix, 4, matrix, 4, info),
    ])
    print([
        solver.cusolverDnSpotrf(handle, 0, 4, matrix, 3, matrix, 4, info),
        solver.cusolverDnSpotrf(handle, 0, 4, matrix, 4, matrix, 4, wrong),
    ])
    print([
        solver.cusolverDnSgeqrf_bufferSize(handle, 4, 4, matrix, 4, None),
        solver.cusolverDnSgeqrf_bufferSize(handle, 9, 1 << 30, matrix, 9, byref(size)),
    ])
    print([solver.cusolverDnSgesvdj_bufferSize(handle, 0, 0, 4, 4, matrix, 4, None, None, 4, None, 4, byref(size), wrong)])
    print([solver.cusolverDnDestroyParams(handle), solver.cusolverDnDestroy(handle), solver.cusolverDnDestroy(handle)])
    """
    assert program(SOLVER + textwrap.dedent(code)).splitlines() == [
        "[3, 1, 1]",
        "[1, 3]",
        "[3, 3]",
        "[3, 3]",
        "[3]",
        "[3, 0, 1]",
    ]


def test_products_of_sparse_matrices_are_described_checked_and_take_time(program: Callable[[str], str]) -> None:
    code = """
    sparse = library("libcusparse.so.12")
    sparse.cusparseGetErrorString.restype = c_char_p
    handle, a, b, c, size = c_void_p(), c_void_p(), c_void_p(), c_void_p(), c_size_t(7)
    assert sparse.cusparseCreate(byref(handle)) == 0
    long = c_longlong
    assert sparse.cusparseCreateCsr(byref(a), long(1000), long(500), long(1 << 20), None, None, None, 2, 2, 0, 0) == 0
    assert sparse.cusparseCreateDnMat(byref(b), long(500), long(64), long(500), None, 0, 1) == 0
    assert sparse.cusparseCreateDnMat(byref(c), long(1000), long(64), long(1000), None, 0, 1) == 0
    print(sparse.cusparseSpMM_bufferSize(handle, 0, 0, None, a, b, None, c, 0, 0, byref(size)), size.value)
    begin = elapsed_us()
    print(sparse.cusparseSpMM(handle, 0, 0, None, a, b, None, c, 0, 0, None), elapsed_us() - begin > 100)
    print([
        sparse.cusparseSpMM(handle, 1, 0, None, a, b, None, c, 0, 0, None),
        sparse.cusparseSpMM(None, 0, 0, None, a, b, None, c, 0, 0, None),
    ])
    print([
        sparse.cusparseSpMM(handle, 0, 0, None, b, a, None, c, 0, 0, None),
        sparse.cusparseCreateDnVec(byref(c), long(-1), None, 0),
    ])
    print([
        sparse.cusparseCreateDnVec(byref(b), long(4), None, 99),
        sparse.cusparseCreateCsr(byref(b), long(1), long(1), long(1), None, None, None, 9, 2, 0, 0),
        sparse.cusparseCreateDnMat(byref(b), long(1 << 32), long(1 << 31), long(1 << 32), None, 0, 1),
    ])
    print([
        sparse.cusparseDestroySpMat(a),
        sparse.cusparseDestroySpMat(a),
        sparse.cusparseDestroy(handle),
        sparse.cusparseDestroy(handle),
    ])
    print(sparse.cusparseGetErrorString(10).decode(), sparse.cusparseGetErrorString(-1).decode())
    """
    assert program(code).splitlines() == [
        "0 0", "0 True", "[3, 1]", "[3, 3]", "[10, 3, 0]", "[0, 3, 0, 1]", "not supported unknown error",
    ]  # fmt: skip


NVRTC = """
nvrtc, driver = library("libnvrtc.so.13"), library("libcuda.so.1")
def compiled(source, *expressions):
    program, size = c_void_p(), c_size_t()
    assert nvrtc.nvrtcCreateProgram(byref(program), source, b"one.cu", 0, None, None) == 0
    for expression in expressions: assert nvrtc.nvrtcAddNameExpression(program, expression) == 0
    assert nvrtc.nvrtcCompileProgram(program, 0, None) == 0
    assert nvrtc.nvrtcGetPTXSize(program, byref(size)) == 0
    image = ctypes.create_string_buffer(size.value)
    assert nvrtc.nvrtcGetPTX(program, image) == 0
    return program, image
"""


def test_kernels_of_a_source_can_be_loaded_by_name(program: Callable[[str], str]) -> None:
    code = r"""
    source = b'''
    extern "C" __global__ void __launch_bounds__(256, 2) first(float *a) {}
    extern "C" __launch_bounds__(512) __global__
    void second (int n) {}
    template<typename T> __global__ void third(T *a) {}
    '''
    program, image = compiled(source, b"&third<float>")
    name, module, function, context, device = c_char_p(), c_void_p(), c_void_p(), c_void_p(), c_int()
    assert nvrtc.nvrtcGetLoweredName(program, b"&third<float>", byref(name)) == 0
    assert driver.cuInit(0) == 0
    assert driver.cuDevicePrimaryCtxRetain(byref(context), 0) == 0
    assert driver.cuCtxSetCurrent(context) == 0
    assert driver.cuModuleLoadData(byref(module), image) == 0
    print([driver.cuModuleGetFunction(byref(function), module, each) for each in (b"first", b"second", name.value, b"fourth")])
    assert nvrtc.nvrtcDestroyProgram(byref(program)) == 0
    print(image.value.decode().splitlines()[1])
    """
    assert program(NVRTC + textwrap.dedent(code)).splitlines() == ["[0, 0, 0, 500]", ".version 0.0"]


@pytest.mark.parametrize(
    "source",
    ["", "__global__", "__global__(", "__global__ void f", "__global__ ((((", "x __global__ ;("],
)
def test_odd_sources_have_no_kernels(program: Callable[[str], str], source: str) -> None:
    assert program(NVRTC + f"print(compiled({source.encode()!r})[1].value.count(b'.entry'))") == "0\n"


def test_wrong_programs_are_refused(program: Callable[[str], str]) -> None:
    code = """
    nvrtc.nvrtcGetErrorString.restype = c_char_p
    program, name, wrong, size = c_void_p(), c_char_p(), c_void_p(99), c_size_t()
    print([
        nvrtc.nvrtcCreateProgram(None, b"", None, 0, None, None),
        nvrtc.nvrtcCreateProgram(byref(program), None, None, 0, None, None),
    ])
    assert nvrtc.nvrtcCreateProgram(byref(program), b"", None, 0, None, None) == 0
    print([
        nvrtc.nvrtcGetPTXSize(program, byref(size)),
        nvrtc.nvrtcGetLoweredName(program, b"f", byref(name)),
        nvrtc.nvrtcCompileProgram(wrong, 0, None),
    ])
    print([
        nvrtc.nvrtcCompileProgram(program, -1, None),
        nvrtc.nvrtcCompileProgram(program, 0, None),
        nvrtc.nvrtcAddNameExpression(program, b"f"),
    ])
    print([
        nvrtc.nvrtcGetLoweredName(program, b"f", byref(name)),
        nvrtc.nvrtcDestroyProgram(byref(wrong)),
        nvrtc.nvrtcDestroyProgram(None),
    ])
    print(nvrtc.nvrtcGetErrorString(6).decode(), nvrtc.nvrtcGetErrorString(99).decode())
    """
    assert program(NVRTC + textwrap.dedent(code)).splitlines() == [
        "[3, 3]", "[4, 9, 4]", "[3, 0, 8]", "[10, 4, 4]", "NVRTC_ERROR_COMPILATION NVRTC_ERROR unknown",
    ]  # fmt: skip


def test_a_profiler_is_told_why_it_sees_nothing(program: Callable[[str], str]) -> None:
    code = """
    cupti, text = library("libcupti.so.13"), c_char_p()
    print(cupti.cuptiGetResultString(27, byref(text)), "emugpu run --trace" in text.value.decode())
    print(cupti.cuptiGetResultString(0, None))
    """
    assert program(code) == "0 True\n1\n"


@pytest.mark.parametrize("soname", ["libcufft.so.12", "libcusolver.so.12", "libcusparse.so.12", "libnvrtc.so.13"])
def test_random_calls_are_answered(program: Callable[[str], str], soname: str) -> None:
    """Outputs are NULL or memory; all other arguments are anything, as long as they are no pointers that would be read."""
    code = f"""
    functions = json.load(open(LIBRARIES + "/emulated.json"))[{soname!r}]
    called, chance = library({soname!r}), random.Random("calls")
    text = ctypes.create_string_buffer(b"text", 1 << 16)
    known = [c_void_p(None), c_void_p(ctypes.addressof(text)), c_longlong(0), c_longlong(-1), c_longlong(3), c_longlong(1 << 40)]
    statuses = set()
    for _ in range(20000):
        name = chance.choice(functions)
        if "String" in name: continue
        arguments = [chance.choice(known[:2]) for _ in range(24)]
        statuses.add(getattr(called, name)(*arguments))
    print(len(statuses) > 1)
    """
    assert program(code) == "True\n"
