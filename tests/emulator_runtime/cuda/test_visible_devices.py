"""CUDA_VISIBLE_DEVICES: which devices a program has, and that what it does concerns the ones that are meant."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from emulator_runtime.prediction.reading import read_process
from emulator_runtime.prediction.records import Copy, Launch, Memory
from tests.support.nccl import results, start_ranks

RunCore = Callable[..., str]

UUIDS = (
    "GPU-aaaa0000-0000-0000-0000-000000000001",
    "GPU-aaab0000-0000-0000-0000-000000000002",
    "GPU-bbbb0000-0000-0000-0000-000000000003",
    "MIG-cccc0000-0000-0000-0000-000000000004",
)
BEGIN = """
import os
def visible():
    core.library.emu_device.restype = ctypes.c_void_p
    found = []
    for index in range(core.library.emu_device_count()):
        found.append(ctypes.string_at(core.library.emu_device(index) + 8 + 128, 48).split(b"\\0")[0].decode())
    return found
"""


def machine(**process: object) -> str:
    lines = ["emugpu-cuda 1", "estimator constant", "constant_ns 1000000", *(f"{k} {v}" for k, v in process.items())]
    for index, uuid in enumerate(UUIDS):
        lines += [f"device {index}", f"uuid {uuid}", f"memory_bytes {(index + 1) << 30}", "host_link_bytes_per_s 1e10"]
    return "\n".join(lines) + "\n"


@pytest.mark.parametrize(
    ("value", "chosen"),
    [
        ("2,0", [2, 0]),
        ("3", [3]),
        (" 1 , 2", [1, 2]),
        ("0,2,-1,1", [0, 2]),
        ("1,4,0", [1]),
        ("0,,1", [0]),
        ("1gpu2,2ampere", [1, 2]),
        ("99999999999999999999", []),
        ("", []),
        ("-1", []),
        ("NoDevFiles", []),
        ("0,1,0", []),
        (f"{UUIDS[2]},{UUIDS[0]}", [2, 0]),
        ("GPU-b, GPU-aaab", [2, 1]),
        ("GPU-bbbb,GPU-a,GPU-aaab", [2]),  # the second may be either
        ("GPU-bbbb,GPU-bbbb0000", []),
        ("GPU-bbbb,1", [2]),
        (f"{UUIDS[0]}0", []),
        ("MIG-cccc", [3]),
    ],
)
def test_the_list_chooses_devices_and_their_order(
    run_core: RunCore, monkeypatch: pytest.MonkeyPatch, value: str, chosen: list[int]
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
    assert run_core(BEGIN + "print(visible())", text=machine()).strip() == str([UUIDS[i] for i in chosen])


def test_without_a_visible_device_nothing_can_be_used(run_core: RunCore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    run_core(
        "assert core.library.emu_start() == 100 and core.library.emu_device(0) == 0\n"
        "assert core.library.emu_machine_device_count() == 4",
        text=machine(),
    )


def test_nvml_shows_what_a_program_uses_on_the_device_that_is_meant(
    run_core: RunCore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,1")
    printed = run_core(
        """
        import os
        nvml = ctypes.CDLL(os.path.join(os.path.dirname(os.environ["CORE"]), "libnvidia-ml.so.1"))
        core.allocate(1 << 20)
        core.launch(core.default_stream(0), 200)
        core.synchronize(core.default_stream(0))
        assert nvml.nvmlInit_v2() == 0
        for index in range(4):
            handle, memory, load = c_void_p(), (ctypes.c_uint64 * 3)(), (ctypes.c_uint * 2)()
            assert nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)) == 0
            assert nvml.nvmlDeviceGetMemoryInfo(handle, memory) == 0
            assert nvml.nvmlDeviceGetUtilizationRates(handle, load) == 0
            print(memory[0] >> 30, memory[2] >> 20, load[0] > 0)
        """,
        text=machine(),
    )
    assert printed.splitlines() == ["1 0 False", "2 0 False", "3 1 True", "4 0 False"]


def test_traces_and_records_number_devices_as_the_machine_does(
    run_core: RunCore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,1")
    code = """
        memory = core.allocate(1 << 20)
        core.launch(core.default_stream(0))
        core.write(memory, b"12345678")
        core.launch(core.default_stream(1))
        core.synchronize(core.default_stream(1))
    """
    run_core(code, text=machine(trace=tmp_path / "trace.json"))
    work = [event["pid"] for event in json.loads((tmp_path / "trace.json").read_text()) if event]
    assert work == [2, 2, 1]
    run_core(code, text=machine(record=tmp_path / "records"))
    process = read_process(tmp_path / "records")
    assert len(process.devices) == 4
    assert [record.device for record in process.records if isinstance(record, Launch | Copy)] == [2, 2, 1]
    assert [record.device for record in process.records if isinstance(record, Memory)][:2] == [2, 2]


@pytest.mark.processes
def test_ranks_that_see_one_device_each_form_a_communicator(tmp_path: Path) -> None:
    program = """
library, comm = main_rank()
buffer = comm.buffer(INT32, [1])
comm.call("ncclAllReduce", buffer, buffer, 1, INT32, SUM)
report(sum=buffer.values(), device=comm.fact("ncclCommCuDevice"))
"""
    ranks = start_ranks(program, 2, tmp_path, of_rank=lambda rank: {"DEVICE": "0", "CUDA_VISIBLE_DEVICES": str(rank)})
    assert results(ranks) == [{"sum": [2], "device": 0}] * 2
