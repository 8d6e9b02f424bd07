"""Measured times of kernels: from a profiler's trace to the core."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from emulator_runtime.cuda.kernel_times import Launch, check_table, read_trace, table_text
from emulator_runtime.domain.errors import InputError

ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >(int)"
MANGLED = "_Z3addIfEvPT_i"
DEMANGLED = "void add<float>(float*, int)"


def kernel(name: str = ADD, dur: object = 4.5, **args: object) -> dict[str, object]:
    return {
        "ph": "X",
        "cat": "kernel",
        "name": name,
        "dur": dur,
        "args": {"grid": [2, 1, 1], "block": [512, 1, 1]} | args,
    }


def trace(tmp_path: Path, *events: object) -> Path:
    path = tmp_path / "trace.json"
    path.write_text(
        json.dumps({"schemaVersion": 1, "traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "aten::add"}, *events]})
    )
    return path


def test_a_trace_becomes_a_table_of_medians(tmp_path: Path) -> None:
    path = trace(tmp_path, kernel(), kernel(dur=5.5), kernel(dur=50), kernel(dur=0), kernel(grid=[1, 1, 1], dur=2))
    assert table_text(read_trace(path)).splitlines() == [
        "emugpu-kernels 1",
        f"2000\t1,1,1\t512,1,1\t{ADD}",
        f"5500\t2,1,1\t512,1,1\t{ADD}",
    ]


def test_a_gzipped_trace_is_read(tmp_path: Path) -> None:
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(trace(tmp_path, kernel()).read_bytes()))
    assert list(read_trace(path)) == [(Launch(ADD, (2, 1, 1), (512, 1, 1)), 4500)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not a Chrome trace in JSON"),
        ("{}", "it has no traceEvents"),
        ('{"traceEvents": []}', "has no kernels; record it with activities="),
        (json.dumps([kernel(dur="long")]), r"traceEvents\[0\].dur: must be a duration"),
        (json.dumps([kernel(name="")]), r"traceEvents\[0\].name: must be the kernel's name"),
        (
            json.dumps([kernel(grid=[1, 2])]),
            r"traceEvents\[0\].args.grid: must be three whole numbers above 0, not \[1, 2\]",
        ),
        (json.dumps([{**kernel(), "args": None}]), r"traceEvents\[0\].args: must have"),
    ],
)
def test_what_is_no_such_trace_is_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "trace.json"
    path.write_text(text)
    with pytest.raises(InputError, match=message):
        list(read_trace(path))


def test_a_damaged_gzip_is_named(tmp_path: Path) -> None:
    path = tmp_path / "trace.json.gz"
    path.write_bytes(gzip.compress(b"{}")[:-4])
    with pytest.raises(InputError, match="is not a Chrome trace"):
        list(read_trace(path))


WRONG = [
    ("", "", 1),
    ("name,time\n", "", 1),
    ("emugpu-kernels 1\n5000 1,1,1 1,1,1 name\n", "with tabs between them", 2),
    ("emugpu-kernels 1\n# comment\n0\t1,1,1\t1,1,1\tname\n", "number of nanoseconds above 0", 3),
    ("emugpu-kernels 1\nnan\t1,1,1\t1,1,1\tname\n", "number of nanoseconds above 0", 2),
    ("emugpu-kernels 1\n5us\t1,1,1\t1,1,1\tname\n", "number of nanoseconds above 0", 2),
    ("emugpu-kernels 1\n5\t1,1\t1,1,1\tname\n", "three numbers above 0", 2),
    ("emugpu-kernels 1\n5\t1,1,1\t1,0,1\tname\n", "three numbers above 0", 2),
    ("emugpu-kernels 1\n5\t1,1,1\t1,1,1\t \n", "the name is empty", 2),
]


@pytest.mark.parametrize(("text", "message", "line"), WRONG)
def test_a_wrong_table_is_named_by_its_line(tmp_path: Path, text: str, message: str, line: int) -> None:
    path = tmp_path / "table"
    path.write_text(text)
    with pytest.raises(InputError, match=f"table, line {line}.*{message}"):
        check_table(path)


@pytest.mark.parametrize(("text", "message", "line"), WRONG[1:])
def test_the_core_refuses_a_wrong_table(
    run_core: Callable[..., str], tmp_path: Path, text: str, message: str, line: int
) -> None:
    path = tmp_path / "table"
    path.write_text(text)
    output = run_core("assert core.started == 3; assert core.library.emu_device_count() == 0", kernel_table=path)
    assert f"{path}, line {line}: " in output
    assert message in output


def test_a_table_that_is_not_there_is_named(run_core: Callable[..., str], tmp_path: Path) -> None:
    assert "can't read the kernel table" in run_core("assert core.started == 3", kernel_table=tmp_path / "nothing")
    with pytest.raises(OSError, match="nothing"):
        check_table(tmp_path / "nothing")


LAUNCHES = f"""
stream = core.default_stream()
def us(name, blocks, threads):
    kernel = c_void_p(core.library.emu_kernel_named(name))
    begin, open_gate = core.gate(stream)
    core.call("emu_launch_kernel", stream, kernel, (c_uint * 3)(blocks, 1, 1), (c_uint * 3)(threads, 1, 1), None)
    end = core.record(stream)
    open_gate()
    core.synchronize(stream)
    return round(core.elapsed_ms(begin, end) * 1000, 2)
