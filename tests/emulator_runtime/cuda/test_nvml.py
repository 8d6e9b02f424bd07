"""The emulated NVML, by ctypes: identity, use of devices by several processes, a manager's telemetry, wrong arguments."""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from emulator_runtime.cuda.build import built
from tests.support.nccl import settings_text

pytestmark = pytest.mark.processes

_ROOT = Path(__file__).parents[3]
_SUCCESS, _UNINITIALIZED, _INVALID, _NOT_SUPPORTED, _NOT_FOUND, _INSUFFICIENT, _NO_DRIVER = 0, 1, 2, 3, 6, 7, 9
_BEGIN = """
import ctypes, json, os, sys, time
from emulator_runtime.cuda.build import built
core = ctypes.CDLL(str(built() / "libemugpu_core.so"), mode=ctypes.RTLD_GLOBAL)
nvml = ctypes.CDLL(str(built() / "libnvidia-ml.so.1"))
class Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_uint64), ("free", ctypes.c_uint64), ("used", ctypes.c_uint64))
class Memory2(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint), *((n, ctypes.c_uint64) for n in ("total", "reserved", "free", "used")))
class Utilization(ctypes.Structure):
    _fields_ = (("gpu", ctypes.c_uint), ("memory", ctypes.c_uint))
class Process(ctypes.Structure):
    _fields_ = (("pid", ctypes.c_uint), ("used", ctypes.c_uint64), ("gpu", ctypes.c_uint), ("compute", ctypes.c_uint))
class Pci(ctypes.Structure):
    _fields_ = (
        ("short", ctypes.c_char * 16),
        *((n, ctypes.c_uint) for n in ("domain", "bus", "device", "id", "sub")),
        ("long", ctypes.c_char * 32),
    )
def device(index=0):
    handle = ctypes.c_void_p()
    assert nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)) == 0
    return handle
def text(function, *arguments):
    room = ctypes.create_string_buffer(96)
    status = getattr(nvml, function)(*arguments, room, 96)
    return room.value.decode() if status == 0 else status
def number(function, *arguments):
    value = ctypes.c_uint(0)
    status = getattr(nvml, function)(*arguments, ctypes.byref(value))
    return value.value if status == 0 else -status
def memory(handle):
    found = Memory()
    assert nvml.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(found)) == 0
    return [found.total, found.free, found.used]
def utilization(handle):
    found = Utilization()
    assert nvml.nvmlDeviceGetUtilizationRates(handle, ctypes.byref(found)) == 0
    return found.gpu
def processes(handle):
    count = ctypes.c_uint(0)
    status = nvml.nvmlDeviceGetComputeRunningProcesses_v3(handle, ctypes.byref(count), None)
    if status == 0:
        return {}
    assert status == 7
    found = (Process * count.value)()
    assert nvml.nvmlDeviceGetComputeRunningProcesses_v3(handle, ctypes.byref(count), found) == 0
    return {each.pid: each.used for each in found}
def allocate(size, index=0):
    address = ctypes.c_void_p()
    core.emu_memory_allocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_size_t, ctypes.c_void_p]
    return core.emu_memory_allocate(index, 2, size, ctypes.byref(address))
def report(**values):
    print(json.dumps(values), flush=True)
"""
_CONTEXT = 400 << 20
_TOTAL = 40 << 30


@pytest.fixture(name="environment")
def environment_of_two_devices(tmp_path: Path) -> dict[str, str]:
    """Two devices that no other test has, and pages of their own."""
    settings = tmp_path / "settings"
    settings.write_text(settings_text(2), encoding="ascii")
    return {
        **os.environ,
        "PYTHONPATH": str(_ROOT),
        "EMUGPU_CUDA_LIBRARIES": str(built()),
        "EMUGPU_CUDA_SETTINGS": str(settings),
        "EMUGPU_CUDA_STATISTICS": str(tmp_path),
    }


def _start(program: str, environment: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", _BEGIN + program],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=_ROOT,
    )


def _run(program: str, environment: dict[str, str]) -> dict[str, Any]:
    output, errors = _start(program, environment).communicate(timeout=60)
    assert output, errors
    return dict(json.loads(output.splitlines()[-1]))


