"""The emulated NCCL without its other ranks (nccl/virtual.c): one process, which is rank 1 of a job of 4."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from emulator_runtime.prediction.reading import read_process
from emulator_runtime.prediction.records import Collective
from emulator_runtime.prediction.represented import UNKNOWN
from tests.support.nccl import results, settings_text, start_ranks

pytestmark = pytest.mark.processes

WORLD = 4
JOIN = """
library = Library()
library.use_device(0)
name_group = library.nccl.emugpuNameGroup
def named(name, *ranks, id=None):
    made = id or UniqueId()
    status = name_group(ctypes.byref(made), name.encode(), (ctypes.c_int * len(ranks))(*ranks), len(ranks))
    assert status == 0, status
    return made
def join(id, ranks, rank):
    return Communicator.join(library, id, ranks, rank, 0)
"""

Alone = Callable[..., dict[str, Any]]


@pytest.fixture
def alone(tmp_path: Path) -> Alone:
    """`alone(code)`: what a rank reports that has no others."""

    def run(code: str, world: int = WORLD) -> dict[str, Any]:
        more = f"record {tmp_path}/%p.records\nvirtual_ranks {world}\nestimator constant"
        (tmp_path / "settings").write_text(settings_text(1).replace("estimator constant", more), encoding="ascii")
        (found,) = results(start_ranks(JOIN + code, 1, tmp_path))
        return found

    return run


def test_collectives_complete_at_once_with_the_rank_own_data(alone: Alone) -> None:
    found = alone(
        """
    comm = join(library.unique_id(), 4, 1)
    own = lambda *values: comm.buffer(INT32, values)
    def given(name, values, size, *more):
        send, receive = own(*values), own(*[9] * size)
        comm.call(name, send, receive, *more)
        return receive.values()
    report(
        sum=given("ncclAllReduce", [1, 2], 2, 2, INT32, SUM),
        average=given("ncclAllReduce", [3, 5], 2, 2, INT32, AVG),
        gathered=given("ncclAllGather", [6], 4, 1, INT32),
        scattered=given("ncclReduceScatter", [1, 2, 3, 4], 1, 1, INT32, SUM),
        exchanged=given("ncclAlltoAll", [1, 2, 3, 4], 4, 1, INT32),
        root=given("ncclBroadcast", [5], 1, 1, INT32, ctypes.c_int(1)),
        absent=given("ncclBroadcast", [5], 1, 1, INT32, ctypes.c_int(0)),
        reduced=given("ncclReduce", [5], 1, 1, INT32, SUM, ctypes.c_int(1)),
        elsewhere=given("ncclReduce", [5], 1, 1, INT32, SUM, ctypes.c_int(0)),
    )
    """.replace("\n    ", "\n")
    )
    assert found == {
        "sum": [4, 8],
        "average": [3, 5],
        "gathered": [6, 6, 6, 6],
        "scattered": [8],
        "exchanged": [1, 2, 3, 4],
        "root": [5],
        "absent": [9],
        "reduced": [20],
        "elsewhere": [9],
    }


def test_a_broadcast_from_each_rank_gathers_the_own_data(alone: Alone) -> None:
    """How PyTorch gathers into a list of tensors; one of another size keeps its buffer."""
    found = alone(
        """
comm = join(library.unique_id(), 4, 1)
own, buffers = comm.buffer(INT32, [5]), [comm.buffer(INT32, [9, 9]) for _ in range(4)]
library.nccl.ncclGroupStart()
for root, buffer in enumerate(buffers):
    comm.start("ncclBroadcast", own, buffer, 2 if root == 3 else 1, INT32, ctypes.c_int(root))
