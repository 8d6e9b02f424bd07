"""What collectives of the emulated NCCL take: the link model, stragglers, and work behind them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.nccl import results, run_ranks, settings_text, start_ranks

pytestmark = pytest.mark.processes

_ESTIMATES = """
import ctypes
class Simulation(ctypes.Structure):
    _fields_ = (("size", ctypes.c_size_t), ("magic", ctypes.c_uint), ("version", ctypes.c_uint), ("us", ctypes.c_float))
library, comm = main_rank()
r, n = comm.fact("ncclCommUserRank"), comm.fact("ncclCommCount")
buffer = comm.buffer(UINT8, [0])
def estimate(*calls):
    info = Simulation(24, 0x74685283, 23007, -1.0)
    check(library, library.nccl.ncclGroupStart())
    for call in calls:
        assert comm.start(*call) == SUCCESS
    check(library, library.nccl.ncclGroupSimulateEnd(ctypes.byref(info)))
    return info.us / 1e6
G = 1 << 30
report(
    small=estimate(("ncclAllReduce", buffer, buffer, 8, UINT8, SUM)),
    all_reduce=estimate(("ncclAllReduce", buffer, buffer, G, UINT8, SUM)),
    all_gather=estimate(("ncclAllGather", buffer, buffer, G // n, UINT8)),
    reduce_scatter=estimate(("ncclReduceScatter", buffer, buffer, G // n, UINT8, SUM)),
    broadcast=estimate(("ncclBroadcast", buffer, buffer, G, UINT8, 0)),
    all_to_all=estimate(("ncclAlltoAll", buffer, buffer, G // n, UINT8)),
    send=estimate(("ncclSend", buffer, G, UINT8, (r + 1) % n)),
    exchange=estimate(("ncclSend", buffer, G, UINT8, (r + 1) % n), ("ncclRecv", buffer, G, UINT8, (r - 1) % n)),
    together=estimate(*[("ncclAllReduce", buffer, buffer, G // 64, UINT8, SUM)] * 64),
)
"""
_GIB = float(1 << 30)


def _estimates(ranks: int, directory: Path, **variables: str) -> dict[str, Any]:
    return run_ranks(_ESTIMATES, ranks, directory, **variables)[0]


@pytest.mark.parametrize("ranks", [2, 4])
def test_large_collectives_on_nvlink_have_the_bus_bandwidth_of_nccl_tests(ranks: int, tmp_path: Path) -> None:
    """300 GB/s a direction; nccl-tests shows about 234 GB/s on such links, whatever the number of ranks."""
    times = _estimates(ranks, tmp_path)
    rate, part = 0.78 * 300e9, (ranks - 1) / ranks
    factors = {
        "all_reduce": 2 * part,
        "all_gather": part,
        "reduce_scatter": part,
        "all_to_all": part,
        "broadcast": 1,
        "send": 1,
    }
    for name, factor in factors.items():
        assert times[name] == pytest.approx(factor * _GIB / rate, rel=0.02), name
    assert times["exchange"] == pytest.approx(times["send"], rel=0.01)
    assert times["together"] == pytest.approx(times["all_reduce"], rel=0.01)
    assert 5e-6 < times["small"] < 25e-6


def test_without_nvlink_the_host_link_counts(tmp_path: Path) -> None:
    (tmp_path / "settings").write_text(settings_text(2, peer_link=0), encoding="ascii")
    assert _estimates(2, tmp_path)["all_reduce"] == pytest.approx(_GIB / (0.8 * 31.5e9), rel=0.02)


@pytest.mark.parametrize("gbps", ["100", "400", "not a number"])
def test_between_hosts_the_network_counts(gbps: str, tmp_path: Path) -> None:
    def of_host(rank: int) -> dict[str, str]:
        return {"NCCL_HOSTID": f"host-{rank}", "EMUGPU_CUDA_NETWORK_GBPS": gbps}

    rate = 0.92 * (400e9 if gbps == "400" else 100e9) / 8
    rate = min(rate, 0.78 * 300e9)
    for times in results(start_ranks(_ESTIMATES, 2, tmp_path, of_rank=of_host)):
        assert times["all_reduce"] == pytest.approx(_GIB / rate, rel=0.02)
        assert times["send"] == pytest.approx(_GIB / rate, rel=0.02)
        assert times["small"] < 60e-6


def test_a_straggler_delays_all(tmp_path: Path) -> None:
    """Rank 1 comes 50 ms late: rank 0 never has a result before rank 1 came, and soon after; its call returns at once."""
    program = """
library, comm = main_rank()
r = comm.fact("ncclCommUserRank")
buffer = comm.buffer(FLOAT32, [1.0])
issued, enqueued, done = [], [], []
for _ in range(5):
    comm.call("ncclAllReduce", buffer, buffer, 1, FLOAT32, SUM)
    if r == 1:
        time.sleep(0.05)
    issued.append(library.now_ns() / 1e6)
    assert comm.start("ncclAllReduce", buffer, buffer, 1, FLOAT32, SUM) == SUCCESS
    enqueued.append(library.now_ns() / 1e6)
    comm.synchronize()
    done.append(library.now_ns() / 1e6)
report(issued=issued, enqueued=enqueued, done=done)
"""
    first, late = run_ranks(program, 2, tmp_path)
    waits_ms = [done - issued for done, issued in zip(first["done"], late["issued"], strict=True)]
    assert all(wait_ms >= 0 for wait_ms in waits_ms)
    assert min(waits_ms) < 9
    assert min(done - issued for done, issued in zip(late["done"], late["issued"], strict=True)) < 9
    calls_ms = [enqueued - issued for enqueued, issued in zip(first["enqueued"], first["issued"], strict=True)]
    assert min(calls_ms) < 5, "the call returns before the others have come"


def test_work_behind_a_collective_waits_for_it(tmp_path: Path) -> None:
    """A copy to pinned memory that is issued behind an all-gather which hasn't met its peers yet sees the gathered values."""
    program = """
import ctypes
library, comm = main_rank()
r = comm.fact("ncclCommUserRank")
pinned = ctypes.c_void_p()
assert library.core.emu_memory_allocate(0, 1, 8, ctypes.byref(pinned)) == 0
values = (ctypes.c_int32 * 2).from_address(pinned.value)
time.sleep(0.3 * r)
gathered = comm.buffer(INT32, [0, 0])
assert comm.start("ncclAllGather", comm.buffer(INT32, [r + 7]), gathered, 1, INT32) == SUCCESS
copy = library.core.emu_copy
copy.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_bool]
assert copy(comm.stream, pinned, gathered.address, 8, False) == 0
before = list(values)
comm.synchronize()
report(before=before, after=list(values))
"""
    first, second = run_ranks(program, 2, tmp_path)
    assert first == {"before": [0, 0], "after": [7, 8]}
    assert second["after"] == [7, 8]


def test_a_captured_collective_runs_at_each_launch_of_its_graph(tmp_path: Path) -> None:
    program = """
import ctypes
library, comm = main_rank()
r = comm.fact("ncclCommUserRank")
core, graph, copy, stream = library.core, ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
core.emu_capture_begin.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
core.emu_capture_end.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
core.emu_graph_clone.argtypes = core.emu_graph_launch.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
core.emu_graph_destroy.argtypes = [ctypes.c_void_p]
assert core.emu_stream_create(r, 1, 0, ctypes.byref(stream)) == 0
comm.stream = stream
buffer = comm.buffer(INT64, [1])
assert core.emu_capture_begin(stream, None) == 0
assert comm.start("ncclAllReduce", buffer, buffer, 1, INT64, SUM) == SUCCESS
assert core.emu_capture_end(stream, ctypes.byref(graph)) == 0
assert core.emu_graph_clone(graph, ctypes.byref(copy)) == 0
for _ in range(10):
    assert core.emu_graph_launch(copy, stream) == 0
    if r == 0:
        time.sleep(0.001)
comm.synchronize()
between = buffer.values()
comm.call("ncclAllReduce", buffer, buffer, 1, INT64, SUM)
core.emu_graph_destroy(copy), core.emu_graph_destroy(graph)
report(between=between, after=buffer.values(), destroyed=library.nccl.ncclCommDestroy(comm.handle))
"""
    assert run_ranks(program, 2, tmp_path) == [{"between": [2**10], "after": [2**11], "destroyed": 0}] * 2