def test_identity(environment: dict[str, str]) -> None:
    program = """
assert nvml.nvmlInit_v2() == 0
d, by_uuid, by_pci, pci = device(1), ctypes.c_void_p(), ctypes.c_void_p(), Pci()
uuid = text("nvmlDeviceGetUUID", d)
assert nvml.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(by_uuid)) == 0
assert nvml.nvmlDeviceGetPciInfo_v3(d, ctypes.byref(pci)) == 0
assert nvml.nvmlDeviceGetHandleByPciBusId_v2(pci.long, ctypes.byref(by_pci)) == 0
major, minor = ctypes.c_int(), ctypes.c_int()
assert nvml.nvmlDeviceGetCudaComputeCapability(d, ctypes.byref(major), ctypes.byref(minor)) == 0
mode = ctypes.c_uint(7), ctypes.c_uint(7)
assert nvml.nvmlDeviceGetMigMode(d, ctypes.byref(mode[0]), ctypes.byref(mode[1])) == 0
report(uuid=uuid, same=by_uuid.value == by_pci.value == d.value, name=text("nvmlDeviceGetName", d),
    count=number("nvmlDeviceGetCount_v2"), index=number("nvmlDeviceGetIndex", d), capability=[major.value, minor.value],
    brand=number("nvmlDeviceGetBrand", d), architecture=number("nvmlDeviceGetArchitecture", d),
    cores=number("nvmlDeviceGetNumGpuCores", d), clock=number("nvmlDeviceGetClockInfo", d, 1), mig=mode[0].value,
    driver=text("nvmlSystemGetDriverVersion"), nvml=text("nvmlSystemGetNVMLVersion"),
    cuda=number("nvmlSystemGetCudaDriverVersion_v2"),
    process=os.path.basename(text("nvmlSystemGetProcessName", os.getpid())).startswith("python"))
"""
    assert _run(program, environment) == {
        "uuid": "GPU-00000000-0000-0000-0000-000000000001",
        "same": True,
        "name": "NVIDIA A100-SXM4-40GB",
        "count": 2,
        "index": 1,
        "capability": [8, 0],
        "brand": 14,
        "architecture": 7,
        "cores": 6912,
        "clock": 1410,
        "mig": 0,
        "driver": "595.45.04",
        "nvml": "13.595.45.04",
        "cuda": 13020,
        "process": True,
    }


def test_two_processes_see_each_other_s_memory_and_load(environment: dict[str, str]) -> None:
    """The second one sees what the first one has and does, until it ends; memory is limited for both together."""
    worker = _start(
        """
assert allocate(10 << 30) == 0
core.emu_stream_default.restype = ctypes.c_void_p
core.emu_launch.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
core.emu_stream_synchronize.argtypes = [ctypes.c_void_p]
stream, work = ctypes.c_void_p(core.emu_stream_default(0)), ctypes.create_string_buffer(128)
report(pid=os.getpid())
end_s = time.monotonic() + 20
import select
while not select.select([sys.stdin], [], [], 0)[0] and time.monotonic() < end_s:
    for _ in range(1000):
        assert core.emu_launch(stream, work) == 0
    assert core.emu_stream_synchronize(stream) == 0
    time.sleep(0.005)
""",
        environment,
    )
    assert worker.stdout is not None and worker.stdin is not None
    pid = json.loads(worker.stdout.readline())["pid"]
    watcher = """
assert nvml.nvmlInit() == 0
d = device()
time.sleep(1.5)
load = utilization(d)
seen, found = processes(d), memory(d)
too_much, enough = allocate(30 << 30), allocate(20 << 30)
two = Memory2(version=ctypes.sizeof(Memory2) | 2 << 24)
assert nvml.nvmlDeviceGetMemoryInfo_v2(d, ctypes.byref(two)) == 0
other = memory(device(1))
report(load=load, processes=seen, memory=found, own=processes(d)[os.getpid()], too_much=too_much, enough=enough,
    used=two.used, other=other, idle=utilization(device(1)))
"""
    found = _run(watcher, environment)
    worker.communicate("end", timeout=60)
    used = (10 << 30) + _CONTEXT
    assert 25 <= found.pop("load") <= 75
    assert found == {
        "processes": {str(pid): used},
        "memory": [_TOTAL, _TOTAL - used, used],
        "own": (20 << 30) + _CONTEXT,
        "too_much": 2,
        "enough": 0,
        "used": used + (20 << 30) + _CONTEXT,
        "other": [_TOTAL, _TOTAL, 0],
        "idle": 0,
    }
    after = _run(
        "assert nvml.nvmlInit() == 0\nreport(processes=processes(device()), memory=memory(device()))", environment
    )
    assert after == {"processes": {}, "memory": [_TOTAL, _TOTAL, 0]}


