"""Collectives of the emulated NCCL: their values, types and operators, among processes and threads."""

from __future__ import annotations

import struct
from itertools import chain
from pathlib import Path

import pytest

from tests.support.nccl import run_ranks, settings_text

pytestmark = pytest.mark.processes

_ALL = """
library, comm = main_rank()
r, n = comm.fact("ncclCommUserRank"), comm.fact("ncclCommCount")
out = {}
def result(name, receive, *arguments):
    comm.call(name, *arguments)
    out[name] = receive.values()
one, two = comm.buffer(INT32, [r + 1, 10 * (r + 1)]), comm.buffer(INT32, [0, 0])
wide = comm.buffer(INT32, [0] * (2 * n))
mine = comm.buffer(INT32, [100 * r + i for i in range(2 * n)])
result("ncclAllReduce", two, one, two, 2, INT32, SUM)
result("ncclReduce", two, one, two, 2, INT32, MAX, 1)
two = comm.buffer(INT32, [0, 0])
result("ncclBroadcast", two, one, two, 2, INT32, 1)
result("ncclAllGather", wide, one, wide, 2, INT32)
result("ncclReduceScatter", two, mine, two, 2, INT32, SUM)
wide = comm.buffer(INT32, [0] * (2 * n))
result("ncclAlltoAll", wide, mine, wide, 2, INT32)
wide = comm.buffer(INT32, [0] * (2 * n))
result("ncclGather", wide, one, wide, 2, INT32, 0)
result("ncclScatter", two, mine, two, 2, INT32, 1)
same = comm.buffer(INT32, [r, r])
result("ncclBcast", same, same, 2, INT32, 1)
out["device"] = comm.fact("ncclCommCuDevice")
report(**out)
"""


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_every_collective_gives_each_rank_its_values(ranks: int, tmp_path: Path) -> None:
    found = run_ranks(_ALL, ranks, tmp_path)
    ones = [[r + 1, 10 * (r + 1)] for r in range(ranks)]
    mine = [[100 * r + i for i in range(2 * ranks)] for r in range(ranks)]
    total = sum(range(1, ranks + 1))
    for r, values in enumerate(found):
        part = slice(2 * r, 2 * r + 2)
        assert values["ncclAllReduce"] == [total, 10 * total]
        assert values["ncclReduce"] == ([ranks, 10 * ranks] if r == 1 else [total, 10 * total])
        assert values["ncclBroadcast"] == [2, 20]
        assert values["ncclBcast"] == [1, 1]
        assert values["ncclAllGather"] == list(chain(*ones))
        assert values["ncclReduceScatter"] == [sum(row[i] for row in mine) for i in range(2 * r, 2 * r + 2)]
        assert values["ncclAlltoAll"] == list(chain(*(row[part] for row in mine)))
        assert values["ncclGather"] == (list(chain(*ones)) if r == 0 else [0] * 2 * ranks)
        assert values["ncclScatter"] == mine[1][part]
        assert values["device"] == r


_TYPES = """
library, comm = main_rank()
r = comm.fact("ncclCommUserRank")
out = {}
CASES = %r
for name, datatype, operator, of_rank in CASES:
    send = comm.buffer(datatype, of_rank[r])
    receive = comm.buffer(datatype, [0] * len(of_rank[r]))
    comm.call("ncclAllReduce", send, receive, len(of_rank[r]), datatype, operator)
    out[name] = receive.values()
report(**out)
"""


def _half(*values: float) -> list[int]:
    return [struct.unpack("<H", struct.pack("<e", value))[0] for value in values]


def _bfloat(*values: float) -> list[int]:
    return [struct.unpack("<I", struct.pack("<f", value))[0] >> 16 for value in values]


