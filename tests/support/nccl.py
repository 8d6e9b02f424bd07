"""A rank that calls the emulated libnccl.so.2 by ctypes, for programs that tests start as processes.

A program ends with `report(...)`, one line of JSON on standard output, which `run_ranks` collects.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from emulator_runtime.cuda.build import built

SUCCESS, UNHANDLED, SYSTEM, INTERNAL, INVALID_ARGUMENT, INVALID_USAGE, REMOTE, IN_PROGRESS = range(8)
SUM, PROD, MAX, MIN, AVG = range(5)
INT8, UINT8, INT32, UINT32, INT64, UINT64, FLOAT16, FLOAT32, FLOAT64, BFLOAT16, E4M3, E5M2 = range(12)
C_TYPES: dict[int, Any] = {
    INT8: ctypes.c_int8,
    UINT8: ctypes.c_uint8,
    INT32: ctypes.c_int32,
    UINT32: ctypes.c_uint32,
    INT64: ctypes.c_int64,
    UINT64: ctypes.c_uint64,
    FLOAT16: ctypes.c_uint16,
    FLOAT32: ctypes.c_float,
    FLOAT64: ctypes.c_double,
    BFLOAT16: ctypes.c_uint16,
    E4M3: ctypes.c_uint8,
    E5M2: ctypes.c_uint8,
}
_PROGRAM_S = 120
_ROOT = Path(__file__).parents[2]


class UniqueId(ctypes.Structure):
    """ncclUniqueId."""

    _fields_ = (("internal", ctypes.c_char * 128),)


class Config(ctypes.Structure):
    """The beginning of ncclConfig_t."""

    _fields_ = (
        ("size", ctypes.c_size_t),
        ("magic", ctypes.c_uint),
        ("version", ctypes.c_uint),
        ("blocking", ctypes.c_int),
    )


def config(blocking: int) -> Config:
    """A configuration that is initialized."""
    return Config(ctypes.sizeof(Config), 0xCAFEBEEF, 23007, blocking)


def settings_text(devices: int, peer_link: float = 300e9, seed: int = 0) -> str:
    """A settings file of A100-like devices; `seed` makes the UUIDs of another host's."""
    lines = ["emugpu-cuda 1", "estimator constant", "constant_ns 5000"]
    for index in range(devices):
        lines += [
            f"device {index}",
            "name NVIDIA A100-SXM4-40GB",
            f"uuid GPU-{seed:08x}-0000-0000-0000-{index:012x}",
            "gpu_type NVIDIA_A100-SXM4-40GB",
            f"memory_bytes {40 << 30}",
            f"context_bytes {400 << 20}",
            "capability_major 8",
            "capability_minor 0",
            "multiprocessors 108",
            "clock_khz 1410000",
            "memory_bytes_per_s 1555e9",
            "host_link_bytes_per_s 31.5e9",
            f"peer_link_bytes_per_s {peer_link}",
            "flops_fp32 19.5e12",
        ]
    return "\n".join(lines) + "\n"