def test_a_killed_process_has_no_memory_any_more(environment: dict[str, str]) -> None:
    worker = _start("allocate(1 << 30)\nreport(pid=1)\ntime.sleep(60)", environment)
    assert worker.stdout is not None and worker.stdout.readline()
    look = "assert nvml.nvmlInit() == 0\nreport(used=memory(device())[2])"
    assert _run(look, environment) == {"used": (1 << 30) + _CONTEXT}
    worker.kill()
    worker.communicate()
    assert _run(look, environment) == {"used": 0}


@pytest.mark.parametrize("content", [b"", b"short", b"x" * 5_000_000], ids=["empty", "short", "large"])
def test_pages_that_are_no_pages_do_no_harm(content: bytes, environment: dict[str, str], tmp_path: Path) -> None:
    page = tmp_path / f"emugpu-{os.geteuid()}-GPU-00000000-0000-0000-0000-000000000000"
    page.write_bytes(content)
    page.chmod(0o600)
    program = "assert nvml.nvmlInit() == 0\nreport(status=allocate(1 << 30), used=memory(device())[2])"
    assert _run(program, environment)["status"] == 0


def test_wrong_use(environment: dict[str, str]) -> None:
    program = """
early = [nvml.nvmlShutdown(), number("nvmlDeviceGetCount_v2"), nvml.nvmlDeviceGetName(None, None, 0)]
assert nvml.nvmlInit_v2() == nvml.nvmlInitWithFlags(0) == 0
d, handle = device(), ctypes.c_void_p()
short = ctypes.create_string_buffer(4)
late = [
    nvml.nvmlDeviceGetHandleByIndex_v2(2, ctypes.byref(handle)), nvml.nvmlDeviceGetHandleByIndex_v2(0, None),
    nvml.nvmlDeviceGetHandleByUUID(b"GPU-x", ctypes.byref(handle)),
    nvml.nvmlDeviceGetHandleByPciBusId_v2(b"?", ctypes.byref(handle)),
    nvml.nvmlDeviceGetHandleByPciBusId_v2(b"0000:77:00.0", ctypes.byref(handle)),
    nvml.nvmlDeviceGetName(d, short, 4), nvml.nvmlDeviceGetName(ctypes.c_void_p(12345), short, 4),
    nvml.nvmlDeviceGetMemoryInfo(d, None), nvml.nvmlDeviceGetMemoryInfo_v2(d, ctypes.byref(Memory2(version=1))),
    number("nvmlDeviceGetTemperature", d, 0), number("nvmlDeviceGetPowerUsage", d), number("nvmlDeviceGetFanSpeed", d),
    number("nvmlDeviceGetGraphicsRunningProcesses_v3", d), number("nvmlDeviceGetClockInfo", d, 3),
    nvml.nvmlSystemGetProcessName(2**30, short, 4)]
nvml.nvmlErrorString.restype = ctypes.c_char_p
late += [nvml.nvmlShutdown(), nvml.nvmlShutdown(), nvml.nvmlShutdown()]
report(early=early, late=late, text=nvml.nvmlErrorString(3).decode())
"""
    found = _run(program, environment)
    assert found == {
        "early": [_UNINITIALIZED, -_UNINITIALIZED, _UNINITIALIZED],
        "late": [
            _INVALID,
            _INVALID,
            _NOT_FOUND,
            _INVALID,
            _NOT_FOUND,
            _INSUFFICIENT,
            _INVALID,
            _INVALID,
            25,
            -_NOT_SUPPORTED,
            -_NOT_SUPPORTED,
            -_NOT_SUPPORTED,
            0,
            -_NOT_SUPPORTED,
            _NOT_FOUND,
            0,
            0,
            _UNINITIALIZED,
        ],
        "text": "Not Supported",
    }


