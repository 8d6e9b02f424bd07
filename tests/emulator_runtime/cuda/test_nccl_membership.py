"""Communicators of the emulated NCCL: making them from ids and from others, sends and receives, and what a lost rank does."""

from __future__ import annotations

import os
import signal
import socket
import struct
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.support.nccl import (
    IN_PROGRESS,
    INVALID_ARGUMENT,
    INVALID_USAGE,
    REMOTE,
    results,
    run_ranks,
    start_ranks,
)

pytestmark = pytest.mark.processes


def test_sends_and_receives_match_in_order(tmp_path: Path) -> None:
    """A ring of grouped exchanges, then messages of different size, then a pipeline of stages."""
    program = """
library, comm = main_rank()
r, n = comm.fact("ncclCommUserRank"), comm.fact("ncclCommCount")
def exchange():
    send, receive = comm.buffer(INT32, [r]), comm.buffer(INT32, [-1])
    library.nccl.ncclGroupStart()
    assert comm.start("ncclSend", send, 1, INT32, (r + 1) % n) == SUCCESS
    assert comm.start("ncclRecv", receive, 1, INT32, (r - 1) % n) == SUCCESS
    check(library, library.nccl.ncclGroupEnd())
    comm.synchronize()
    return receive.values()
ring = exchange()
got = []
if r == 0:
    for size in (1, 2, 3):
        comm.call("ncclSend", comm.buffer(INT64, [10 * size] * size), size, INT64, 1)
elif r == 1:
    buffers = [comm.buffer(INT64, [0] * size) for size in (1, 2, 3)]
    for size, buffer in zip((1, 2, 3), buffers):
        assert comm.start("ncclRecv", buffer, size, INT64, 0) == SUCCESS
    comm.synchronize()
    got = [buffer.values() for buffer in buffers]
stage = comm.buffer(FLOAT32, [0.0])
for microbatch in range(8):
    if r > 0:
        assert comm.start("ncclRecv", stage, 1, FLOAT32, r - 1) == SUCCESS
    if r < n - 1:
        assert comm.start("ncclSend", stage, 1, FLOAT32, r + 1) == SUCCESS
for microbatch in range(8):
    if r < n - 1:
        assert comm.start("ncclRecv", stage, 1, FLOAT32, r + 1) == SUCCESS
    if r > 0:
        assert comm.start("ncclSend", stage, 1, FLOAT32, r - 1) == SUCCESS
comm.synchronize()
report(ring=ring, got=got)
"""
    found = run_ranks(program, 3, tmp_path)
    assert [values["ring"] for values in found] == [[2], [0], [1]]
    assert found[1]["got"] == [[10], [20, 20], [30, 30, 30]]


def test_split_shrink_and_grow(tmp_path: Path) -> None:
    program = """
import ctypes
library, comm = main_rank()
r, n = comm.fact("ncclCommUserRank"), comm.fact("ncclCommCount")
def total(of):
    receive = of.buffer(INT32, [0])
    of.call("ncclAllReduce", of.buffer(INT32, [10 ** r]), receive, 1, INT32, SUM)
    return [of.fact("ncclCommUserRank"), of.fact("ncclCommCount"), receive.values()[0]]
def made(function, *arguments):
    handle = ctypes.c_void_p()
    check(library, function(comm.handle, *arguments, ctypes.byref(handle), *rest))
    return Communicator(library, handle, comm.device) if handle.value else None
out = {}
rest = [None]
out["parity"] = total(made(library.nccl.ncclCommSplit, r % 2, -r))
lonely = made(library.nccl.ncclCommSplit, 0 if r < 3 else -1, 0)
out["three"] = total(lonely) if lonely else None
rest = [None, 0]
if r != 1:
    out["shrunk"] = total(made(library.nccl.ncclCommShrink, (ctypes.c_int * 1)(1), 1))
report(**out)
"""
    found = run_ranks(program, 4, tmp_path)
    assert [values["parity"] for values in found] == [[1, 2, 101], [1, 2, 1010], [0, 2, 101], [0, 2, 1010]]
    assert [values["three"] for values in found] == [[0, 3, 111], [1, 3, 111], [2, 3, 111], None]
    assert [values.get("shrunk") for values in found] == [[0, 3, 1101], None, [1, 3, 1101], [2, 3, 1101]]


