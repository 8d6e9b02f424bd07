from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from emulator_runtime.cuda.build import LIBRARIES_VARIABLE, built

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")


def emugpu(*words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != LIBRARIES_VARIABLE} | environ
    command = [sys.executable, "-m", "emugpu", *words]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


def test_a_program_gets_the_settings_and_its_exit_status_is_the_commands(tmp_path: Path) -> None:
    trace = tmp_path / "trace.%p.json"
    options = ["--gpus", "2", "--gpu-type", "T4", "--time", "20us", "--memory", "8GiB", "--trace", str(trace), "--warp"]
    done = emugpu("run", *options, "--", "sh", "-c", "cat $EMUGPU_CUDA_SETTINGS; echo $LD_AUDIT >&2; exit 7")
    assert done.returncode == 7
    lines = done.stdout.splitlines()
    assert lines[0] == "emugpu-cuda 1"
    assert lines.count("gpu_type Tesla-T4") == 2
    assert lines.count(f"memory_bytes {8 * 2**30}") == 2
    assert {"estimator constant", "constant_ns 20000", f"trace {trace}", "warp 1"} <= set(lines)
    assert "libemugpu_redirect.so" in done.stderr


def test_the_trace_of_an_earlier_run_is_removed_before_the_program_starts(tmp_path: Path) -> None:
    trace, target, link = tmp_path / "trace.json", tmp_path / "target", tmp_path / "link"
    for file in (trace, target):
        file.write_text("[\n{}]\n")
    link.symlink_to(target)
    assert emugpu("run", "--gpus", "0", "--trace", str(trace), "--", "ls").returncode == 2
    assert trace.exists(), "the program can't be started: nothing is removed"
    for option in (trace, link):
        assert emugpu("run", "--trace", str(option), "--", "ls").returncode == 0
    assert (trace.exists(), link.is_symlink(), target.read_text()) == (False, True, "")


def test_estimates_are_anchored_to_a_profile_or_a_time() -> None:
    for step, expected in (("resnet50:64", "step_ns 206274000"), ("86ms", "step_ns 86000000")):
        done = emugpu("run", "--gpu-type", "V100", "--anchor-to", step, "--", "sh", "-c", "cat $EMUGPU_CUDA_SETTINGS")
        assert expected in done.stdout.splitlines(), done.stdout + done.stderr


def test_a_kernel_table_is_made_of_a_trace_and_used(tmp_path: Path) -> None:
    trace, table = tmp_path / "trace.json", tmp_path / "table"
    kernel = {"cat": "kernel", "name": "add", "dur": 2.5, "args": {"grid": [1, 1, 1], "block": [32, 1, 1]}}
    trace.write_text(json.dumps({"traceEvents": [kernel]}))
    made = emugpu("cuda", "kernels", str(trace))
    assert made.stdout == "emugpu-kernels 1\n2500\t1,1,1\t32,1,1\tadd\n"
    table.write_text(made.stdout)
    done = emugpu("run", "--kernel-table", str(table), "--", "sh", "-c", "cat $EMUGPU_CUDA_SETTINGS")
    assert f"kernel_table {table}" in done.stdout.splitlines()


def test_a_wrong_kernel_table_is_named_before_the_program_starts(tmp_path: Path) -> None:
    (tmp_path / "table").write_text("emugpu-kernels 1\n5\n")
    done = emugpu("run", "--kernel-table", str(tmp_path / "table"), "--", "echo", "started")
    assert (done.returncode, done.stdout) == (2, "")
    assert f"{tmp_path}/table, line 2: needs a time in nanoseconds" in done.stderr


def test_each_run_has_gpus_of_its_own_unless_a_machine_is_named() -> None:
    show = ("--", "sh", "-c", "grep uuid $EMUGPU_CUDA_SETTINGS")
    own = {emugpu("run", *show).stdout for _ in range(2)}
    same = {emugpu("run", "--machine", "m1", *show).stdout for _ in range(2)}
    assert (len(own), len(same)) == (2, 1)


HOLDS_MEMORY = """
import ctypes, os, subprocess
driver, nvml = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL("libnvidia-ml.so.1")
context, address, handle, memory = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p(), (ctypes.c_uint64 * 3)()
assert driver.cuInit(0) == driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 1) == 0
assert driver.cuCtxSetCurrent(context) == driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(1 << 30)) == 0
name, uuid = ctypes.create_string_buffer(96), ctypes.create_string_buffer(96)
assert nvml.nvmlInit_v2() == nvml.nvmlDeviceGetHandleByIndex_v2(1, ctypes.byref(handle)) == 0
assert nvml.nvmlDeviceGetName(handle, name, 96) == nvml.nvmlDeviceGetUUID(handle, uuid, 96) == 0
assert nvml.nvmlDeviceGetMemoryInfo(handle, memory) == 0
def asked(*words):
    return subprocess.run(["nvidia-smi", *words], capture_output=True, text=True, check=True).stdout
mib = [f"{amount / 2**20:.0f}" for amount in memory]
wanted = ", ".join(["1", name.value.decode(), uuid.value.decode(), mib[0], mib[2]])
form = "--format=csv,noheader,nounits"
assert asked("-i", "1", "--query-gpu=index,name,uuid,memory.total,memory.used", form) == wanted + "\\n"
assert asked("--query-compute-apps=pid,gpu_uuid,used_memory", form) == f"{os.getpid()}, {uuid.value.decode()}, {mib[2]}\\n"
assert asked("-L").count("UUID: GPU-") == 2
print(mib)
"""