def test_no_device_is_part_of_a_fabric(environment: dict[str, str]) -> None:
    program = """
assert nvml.nvmlInit() == 0
found = []
for version in (0x02000024, 0x03000028, 0x01000020):
    fabric = (ctypes.c_uint * 11)(version, *[7] * 10)
    found.append([nvml.nvmlDeviceGetGpuFabricInfoV(device(), ctypes.byref(fabric)), list(fabric)])
report(found=found, none=nvml.nvmlDeviceGetGpuFabricInfoV(device(), None))
"""
    two, three, one = (version | size for version, size in ((2 << 24, 36), (3 << 24, 40), (1 << 24, 32)))
    assert _run(program, environment) == {
        "found": [
            [_SUCCESS, [two, *[0] * 8, 7, 7]],
            [_SUCCESS, [three, *[0] * 9, 7]],
            [25, [one, *[7] * 10]],
        ],
        "none": _INVALID,
    }


def test_without_devices_there_is_no_driver(environment: dict[str, str], tmp_path: Path) -> None:
    environment["EMUGPU_CUDA_SETTINGS"] = str(tmp_path / "none")
    assert _run("report(status=nvml.nvmlInit_v2())", environment) == {"status": _NO_DRIVER}


class _Manager(threading.Thread):
    """Answers each query with `reply`, or with these bytes."""

    def __init__(self, path: Path, reply: object) -> None:
        super().__init__(daemon=True)
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.bind(str(path))
        self.socket.listen()
        self.reply = reply
        self.asked: list[Any] = []

    def run(self) -> None:
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            with connection:
                (size,) = struct.unpack(">I", connection.recv(4, socket.MSG_WAITALL))
                self.asked.append(json.loads(connection.recv(size, socket.MSG_WAITALL)))
                body = self.reply if isinstance(self.reply, bytes) else json.dumps(self.reply).encode()
                connection.sendall(struct.pack(">I", len(body)) + body)


@pytest.fixture(name="manager")
def manager_s_answers(environment: dict[str, str], tmp_path: Path) -> Iterator[Any]:
    """A function that starts a manager with this answer."""
    started: list[_Manager] = []

    def start(reply: object) -> _Manager:
        manager = _Manager(tmp_path / "manager.sock", reply)
        settings = Path(environment["EMUGPU_CUDA_SETTINGS"])
        first, rest = settings.read_text(encoding="ascii").split("\n", 1)
        lines = f"{first}\nmanager {tmp_path}/manager.sock\ntoken secret\n{rest}"
        settings.write_text(lines, encoding="ascii")
        manager.start()
        started.append(manager)
        return manager

    yield start
    for manager in started:
        manager.socket.close()


_LOOK = """
assert nvml.nvmlInit_v2() == 0
d = device(1)
report(used=memory(d)[2], load=utilization(d), processes=processes(d), name=text("nvmlSystemGetProcessName", 4000001))
"""


def test_a_manager_s_telemetry_is_what_nvidia_smi_shows(manager: Any, environment: dict[str, str]) -> None:
    uuid = "GPU-00000000-0000-0000-0000-000000000001"
    process = {"pid": 4000001, "name": "team/pod-0", "used_bytes": 3 << 30}
    entry = {
        "index": 5,
        "uuid": uuid,
        "gpu_type": "A100",
        "memory_bytes": _TOTAL,
        "used_bytes": 3 << 30,
        "utilisation": 0.625,
    }
    other = {**entry, "uuid": "GPU-00000000-0000-0000-0000-000000000000", "used_bytes": 0}
    running = manager({"ok": True, "devices": [{**other, "processes": []}, {**entry, "processes": [process]}]})
    assert _run(_LOOK, environment) == {
        "used": 3 << 30,
        "load": 63,
        "processes": {"4000001": 3 << 30},
        "name": "team/pod-0",
    }
    assert running.asked == [{"op": "query", "token": "secret"}], "the answer is kept for a fifth of a second"


@pytest.mark.parametrize(
    "reply", [b"", b"{", b"[1]", {"ok": False, "error": "no"}, {"ok": True}, {"ok": True, "devices": [7]}]
)
def test_without_a_useful_answer_the_pages_count(reply: object, manager: Any, environment: dict[str, str]) -> None:
    manager(reply)
    assert _run(_LOOK, environment) == {"used": 0, "load": 0, "processes": {}, "name": _NOT_FOUND}