_INT8, _UINT8, _INT32, _UINT32, _INT64, _UINT64, _HALF, _FLOAT, _DOUBLE, _BFLOAT, _E4M3, _E5M2 = range(12)
_SUM, _PROD, _MAX, _MIN, _AVG = range(5)
_CASES = [
    ("int8 wraps", _INT8, _SUM, [[100, -100], [100, -100]], [-56, 56]),
    ("uint8", _UINT8, _MAX, [[200, 3], [100, 4]], [200, 4]),
    ("int32 min", _INT32, _MIN, [[-5, 7], [3, -9]], [-5, -9]),
    ("int32 average", _INT32, _AVG, [[-5, 7], [2, 8]], [-1, 7]),
    ("uint32 max", _UINT32, _MAX, [[2**32 - 1, 1], [0, 2]], [2**32 - 1, 2]),
    ("int64 prod", _INT64, _PROD, [[2**40, -3], [4, 5]], [2**42, -15]),
    ("uint64 max", _UINT64, _MAX, [[2**63, 1], [2, 3]], [2**63, 3]),
    ("half sum", _HALF, _SUM, [_half(1.5, 65504.0), _half(2.25, 65504.0)], _half(3.75, float("inf"))),
    ("half average", _HALF, _AVG, [_half(1.0, 6e-8), _half(2.0, 0.0)], _half(1.5, 0.0)),
    ("half zeros", _HALF, _SUM, [_half(0.0, -0.0), _half(0.0, -0.0)], _half(0.0, -0.0)),
    ("bfloat16 zeros", _BFLOAT, _SUM, [_bfloat(0.0, 1.0), _bfloat(0.0, -1.0)], _bfloat(0.0, 0.0)),
    ("float8 e4m3 zeros", _E4M3, _SUM, [[0x00, 0x38], [0x00, 0xB8]], [0x00, 0x00]),
    ("half ties to even", _HALF, _SUM, [_half(2048.0), _half(1.0)], _half(2048.0)),
    ("bfloat16", _BFLOAT, _PROD, [_bfloat(1.5, -2.0), _bfloat(2.0, 0.5)], _bfloat(3.0, -1.0)),
    ("float", _FLOAT, _SUM, [[0.5, 1e30], [0.25, 1e30]], [0.75, 2e30]),
    ("double", _DOUBLE, _AVG, [[1.0, 1e300], [2.0, 1e300]], [1.5, 1e300]),
    ("float8 e4m3", _E4M3, _SUM, [[0x38, 0x01], [0x38, 0x01]], [0x40, 0x02]),  # 1 + 1 = 2, two of the smallest
    ("float8 e5m2", _E5M2, _MAX, [[0x3C, 0x7C], [0x40, 0x00]], [0x40, 0x7C]),  # infinity
]


def test_reductions_of_all_types(tmp_path: Path) -> None:
    program = _TYPES % [case[:4] for case in _CASES]
    for values in run_ranks(program, 2, tmp_path):
        for name, datatype, _, _, expected in _CASES:
            rounded = (
                [struct.unpack("<f", struct.pack("<f", v))[0] for v in expected] if datatype == _FLOAT else expected
            )
            assert values[name] == rounded, name


def test_operators_of_the_program_scale_each_rank_s_values(tmp_path: Path) -> None:
    program = """
import ctypes
library, comm = main_rank()
r = comm.fact("ncclCommUserRank")
operator, scalar = ctypes.c_int(), ctypes.c_float(r + 0.5)
create = library.nccl.ncclRedOpCreatePreMulSum
check(library, create(ctypes.byref(operator), ctypes.byref(scalar), FLOAT32, 1, comm.handle))
send, receive = comm.buffer(FLOAT32, [2.0, 4.0]), comm.buffer(FLOAT32, [0.0, 0.0])
comm.call("ncclAllReduce", send, receive, 2, FLOAT32, operator.value)
on_device = comm.buffer(FLOAT32, [3.0])
check(library, create(ctypes.byref(operator), on_device.address, FLOAT32, 0, comm.handle))
again = comm.buffer(FLOAT32, [0.0, 0.0])
comm.call("ncclAllReduce", send, again, 2, FLOAT32, operator.value)
wrong_type = comm.start("ncclAllReduce", send, again, 2, FLOAT64, operator.value)
destroyed = [library.nccl.ncclRedOpDestroy(operator, comm.handle) for _ in range(2)]
report(values=receive.values(), device=again.values(), wrong_type=wrong_type, destroyed=destroyed)
"""
    for values in run_ranks(program, 2, tmp_path):
        assert values == {"values": [4.0, 8.0], "device": [12.0, 24.0], "wrong_type": 4, "destroyed": [0, 4]}


def test_large_payloads_stay_where_they_are_and_objects_move(tmp_path: Path) -> None:
    program = """
library, comm = main_rank()
r = comm.fact("ncclCommUserRank")
count = 100_000
floats = comm.buffer(FLOAT32, [0.0] * count)
comm.call("ncclAllReduce", comm.buffer(FLOAT32, [1.0] * count), floats, count, FLOAT32, SUM)
small = comm.buffer(FLOAT32, [0.0] * 16384)
comm.call("ncclAllReduce", comm.buffer(FLOAT32, [1.0] * 16384), small, 16384, FLOAT32, SUM)
objects = comm.buffer(UINT8, [7 * (1 - r)] * count)
comm.call("ncclBroadcast", objects, objects, count, UINT8, 0)
report(floats=sum(floats.values()), small=sum(small.values()), objects=sum(objects.values()))
"""
    for values in run_ranks(program, 2, tmp_path):
        assert values == {"floats": 0.0, "small": 2.0 * 16384, "objects": 700_000}