def test_programs_of_a_run_have_an_nvidia_smi_that_agrees_with_nvml(tmp_path: Path) -> None:
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\necho a real one\n")
    (tmp_path / "nvidia-smi").chmod(0o755)
    environ = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = emugpu("run", "--gpus", "2", "--memory", "8GiB", "--", sys.executable, "-c", HOLDS_MEMORY, **environ)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("['8192', ")


def test_nvidia_smi_may_be_the_program_of_a_run(tmp_path: Path) -> None:
    environ = {"PATH": f"{tmp_path}", LIBRARIES_VARIABLE: str(built())}
    done = emugpu("run", "--gpu-type", "T4", "--", "nvidia-smi", "--query-gpu=name", "--format=csv,noheader", **environ)
    assert (done.returncode, done.stdout) == (0, "Tesla T4\n")


def test_options_of_the_program_are_its_own() -> None:
    done = emugpu("run", "sh", "-c", "echo $0 $1", "--gpus", "3")
    assert (done.returncode, done.stdout) == (0, "--gpus 3\n")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "needs a program"),
        (["--"], "needs a program"),
        (["--", "nosuchprogram"], "there is no program nosuchprogram"),
        (["--gpus", "0", "--", "ls"], "--gpus: must be from 1 to 64"),
        (["--memory", "8", "--", "ls"], "--memory: must be a size such as 16GiB"),
        (["--memory", "800GiB", "--", "ls"], "--memory: must be at most"),
        (["--time", "soon", "--", "ls"], "--time: must be roofline, constant or a time such as 20us"),
        (["--gpu-type", "X99", "--", "ls"], "--gpu-type: unknown GPU type 'X99'"),
        (["--anchor-to", "resnet50", "--", "ls"], "--anchor-to: must be a model and a batch size such as resnet50:64"),
        (["--anchor-to", "resnet5:64", "--", "ls"], "unknown model 'resnet5'"),
        (["--anchor-to", "resnet50:6400", "--", "ls"], "not at 6400; choose one of those or name a time such as 86ms"),
        (["--anchor", "0", "--", "ls"], "--anchor: must be a number above 0"),
        (["--anchor", "nan", "--", "ls"], "--anchor: must be a number above 0"),
        (["--trace", "nowhere/trace.json", "--", "ls"], "--trace: there is no folder nowhere"),
        (["--anchor-to", "resnet50:64", "--gpu-type", "H100", "--", "ls"], "resnet50 has no profile on"),
        (["--anchor-to", "0ms", "--", "ls"], "--anchor-to: a step takes longer than 0"),
        (["--kernel-table", "/nothing", "--", "ls"], "/nothing"),
        (["cuda", "kernels", "/nothing"], "there is no program cuda"),
    ],
)
def test_wrong_options_are_one_line(words: list[str], message: str) -> None:
    done = emugpu("run", *words)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_libraries_are_built_into_a_directory_that_run_then_uses(tmp_path: Path) -> None:
    done = emugpu("cuda", "build", "--into", str(tmp_path))
    assert done.stdout == f"{tmp_path}\n"
    shown = emugpu("run", "--", "printenv", "LD_AUDIT", **{LIBRARIES_VARIABLE: str(tmp_path)})
    assert shown.stdout == f"{tmp_path}/libemugpu_redirect.so\n"


def test_a_compiler_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    done = emugpu("cuda", "build", "--into", str(tmp_path), "--compiler", "nosuchcompiler")
    assert done.returncode == 2
    assert "no C compiler (nosuchcompiler)" in done.stderr


@pytest.fixture
def framework(tmp_path: Path) -> Path:
    (tmp_path / "pynvml.py").write_text(
        '_nvmlGetFunctionPointer("nvmlInit_v2")\n_nvmlGetFunctionPointer("nvmlOfTomorrow")\n'
    )
    return tmp_path


def test_a_scan_counts_names_what_is_unknown_and_fails_then(framework: Path) -> None:
    done = emugpu("cuda", "scan", str(framework))
    assert done.returncode == 1
    row = next(line.split() for line in done.stdout.splitlines() if line.startswith("libnvidia-ml.so.1"))
    assert (row[1], row[-1]) == ("2", "1")
    assert "libnvidia-ml.so.1 nvmlOfTomorrow: pynvml.py" in done.stdout


def test_a_scan_in_json_has_every_function(framework: Path) -> None:
    done = emugpu("cuda", "scan", str(framework), "--json")
    found = {row["function"]: row["support"] for row in json.loads(done.stdout)["functions"]}
    assert set(found) == {"nvmlInit_v2", "nvmlOfTomorrow"}
    assert found["nvmlOfTomorrow"] == "unknown"


def test_a_folder_that_wants_nothing_is_fine(tmp_path: Path) -> None:
    (tmp_path / "pynvml.py").write_text("")
    done = emugpu("cuda", "scan", str(tmp_path))
    assert done.returncode == 0
    assert "none of 1 files wants anything" in done.stdout


def test_a_file_with_a_linked_cuda_runtime_fails_but_not_a_folder_that_has_other_files(tmp_path: Path) -> None:
    text = "CUDA driver version is insufficient for CUDA runtime version"
    (tmp_path / "source.c").write_text(f'const char *const texts[] = {{"", "{text}"}};')
    subprocess.run(["cc", "-shared", "-fPIC", "source.c", "-o", "one.so"], cwd=tmp_path, check=True)
    done = emugpu("cuda", "scan", str(tmp_path / "one.so"))
    assert done.returncode == 1
    assert done.stdout.startswith("Out of reach, because the CUDA runtime is linked into it")
    (tmp_path / "pynvml.py").write_text('_nvmlGetFunctionPointer("nvmlInit_v2")\n')
    done = emugpu("cuda", "scan", str(tmp_path))
    assert done.returncode == 0
    assert "\n\nOut of reach" in done.stdout