class Library:
    """The emulated libraries in this process."""

    def __init__(self) -> None:
        directory = built()
        self.core = ctypes.CDLL(str(directory / "libemugpu_core.so"), mode=ctypes.RTLD_GLOBAL)
        self.nccl = ctypes.CDLL(str(directory / "libnccl.so.2"))
        self.core.emu_now_ns.restype = ctypes.c_int64
        self.core.emu_stream_default.restype = ctypes.c_void_p
        self.core.emu_stream_synchronize.argtypes = [ctypes.c_void_p]
        self.core.emu_context_primary.restype = ctypes.c_void_p
        self.core.emu_context_set_current.argtypes = [ctypes.c_void_p]
        self.core.emu_memory_allocate.argtypes = [
            ctypes.c_int,
            ctypes.c_int,
            ctypes.c_size_t,
            ctypes.POINTER(ctypes.c_void_p),
        ]
        self.core.emu_memory_written.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
        self.nccl.ncclGetErrorString.restype = ctypes.c_char_p
        self.nccl.ncclGetLastError.restype = ctypes.c_char_p
        self.nccl.ncclGetLastError.argtypes = [ctypes.c_void_p]
        handles: dict[str, list[Any]] = {
            "ncclCommDestroy": [ctypes.c_void_p],
            "ncclCommAbort": [ctypes.c_void_p],
            "ncclCommFinalize": [ctypes.c_void_p],
            "ncclCommRevoke": [ctypes.c_void_p, ctypes.c_int],
            "ncclCommGetAsyncError": [ctypes.c_void_p, ctypes.c_void_p],
            "ncclCommCount": [ctypes.c_void_p, ctypes.c_void_p],
            "ncclCommUserRank": [ctypes.c_void_p, ctypes.c_void_p],
            "ncclCommCuDevice": [ctypes.c_void_p, ctypes.c_void_p],
        }
        for name, types in handles.items():
            getattr(self.nccl, name).argtypes = types
        self.nccl.ncclCommInitRankConfig.argtypes = [
            ctypes.c_void_p,
            ctypes.c_int,
            UniqueId,
            ctypes.c_int,
            ctypes.c_void_p,
        ]

    def use_device(self, device: int) -> None:
        """Make a device the thread's current one."""
        self.core.emu_context_set_current(self.core.emu_context_primary(device))

    def now_ns(self) -> int:
        """Emulated time."""
        return int(self.core.emu_now_ns())

    def unique_id(self) -> UniqueId:
        """A new unique id."""
        made = UniqueId()
        check(self, self.nccl.ncclGetUniqueId(ctypes.byref(made)))
        return made


def check(library: Library, status: int) -> None:
    """Raises RuntimeError for a status other than ncclSuccess."""
    if status != SUCCESS:
        last = library.nccl.ncclGetLastError(None).decode()
        raise RuntimeError(f"{status}: {library.nccl.ncclGetErrorString(status).decode()}: {last}")


class Buffer:
    """Memory of a device with `values` of an NCCL type."""

    def __init__(self, library: Library, device: int, datatype: int, values: Sequence[float]) -> None:
        self.address = ctypes.c_void_p()
        c_type = C_TYPES[datatype]
        size = max(1, len(values) * ctypes.sizeof(c_type))
        status = library.core.emu_memory_allocate(device, 2, size, ctypes.byref(self.address))
        assert status == 0, status
        self.array = (c_type * len(values)).from_address(self.address.value or 0)
        if any(values):
            self.array[:] = values
            library.core.emu_memory_written(self.address, size)

    def values(self) -> list[float]:
        """What is there now."""
        return list(self.array)


class Communicator:
    """An ncclComm_t of one rank, on a device's default stream."""

    def __init__(self, library: Library, handle: ctypes.c_void_p, device: int) -> None:
        self.library, self.nccl, self.handle, self.device = library, library.nccl, handle, device
        self.stream = ctypes.c_void_p(library.core.emu_stream_default(device))

    @classmethod
    def join(cls, library: Library, unique_id: UniqueId, ranks: int, rank: int, device: int) -> Communicator:
        """ncclCommInitRank. Raises RuntimeError."""
        library.use_device(device)
        handle = ctypes.c_void_p()
        check(library, library.nccl.ncclCommInitRankConfig(ctypes.byref(handle), ranks, unique_id, rank, None))
        return cls(library, handle, device)

    def buffer(self, datatype: int, values: Sequence[float]) -> Buffer:
        """Memory of this rank's device."""
        return Buffer(self.library, self.device, datatype, values)

    def start(self, name: str, *arguments: object) -> int:
        """Call a collective; communicator and stream are appended to its arguments."""
        converted = [
            argument.address
            if isinstance(argument, Buffer)
            else ctypes.c_size_t(argument)
            if isinstance(argument, int)
            else argument
            for argument in arguments
        ]
        return int(getattr(self.nccl, name)(*converted, self.handle, self.stream))

    def call(self, name: str, *arguments: object) -> None:
        """As `start`, and wait for its end. Raises RuntimeError."""
        check(self.library, self.start(name, *arguments))
        self.synchronize()

    def synchronize(self) -> None:
        """Wait for the stream."""
        status = self.library.core.emu_stream_synchronize(self.stream)
        assert status == 0, status

    def async_error(self) -> int:
        """The answer of ncclCommGetAsyncError."""
        error = ctypes.c_int(-1)
        check(self.library, self.nccl.ncclCommGetAsyncError(self.handle, ctypes.byref(error)))
        return error.value

    def fact(self, name: str) -> int:
        """The answer of ncclCommCount and the like."""
        value = ctypes.c_int(-1)
        check(self.library, getattr(self.nccl, name)(self.handle, ctypes.byref(value)))
        return value.value