def test_new_ranks_join_a_communicator(tmp_path: Path) -> None:
    program = """
import ctypes, pathlib, time
library = Library()
r = int(os.environ["RANK"])
path = pathlib.Path(os.environ["ID_FILE"] + "2")
handle, grow = ctypes.c_void_p(), library.nccl.ncclCommGrow
library.use_device(r)
def shared(made=None):
    if made is not None:
        path.with_suffix(".new").write_bytes(bytes(made))
        path.with_suffix(".new").rename(path)
    while not path.exists():
        time.sleep(0.01)
    return UniqueId.from_buffer_copy(path.read_bytes())
if r < 2:
    comm = Communicator.join(library, shared_id(library, r), 2, r, r)
    if r == 0:
        made = UniqueId()
        check(library, library.nccl.ncclCommGetUniqueId(comm.handle, ctypes.byref(made)))
        shared(made)
    given = ctypes.byref(made) if r == 0 else None
    check(library, grow(comm.handle, 3, given, -1, ctypes.byref(handle), None))
else:
    check(library, grow(None, 3, ctypes.byref(shared()), 2, ctypes.byref(handle), None))
larger = Communicator(library, handle, r)
receive = larger.buffer(INT32, [0])
larger.call("ncclAllReduce", larger.buffer(INT32, [10 ** r]), receive, 1, INT32, SUM)
report(rank=larger.fact("ncclCommUserRank"), total=receive.values())
"""
    assert run_ranks(program, 3, tmp_path) == [{"rank": r, "total": [111]} for r in range(3)]