library.nccl.ncclGroupEnd()
comm.synchronize()
report(values=[buffer.values() for buffer in buffers])
"""
    )
    assert found == {"values": [[5, 9], [5, 9], [5, 9], [9, 9]]}


def test_messages_to_absent_ranks_complete(alone: Alone, tmp_path: Path) -> None:
    found = alone(
        """
    comm = join(library.unique_id(), 4, 1)
    buffer, other = comm.buffer(INT32, [3]), comm.buffer(INT32, [7])
    library.nccl.ncclGroupStart()
    comm.start("ncclSend", buffer, 1, INT32, ctypes.c_int(2))
    comm.start("ncclRecv", other, 1, INT32, ctypes.c_int(0))
    library.nccl.ncclGroupEnd()
    comm.synchronize()
    report(received=other.values(), error=comm.async_error())
    """.replace("\n    ", "\n")
    )
    assert found == {"received": [7], "error": 0}
    (path,) = tmp_path.glob("*.records")
    (exchange,) = [record for record in read_process(path).records if isinstance(record, Collective)]
    assert exchange.peers == ((2, 4, 0), (0, 0, 4))


def test_groups_have_the_same_key_in_each_process_and_the_ranks_of_the_job(alone: Alone, tmp_path: Path) -> None:
    """The first one's process makes the unique id; the other's helper gives it one, as the first one isn't there."""
    code = """
    comm = join(named("stage", 1, 3{first}), 2, {rank})
    buffer = comm.buffer(FLOAT32, [1.0] * 8)
    comm.call("ncclAllReduce", buffer, buffer, 8, FLOAT32, SUM)
    report()
    """.replace("\n    ", "\n")
    joined = []
    for rank, first in ((0, ", id=library.unique_id()"), (1, "")):
        alone(code.format(first=first, rank=rank))
        (path,) = tmp_path.glob("*.records")
        joined += read_process(path).communicators.values()
        path.unlink()
    assert joined[0].key == joined[1].key
    assert [one.rank for one in joined] == [0, 1]
    assert [[rank for rank, _ in one.members] for one in joined] == [[1, 3], [1, 3]]


def test_members_without_a_name_are_all_of_the_job_or_unknown(alone: Alone, tmp_path: Path) -> None:
    alone(
        """
    for ranks in (4, 2):
        comm = join(library.unique_id(), ranks, 1)
        buffer = comm.buffer(FLOAT32, [1.0])
        comm.call("ncclAllReduce", buffer, buffer, 1, FLOAT32, SUM)
    report()
    """.replace("\n    ", "\n")
    )
    (path,) = tmp_path.glob("*.records")
    members = [[rank for rank, _ in one.members] for one in read_process(path).communicators.values()]
    assert members == [[0, 1, 2, 3], [UNKNOWN, UNKNOWN]]


def test_a_split_has_the_color_of_the_rank_itself(alone: Alone) -> None:
    found = alone(
        """
    comm = join(library.unique_id(), 4, 1)
    made = ctypes.c_void_p()
    status = library.nccl.ncclCommSplit(comm.handle, 3, 0, ctypes.byref(made), None)
    part = Communicator(library, made, 0)
    report(status=status, rank=part.fact("ncclCommUserRank"), ranks=part.fact("ncclCommCount"))
    """.replace("\n    ", "\n")
    )
    assert found == {"status": 0, "rank": 1, "ranks": 4}


def test_thousands_of_ranks_join_at_once(alone: Alone) -> None:
    found = alone(
        """
    comm = join(named("all", *range(3072)), 3072, 1)
    buffer = comm.buffer(INT64, [2])
    comm.call("ncclAllReduce", buffer, buffer, 1, INT64, SUM)
    report(sum=buffer.values())
    """.replace("\n    ", "\n"),
        world=3072,
    )
    assert found == {"sum": [6144]}


def test_only_virtual_ranks_name_groups(alone: Alone) -> None:
    found = alone(
        """
    id = UniqueId()
    ranks = (ctypes.c_int * 1)(0)
    report(statuses=[name_group(ctypes.byref(id), b"name", ranks, 1), name_group(None, b"name", ranks, 1)])
    """.replace("\n    ", "\n"),
        world=0,
    )
    assert found == {"statuses": [4, 4]}