def test_one_process_drives_all_devices_by_groups(tmp_path: Path) -> None:
    program = """
import ctypes
library = Library()
n = 3
handles = (ctypes.c_void_p * n)()
check(library, library.nccl.ncclCommInitAll(handles, n, None))
comms = [Communicator(library, ctypes.c_void_p(handles[i]), i) for i in range(n)]
sends = [comm.buffer(FLOAT32, [float(i + 1)] * 4) for i, comm in enumerate(comms)]
receives = [comm.buffer(FLOAT32, [0.0] * 4) for comm in comms]
for _ in range(50):
    check(library, library.nccl.ncclGroupStart())
    for comm, send, receive in zip(comms, sends, receives):
        assert comm.start("ncclAllReduce", send, receive, 4, FLOAT32, SUM) == SUCCESS
    check(library, library.nccl.ncclGroupEnd())
for comm in comms:
    comm.synchronize()
for comm in comms:
    check(library, library.nccl.ncclCommDestroy(comm.handle))
report(values=[receive.values() for receive in receives], facts=[comm.device for comm in comms])
"""
    (tmp_path / "settings").write_text(settings_text(3), encoding="ascii")
    assert run_ranks(program, 1, tmp_path) == [{"values": [[6.0] * 4] * 3, "facts": [0, 1, 2]}]


def test_one_rank_alone(tmp_path: Path) -> None:
    program = """
library, comm = main_rank()
send, receive = comm.buffer(INT64, [5, 6]), comm.buffer(INT64, [0, 0])
comm.call("ncclAllReduce", send, receive, 2, INT64, AVG)
own = comm.buffer(INT64, [0, 0])
library.nccl.ncclGroupStart()
assert comm.start("ncclSend", send, 2, INT64, 0) == SUCCESS
assert comm.start("ncclRecv", own, 2, INT64, 0) == SUCCESS
check(library, library.nccl.ncclGroupEnd())
comm.synchronize()
report(reduced=receive.values(), sent=own.values())
"""
    assert run_ranks(program, 1, tmp_path) == [{"reduced": [5, 6], "sent": [5, 6]}]


def test_ranks_in_threads_of_one_process(tmp_path: Path) -> None:
    program = """
library = Library()
made = library.unique_id()
def rank(r):
    comm = Communicator.join(library, made, 2, r, r)
    send, receive = comm.buffer(INT32, [r + 1]), comm.buffer(INT32, [0])
    for _ in range(20):
        comm.call("ncclAllReduce", send, receive, 1, INT32, SUM)
    return receive.values()
report(values=in_threads(lambda: rank(0), lambda: rank(1)))
"""
    (tmp_path / "settings").write_text(settings_text(2), encoding="ascii")
    assert run_ranks(program, 1, tmp_path) == [{"values": [[3], [3]]}]


def test_sizes_that_a_late_rank_sends_are_compared(tmp_path: Path) -> None:
    """torch.distributed asks which of the gathered sizes is largest right after the all-gather, for which rank 0 and rank 1 are
    late in turn: the kernel that compares them is launched before they have come."""
    program = """
import ctypes
from types import SimpleNamespace
from tests.emulator_runtime.cuda.kernel_calls import COMPARE, Kernels, integer, tensors
library, comm = main_rank()
r, core = comm.fact("ncclCommUserRank"), library.core
core.emu_kernel_named.restype = ctypes.c_void_p
core.emu_copy.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_bool]
def call(function, *arguments):
    assert getattr(core, function)(*arguments) == 0
kernels = Kernels(SimpleNamespace(library=core, default_stream=lambda: comm.stream, call=call))
gathered, greater = comm.buffer(INT64, [0, 0]), comm.buffer(UINT8, [0])
second, answers = ctypes.c_void_p(gathered.address.value + 8), []
for turn in range(4):
    size = comm.buffer(INT64, [25 if r == turn // 2 else 5025])
    if r == turn % 2:
        time.sleep(0.2)
    assert comm.start("ncclAllGather", size, gathered, 1, INT64) == SUCCESS
    kernels.launch(COMPARE, integer(1), integer(1), tensors(greater.address, second, gathered.address))
    answer = ctypes.create_string_buffer(b"?", 1)
    call("emu_copy", comm.stream, answer, greater.address, 1, True)
    answers.append(answer.raw.hex())
report(answers=answers)
"""
    for values in run_ranks(program, 2, tmp_path):
        assert values == {"answers": ["01", "01", "00", "00"]}