def main_rank() -> tuple[Library, Communicator]:
    """In a process that `run_ranks` has started: join with the others. Rank 0 makes the unique id, and writes it to a file."""
    library = Library()
    rank, ranks = int(os.environ["RANK"]), int(os.environ["RANKS"])
    return library, Communicator.join(library, shared_id(library, rank), ranks, rank, int(os.environ["DEVICE"]))


def shared_id(library: Library, rank: int) -> UniqueId:
    """The unique id of the ranks that `run_ranks` has started together."""
    path = Path(os.environ["ID_FILE"])
    if rank == 0:
        made = library.unique_id()
        path.with_suffix(".new").write_bytes(bytes(made))
        path.with_suffix(".new").rename(path)
        return made
    while not path.exists():
        time.sleep(0.01)
    return UniqueId.from_buffer_copy(path.read_bytes())


def report(**values: object) -> None:
    """The result of a rank."""
    print("RESULT " + json.dumps(values), flush=True)


def start_ranks(
    program: str,
    ranks: int,
    directory: Path,
    variables: dict[str, str] | None = None,
    of_rank: Callable[[int], dict[str, str]] = lambda _: {},
) -> list[subprocess.Popen[str]]:
    """Start the Python text `program` once for each rank, with device RANK of one host."""
    settings = directory / "settings"
    if not settings.exists():
        settings.write_text(settings_text(max(ranks, 1)), encoding="ascii")
    environment = {
        **os.environ,
        "PYTHONPATH": str(_ROOT),
        "EMUGPU_CUDA_LIBRARIES": str(built()),
        "EMUGPU_CUDA_SETTINGS": str(settings),
        "EMUGPU_CUDA_STATISTICS": str(directory),
        "NCCL_SOCKET_IFNAME": "lo",
        "ID_FILE": str(directory / "id"),
        "RANKS": str(ranks),
        **(variables or {}),
    }
    text = "from tests.support.nccl import *\n" + program
    return [
        subprocess.Popen(
            [sys.executable, "-c", text],
            env={**environment, "RANK": str(rank), "DEVICE": str(rank), **of_rank(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=_ROOT,
        )
        for rank in range(ranks)
    ]


def results(processes: Sequence[subprocess.Popen[str]], most_s: float = _PROGRAM_S) -> list[dict[str, Any]]:
    """What each rank reported; an empty one if it didn't. Fails with what a rank wrote if it ended with an error."""
    found = []
    try:
        for process in processes:
            output, errors = process.communicate(timeout=most_s)
            lines = [line for line in output.splitlines() if line.startswith("RESULT ")]
            assert process.returncode <= 0, f"rank ended with {process.returncode}: {errors}"
            found.append(json.loads(lines[-1].removeprefix("RESULT ")) if lines else {})
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.communicate()
    return found


def run_ranks(program: str, ranks: int, directory: Path, **variables: str) -> list[dict[str, Any]]:
    """Start the ranks, and answer what they report."""
    return results(start_ranks(program, ranks, directory, variables))


def in_threads(*functions: Callable[[], object]) -> list[object]:
    """Call all of them at once, and answer what they return. Raises the first error."""
    answers: list[object] = [None] * len(functions)
    errors: list[BaseException] = []

    def run(index: int) -> None:
        try:
            answers[index] = functions[index]()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(index,)) for index in range(len(functions))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return answers