ADD = {MANGLED.encode()!r}
"""


def table(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path / "table"
    path.write_text("\n".join(["emugpu-kernels 1", *lines]) + "\n")
    assert check_table(path) > 0
    return path


def test_a_kernel_takes_its_measured_time(run_core: Callable[..., str], tmp_path: Path) -> None:
    path = table(
        tmp_path,
        f"20000\t2,1,1\t512,1,1\t{DEMANGLED}",
        f"90000\t20,1,1\t512,1,1\t{DEMANGLED.replace(' ', '')}",
        "7000\t1,1,1\t32,1,1\ttriton_poi_fused_0",
    )
    run_core(
        LAUNCHES
        + """
assert us(ADD, 2, 512) == 20, us(ADD, 2, 512)
assert us(ADD, 20, 512) == 90
assert us(b"triton_poi_fused_0", 1, 32) == 7
assert us(b"unknown", 1, 32) == 1000
        """,
        kernel_table=path,
        warp=1,
    )


def test_of_another_grid_the_nearest_one_is_scaled(run_core: Callable[..., str], tmp_path: Path) -> None:
    path = table(tmp_path, f"25000\t2,1,1\t512,1,1\t{DEMANGLED}", f"905000\t100,1,1\t512,1,1\t{DEMANGLED}")
    run_core(
        LAUNCHES
        + """
assert us(ADD, 4, 512) == 45, "5 us for the launch, and twice the other 20"
assert us(ADD, 4, 256) == 25
assert us(ADD, 1, 512) == 15
assert us(ADD, 50, 512) == 455
        """,
        kernel_table=path,
        device={"kernel_ns": 5000},
        warp=1,
    )


def test_measured_times_are_not_anchored(run_core: Callable[..., str], tmp_path: Path) -> None:
    path = table(tmp_path, f"20000\t2,1,1\t512,1,1\t{DEMANGLED}")
    run_core(
        LAUNCHES + 'assert us(ADD, 2, 512) == 20; assert us(b"unknown", 1, 32) == 3000',
        kernel_table=path,
        anchor=3,
        warp=1,
    )


def test_a_variable_names_the_table_of_a_pod(
    run_core: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMUGPU_CUDA_KERNEL_TABLE", str(table(tmp_path, f"20000\t2,1,1\t512,1,1\t{DEMANGLED}")))
    run_core(LAUNCHES + "assert us(ADD, 2, 512) == 20", warp=1)