def test_comm_id_variable_names_rank_0_s_address(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    program = """
library = Library()
r = int(os.environ["RANK"])
time.sleep(0.5 * (r == 0))
comm = Communicator.join(library, library.unique_id(), 2, r, r)
receive = comm.buffer(INT32, [0])
comm.call("ncclAllReduce", comm.buffer(INT32, [r + 1]), receive, 1, INT32, SUM)
report(total=receive.values())
"""
    assert run_ranks(program, 2, tmp_path, NCCL_COMM_ID=f"127.0.0.1:{port}") == [{"total": [3]}] * 2


def test_a_communicator_that_does_not_block_is_in_progress_until_all_have_come(tmp_path: Path) -> None:
    program = """
import ctypes
library = Library()
r = int(os.environ["RANK"])
made = shared_id(library, r)
time.sleep(0.5 * r)
library.use_device(r)
handle, settings = ctypes.c_void_p(), config(0)
first = library.nccl.ncclCommInitRankConfig(ctypes.byref(handle), 2, made, r, ctypes.byref(settings))
comm = Communicator(library, handle, r)
early = comm.async_error()
refused = comm.start("ncclAllReduce", comm.buffer(INT32, [1]), comm.buffer(INT32, [1]), 1, INT32, SUM) if r == 0 else 0
while comm.async_error() == IN_PROGRESS:
    time.sleep(0.01)
receive = comm.buffer(INT32, [0])
comm.call("ncclAllReduce", comm.buffer(INT32, [r + 1]), receive, 1, INT32, SUM)
report(first=first, early=early, refused=refused, total=receive.values())
"""
    first, _second = run_ranks(program, 2, tmp_path)
    assert first == {"first": IN_PROGRESS, "early": IN_PROGRESS, "refused": INVALID_ARGUMENT, "total": [3]}


def test_wrong_arguments(tmp_path: Path) -> None:
    program = """
import ctypes
library, comm = main_rank()
nccl, handle = library.nccl, ctypes.c_void_p()
made = library.unique_id()
buffer = comm.buffer(INT32, [1])
bad_config = config(1)
bad_config.magic = 1
init = nccl.ncclCommInitRankConfig
report(
    version=nccl.ncclGetVersion(None),
    id=nccl.ncclGetUniqueId(None),
    rank=init(ctypes.byref(handle), 2, made, 2, None),
    ranks=init(ctypes.byref(handle), 0, made, 0, None),
    empty_id=init(ctypes.byref(handle), 2, UniqueId(), 0, None),
    config=init(ctypes.byref(handle), 1, made, 0, ctypes.byref(bad_config)),
    no_output=init(None, 1, made, 0, None),
    datatype=comm.start("ncclAllReduce", buffer, buffer, 1, 12, SUM),
    operator=comm.start("ncclAllReduce", buffer, buffer, 1, INT32, 5),
    root=comm.start("ncclBroadcast", buffer, buffer, 1, INT32, 7),
    peer=comm.start("ncclSend", buffer, 1, INT32, -1),
    count=comm.start("ncclAllReduce", buffer, buffer, 2**63, INT32, SUM),
    null=comm.start("ncclAllReduce", None, buffer, 1, INT32, SUM),
    end=comm.start("ncclAllReduce", ctypes.c_void_p(2**64 - 4), buffer, 1, INT32, SUM),
    group=nccl.ncclGroupEnd(),
    destroyed=[nccl.ncclCommDestroy(comm.handle), nccl.ncclCommDestroy(comm.handle), nccl.ncclCommDestroy(None)],
    after=comm.start("ncclAllReduce", buffer, buffer, 1, INT32, SUM),
)
"""
    (found,) = run_ranks(program, 1, tmp_path)
    assert found.pop("group") == INVALID_USAGE
    assert found.pop("destroyed") == [0, INVALID_ARGUMENT, 0]
    assert set(found.values()) == {INVALID_ARGUMENT}


def test_two_ranks_on_one_device_are_refused(tmp_path: Path) -> None:
    program = """
try:
    main_rank()
except RuntimeError as error:
    report(error=str(error))
"""
    for values in results(start_ranks(program, 2, tmp_path, of_rank=lambda _: {"DEVICE": "0"})):
        assert values["error"].startswith(f"{INVALID_USAGE}:")
        assert "Duplicate GPU detected" in values["error"]


def test_a_wrong_secret_is_refused_and_the_others_go_on(tmp_path: Path) -> None:
    program = """
library = Library()
r = int(os.environ["RANK"])
made = shared_id(library, r)
if r == 2:
    data = bytearray(bytes(made))
    data[20] ^= 1
    try:
        Communicator.join(library, UniqueId.from_buffer_copy(data), 2, 1, r)
    except RuntimeError as error:
        report(error=str(error))
else:
    time.sleep(r)
    comm = Communicator.join(library, made, 2, r, r)
    receive = comm.buffer(INT32, [0])
    comm.call("ncclAllReduce", comm.buffer(INT32, [r + 1]), receive, 1, INT32, SUM)
    report(total=receive.values())
"""
    first, second, stranger = run_ranks(program, 3, tmp_path)
    assert first == second == {"total": [3]}
    assert stranger["error"].startswith(f"{REMOTE}:")


def test_an_id_of_a_process_that_has_gone_fails(tmp_path: Path) -> None:
    program = """
library = Library()
r = int(os.environ["RANK"])
made = shared_id(library, r)
if r == 1:
    time.sleep(1)
    try:
        Communicator.join(library, made, 2, r, r)
    except RuntimeError as error:
        report(error=str(error))
else:
    report()
"""
    began_s = time.monotonic()
    _gone, found = run_ranks(program, 2, tmp_path)
    assert found["error"].startswith("2:"), found
    assert time.monotonic() - began_s < 60


_HOSTILE_S = 20


def _port_of(path: Path) -> int:
    """The port in a unique id: behind magic number, key and address family."""
    deadline_s = time.monotonic() + _HOSTILE_S
    while not path.exists():
        assert time.monotonic() < deadline_s
        time.sleep(0.01)
    return int(struct.unpack_from("<H", path.read_bytes(), 8 + 32 + 2)[0])


def test_hostile_bytes_do_no_harm(tmp_path: Path) -> None:
    """Random data, half a frame, huge frames, many silent connections: the communicator works before, while and after."""
    program = """
library, comm = main_rank()
r = comm.fact("ncclCommUserRank")
receive = comm.buffer(INT32, [0])
end_s = time.monotonic() + 3
while True:
    going = comm.buffer(INT32, [time.monotonic() < end_s])
    comm.call("ncclBroadcast", going, going, 1, INT32, 0)
    comm.call("ncclAllReduce", comm.buffer(INT32, [r + 1]), receive, 1, INT32, SUM)
    if not going.values()[0]:
        break
    time.sleep(0.01)
report(total=receive.values())
"""
    processes = start_ranks(program, 2, tmp_path)
    port = _port_of(tmp_path / "id")
    with ExitStack() as strangers:
        for index in range(300):
            connection = strangers.enter_context(socket.create_connection(("127.0.0.1", port), timeout=5))
            match index % 5:
                case 0:
                    connection.sendall(os.urandom(1000))
                case 1:
                    connection.sendall(struct.pack("<II", 0xFFFFFFFF, 1))
                case 2:
                    connection.sendall(struct.pack("<II", 136, 1) + b"x" * 50)
                case 3:
                    connection.sendall(struct.pack("<II", 0, 8) * 100)
                case _:
                    pass
        assert results(processes) == [{"total": [3]}] * 2


def _greetings_unread(port: int) -> int:
    """How many established connections to the port have bytes that its process hasn't read."""
    rows = [row.split() for row in Path("/proc/net/tcp").read_text(encoding="ascii").splitlines()[1:]]
    return sum(row[1].endswith(f":{port:04X}") and row[3] == "01" and not row[4].endswith(":00000000") for row in rows)


def test_a_rank_that_strangers_crowd_out_joins_nevertheless(tmp_path: Path) -> None:
    """The process of the id wakes up with a rank's greeting and 200 later connections: the rank's is closed as the oldest one."""
    program = """
if os.environ["RANK"] == "1":
    while not Path(os.environ["ID_FILE"]).with_suffix(".go").exists():
        time.sleep(0.01)
library, comm = main_rank()
receive = comm.buffer(INT32, [0])
comm.call("ncclAllReduce", comm.buffer(INT32, [comm.fact("ncclCommUserRank") + 1]), receive, 1, INT32, SUM)
report(total=receive.values())
"""
    processes = start_ranks(program, 2, tmp_path)
    port = _port_of(tmp_path / "id")
    processes[0].send_signal(signal.SIGSTOP)
    before = _greetings_unread(port)
    (tmp_path / "id.go").touch()
    deadline_s = time.monotonic() + _HOSTILE_S
    while _greetings_unread(port) == before and time.monotonic() < deadline_s:
        time.sleep(0.01)
    with ExitStack() as crowd:
        for _ in range(200):
            crowd.enter_context(socket.create_connection(("127.0.0.1", port), timeout=5))
        processes[0].send_signal(signal.SIGCONT)
        assert results(processes) == [{"total": [3]}] * 2


_LOSS = """
import signal
library, comm = main_rank()
r = comm.fact("ncclCommUserRank")
receive = comm.buffer(INT32, [0])
comm.call("ncclAllReduce", comm.buffer(INT32, [r + 1]), receive, 1, INT32, SUM)
if r == VICTIM:
    time.sleep(0.3)
    os.kill(os.getpid(), signal.SIGKILL)
first = comm.async_error()
began_s = time.monotonic()
comm.call("ncclAllReduce", comm.buffer(INT32, [r + 1]), receive, 1, INT32, SUM)
waited_s = time.monotonic() - began_s
error = comm.async_error()
next_call = comm.start("ncclAllReduce", receive, receive, 1, INT32, SUM)
aborted = library.nccl.ncclCommAbort(comm.handle)
report(first=first, waited=waited_s, error=error, next_call=next_call, aborted=aborted)
"""


@pytest.mark.parametrize("victim", [0, 1])
def test_a_lost_rank_ends_what_waits_for_it(victim: int, tmp_path: Path) -> None:
    found = results(start_ranks(f"VICTIM = {victim}{_LOSS}", 3, tmp_path))
    assert found.pop(victim) == {}
    for values in found:
        assert values.pop("waited") < 10
        assert values == {"first": 0, "error": REMOTE, "next_call": REMOTE, "aborted": 0}


def test_survivors_of_a_lost_rank_make_a_smaller_communicator(tmp_path: Path) -> None:
    program = """
import ctypes, signal
library, comm = main_rank()
r = comm.fact("ncclCommUserRank")
if r == 0:
    os.kill(os.getpid(), signal.SIGKILL)
one = comm.buffer(INT32, [r])
comm.call("ncclAllReduce", one, one, 1, INT32, SUM)
handle = ctypes.c_void_p()
check(library, library.nccl.ncclCommShrink(comm.handle, (ctypes.c_int * 1)(0), 1, ctypes.byref(handle), None, 1))
smaller = Communicator(library, handle, comm.device)
receive = smaller.buffer(INT32, [0])
smaller.call("ncclAllReduce", smaller.buffer(INT32, [r]), receive, 1, INT32, SUM)
report(total=receive.values())
"""
    assert run_ranks(program, 3, tmp_path)[1:] == [{"total": [3]}] * 2


def test_a_rank_that_ends_in_order_does_not_disturb_the_others(tmp_path: Path) -> None:
    """Rank 0, whose process coordinates, ends first; the others still send to each other."""
    program = """
library, comm = main_rank()
r = comm.fact("ncclCommUserRank")
buffer = comm.buffer(INT32, [r])
comm.call("ncclAllReduce", buffer, buffer, 1, INT32, SUM)
if r:
    time.sleep(0.5)
    comm.call("ncclSend" if r == 1 else "ncclRecv", buffer, 1, INT32, 3 - r)
report(error=comm.async_error())
"""
    assert run_ranks(program, 3, tmp_path) == [{"error": 0}] * 3


def test_abort_frees_a_thread_that_waits(tmp_path: Path) -> None:
    program = """
import threading
library, comm = main_rank()
r = comm.fact("ncclCommUserRank")
if r == 0:
    buffer = comm.buffer(INT32, [r])
    assert comm.start("ncclAllReduce", buffer, buffer, 1, INT32, SUM) == SUCCESS
    waiter = threading.Thread(target=comm.synchronize)
    waiter.start()
    time.sleep(0.5)
    before = waiter.is_alive()
    status = library.nccl.ncclCommAbort(comm.handle)
    waiter.join(10)
    report(before=before, status=status, after=waiter.is_alive())
else:
    time.sleep(1)
"""
    assert run_ranks(program, 2, tmp_path)[0] == {"before": True, "status": 0, "after": False}


def test_revoke_ends_work_and_keeps_the_communicator(tmp_path: Path) -> None:
    program = """
import ctypes
library, comm = main_rank()
r = comm.fact("ncclCommUserRank")
buffer = comm.buffer(INT32, [r])
if r == 0:
    assert comm.start("ncclAllReduce", buffer, buffer, 1, INT32, SUM) == SUCCESS
revoked = library.nccl.ncclCommRevoke(comm.handle, 0)
comm.synchronize()
report(revoked=revoked, after=comm.start("ncclAllReduce", buffer, buffer, 1, INT32, SUM), size=comm.fact("ncclCommCount"))
"""
    assert run_ranks(program, 2, tmp_path) == [{"revoked": 0, "after": INVALID_USAGE, "size": 2}] * 2


def test_collectives_that_disagree_fail_instead_of_hanging(tmp_path: Path) -> None:
    program = """
library, comm = main_rank()
r = comm.fact("ncclCommUserRank")
buffer = comm.buffer(INT32, [r, r, r])
comm.call("ncclAllReduce", buffer, buffer, 2 + r, INT32, SUM)
report(error=comm.async_error())
"""
    assert run_ranks(program, 2, tmp_path) == [{"error": INVALID_USAGE}] * 2


def test_a_child_process_does_not_hold_connections(tmp_path: Path) -> None:
    """A data loader's worker outlives its parent: the other rank still sees that the parent has gone."""
    program = """
import signal
library, comm = main_rank()
r = comm.fact("ncclCommUserRank")
buffer = comm.buffer(INT32, [r])
comm.call("ncclAllReduce", buffer, buffer, 1, INT32, SUM)
if r == 1:
    if os.fork() == 0:
        os.close(1); os.close(2)
        time.sleep(15)
        os._exit(0)
    os.kill(os.getpid(), signal.SIGKILL)
began_s = time.monotonic()
comm.call("ncclAllReduce", buffer, buffer, 1, INT32, SUM)
report(error=comm.async_error(), fast=time.monotonic() - began_s < 10)
"""
    assert run_ranks(program, 2, tmp_path)[0] == {"error": REMOTE, "fast": True}
