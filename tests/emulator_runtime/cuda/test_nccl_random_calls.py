"""Random calls of the emulated NCCL and NVML: an error code, never a crash."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.nccl import results, start_ranks

CALLS = int(os.environ.get("EMUGPU_FUZZ_CALLS", "20000"))
MOST_S = 60 + CALLS / 1000
pytestmark = [pytest.mark.processes, pytest.mark.timeout(60 + MOST_S)]

_RANDOM = """
import ctypes, random
library, comm = main_rank()
nvml, nccl = (ctypes.CDLL(str(built() / name)) for name in ("libnvidia-ml.so.1", "libnccl.so.2"))
chance = random.Random(SEED)
buffer = comm.buffer(FLOAT32, [1.0] * 64)
room = ctypes.create_string_buffer(4096)
nccl_names, nvml_names = NAMES.split(), NVML_NAMES.split()
handle = ctypes.c_void_p()
nvml.nvmlInit_v2()
nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(handle))
outputs = [ctypes.c_void_p(ctypes.addressof(room)), None]
values = [0, 1, 2, 3, -1, 5, 7, 12, 2**31 - 1, 2**62]
def argument():
    kind = chance.random()
    if kind < 0.25:
        return comm.handle if chance.random() < 0.8 else ctypes.c_void_p(chance.choice([1, 4096, 2**40]))
    if kind < 0.45:
        return chance.choice([buffer.address, handle, comm.stream])
    if kind < 0.6:
        return chance.choice(outputs)
    return ctypes.c_int64(chance.choice(values))
counts = {}
for _ in range(CALLS):
    if chance.random() < 0.3:
        name = chance.choice(nvml_names)
        first = chance.choice([handle, None, ctypes.c_void_p(chance.choice([1, 4096, 2**40]))])
        if name.startswith(("nvmlDeviceGetCount", "nvmlInit", "nvmlShutdown")):
            first = outputs[0]
        status = getattr(nvml, name)(first, *(chance.choice(outputs) for _ in range(3)))
    else:
        name = chance.choice(nccl_names)
        status = getattr(nccl, name)(*(argument() for _ in range(8)))
    counts[status] = counts.get(status, 0) + 1
while library.nccl.ncclGroupEnd() != INVALID_USAGE:
    pass
report(counts=counts)
"""
# Without those that take a structure by value, and those that write where any pointer points as the real ones do.
_NAMES = """
ncclAllGather ncclAllReduce ncclAlltoAll ncclBcast ncclBroadcast ncclReduce ncclReduceScatter ncclSend ncclRecv ncclGather
ncclCommDeregister ncclCommWindowDeregister ncclCommSuspend ncclCommResume ncclRedOpDestroy ncclGroupStart
ncclGroupEnd ncclCommFinalize
"""
_NVML_NAMES = """
nvmlDeviceGetCount_v2 nvmlDeviceGetHandleByIndex_v2 nvmlDeviceGetIndex nvmlDeviceGetUtilizationRates nvmlDeviceGetMemoryInfo
nvmlDeviceGetBrand nvmlDeviceGetPciInfo_v3 nvmlDeviceGetMaxClockInfo nvmlDeviceGetPerformanceState nvmlShutdown nvmlInit
"""


@pytest.mark.parametrize("seed", range(3))
def test_random_calls_answer_error_codes(seed: int, tmp_path: Path) -> None:
    names = f"SEED, CALLS, NAMES, NVML_NAMES = {seed}, {CALLS}, {_NAMES!r}, {_NVML_NAMES!r}\n"
    (found,) = results(start_ranks(names + _RANDOM, 1, tmp_path), MOST_S)
    assert sum(found["counts"].values()) == CALLS
    assert set(map(int, found["counts"])) <= {0, 1, 2, 3, 4, 5, 6, 25}
