"""What the core records of a program, read back by `emulator_runtime.prediction.reading`. Recorded work takes no time."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from emulator_runtime.prediction.reading import ProcessRecords, read_process, read_trace
from emulator_runtime.prediction.records import (
    Await,
    Collective,
    Copy,
    HostFunction,
    HostWaits,
    Launch,
    Mark,
    Memory,
    Record,
    WorkKind,
)
from tests.support.nccl import run_ranks, settings_text

RecordCore = Callable[..., ProcessRecords]


@pytest.fixture
def record_core(run_core: Callable[..., str], tmp_path: Path) -> RecordCore:
    """`record_core(code, **settings)`: the records of a program that the fixture `run_core` starts."""

    def run(code: str, **settings: object) -> ProcessRecords:
        run_core(code, record=tmp_path / "%p.records", **settings)
        (path,) = tmp_path.glob("*.records")
        return read_process(path)

    return run


def issued(records: ProcessRecords) -> list[Record]:
    """Without what the process's memory was."""
    return [record for record in records.records if not isinstance(record, Memory)]


def shape(records: ProcessRecords) -> list[tuple[str, int]]:
    """Kinds and streams; streams are numbered as they were made, 1 is the default stream."""
    return [(type(record).__name__, getattr(record, "stream", 0)) for record in issued(records)]


def test_launches_take_no_time_and_are_recorded_with_what_estimators_want(record_core: RecordCore) -> None:
    found = record_core("""
        stream, watch = core.stream(), Stopwatch()
        core.launch(stream, 1000)  # a millisecond each, were it not recorded
        core.work(stream, kind=1, name=b"gemm", precision=3, flops=2e9, bytes=3e6, columns=64, depth=128)
        core.synchronize(stream)
        assert watch.s < 0.5
        assert core.status("emu_stream_query", stream) == 0
    """)
    launches = [record for record in found.records if isinstance(record, Launch)]
    assert len(launches) == 1001
    assert all(launch.work is launches[0].work for launch in launches[:1000]), "equal works are one object"
    first, last = launches[0].work, launches[-1].work
    assert (first.name, first.kind, first.grid, first.block) == ("kernel", WorkKind.KERNEL, (1, 1, 1), (1, 1, 1))
    assert (last.name, last.kind, last.precision, last.flops, last.bytes) == ("gemm", WorkKind.PRODUCT, 3, 2e9, 3e6)
    assert (last.columns, last.depth) == (64, 128)
    assert launches[0].dispatched
    mark, waits = found.records[-2:]
    assert isinstance(mark, Mark)
    assert isinstance(waits, HostWaits)
    assert waits.moment == mark.moment


def test_the_host_time_of_records_is_its_own(record_core: RecordCore) -> None:
    """20 ms of the program count, 300 ms of waiting for work whose end another process decides don't."""
    found = record_core("""
        import threading
        stream, opened = core.stream(), []
        core.launch(stream)
        time.sleep(0.02)
        core.launch(stream)
        core.deferred(stream, lambda ready_ns: ready_ns if opened else None)
        threading.Timer(0.3, lambda: opened.append(1)).start()
        core.synchronize(stream)
        core.launch(stream)
    """)
    first, second, third = [record for record in found.records if isinstance(record, Launch)]
    assert 20e6 <= second.at_ns - first.at_ns < 200e6
    assert third.at_ns - second.at_ns < 200e6
    assert found.host_ns >= third.at_ns
    assert found.complete


def test_time_without_a_core_is_not_the_hosts(record_core: RecordCore) -> None:
    """Three processes compute on one core."""
    found = record_core("""
        import subprocess, sys
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(2)]
        stream = core.default_stream()
        core.launch(stream)
        began, computed = time.monotonic(), time.thread_time()
        while time.thread_time() < computed + 0.3:
            pass
        took = time.monotonic() - began
        core.launch(stream)
        for other in others:
            other.kill()
            other.wait()
        assert took > 0.5, took
    """)
    first, second = (record for record in found.records if isinstance(record, Launch))
    assert 0.3 <= (second.at_ns - first.at_ns) / 1e9 < 0.4


def test_each_record_of_an_event_is_a_moment_of_its_own(record_core: RecordCore) -> None:
    found = record_core("""
        one, two, event = core.stream(), core.stream(), core.event()
        core.wait(two, event)  # never recorded: nothing is waited for
        core.launch(one)
        core.record(one, event)
        core.wait(two, event)
        core.launch(one)
        core.record(one, event)
        core.call("emu_event_synchronize", event)
        core.launch(two)
    """)
    assert shape(found) == [
        ("Launch", 2),
        ("Mark", 2),
        ("Await", 3),
        ("Launch", 2),
        ("Mark", 2),
        ("HostWaits", 0),
        ("Launch", 3),
    ]
    _, first, awaited, _, second, waits, _ = issued(found)
    assert isinstance(first, Mark)
    assert isinstance(second, Mark)
    assert awaited == Await(awaited.at_ns, 0, 0, 3, first.moment)
    assert waits == HostWaits(waits.at_ns, 0, second.moment)
    assert first.moment != second.moment


def test_a_moment_has_passed_for_a_program_that_has_waited_for_it_or_asks_in_a_loop(record_core: RecordCore) -> None:
    """Else a program that asks before it waits wouldn't wait, and the trace would lack what a GPU needs."""
    record_core("""
        def passed(event):
            return core.status("emu_event_query", event) != NOT_READY

        one, two = core.stream(), core.stream()
        core.launch(one)
        before = core.record(one)
        core.launch(two)
        other = core.record(two)
        event = core.record(one)
        assert passed(core.event())  # never recorded
        assert not passed(event)
        core.call("emu_event_synchronize", event)
        assert passed(event) and passed(before) and not passed(other)
        core.record(one, event)
        assert not passed(event)
        core.synchronize(one)
        assert passed(event) and not passed(other)
        core.call("emu_device_synchronize", 0)
        assert passed(other)
        core.record(two, other)
        queries = 1
        while not passed(other):
            queries += 1
        assert 1 < queries < 100
        core.record(two, other)
        assert not passed(other)
        core.call("emu_stream_destroy", two)
        assert passed(other)  # it is no longer known when the host waited for the stream
    """)


def test_the_order_of_the_default_stream_and_blocking_streams_is_recorded_once(record_core: RecordCore) -> None:
    found = record_core("""
        blocking, free, default = core.stream(flags=0), core.stream(), core.default_stream()
        core.launch(blocking, 2)
        core.launch(free)
        core.launch(default, 2)
        core.launch(blocking)
    """)
    assert shape(found) == [
        ("Launch", 2),
        ("Launch", 2),
        ("Launch", 3),
        ("Mark", 2),
        ("Await", 1),
        ("Launch", 1),
        ("Launch", 1),
        ("Mark", 1),
        ("Await", 2),
        ("Launch", 2),
    ]


def test_copies_and_settings_of_memory(record_core: RecordCore) -> None:
    found = record_core(
        """
        stream, pinned = core.stream(), core.allocate(1 << 20, HOST)
        one, two = core.allocate(1 << 20), core.allocate(1 << 20, device=1)
        core.copy(stream, one, pinned, 1 << 20, blocking=False)
        core.copy(stream, two, one, 4096, blocking=False)
        core.copy(stream, one, one, 512, blocking=False)
        core.call("emu_set", stream, one, 7, c_size_t(4), c_size_t(1000))
        core.copy(stream, pinned, one, 8)
    """,
        devices=2,
    )
    copies = [record for record in found.records if isinstance(record, Copy)]
    assert [(copy.to_device, copy.from_device, copy.bytes) for copy in copies] == [
        (0, -1, 1 << 20),
        (1, 0, 4096),
        (0, 0, 512),
        (-1, 0, 8),
    ]
    (fill,) = [record for record in found.records if isinstance(record, Launch)]
    assert (fill.work.name, fill.work.kind, fill.work.bytes) == ("Memset", WorkKind.MEMORY_BOUND, 4000)
    assert not fill.dispatched
    assert shape(found)[-2:] == [("Mark", 2), ("HostWaits", 0)], "the last copy blocks"
    assert [device.memory_bytes for device in found.devices] == [1 << 30] * 2


def test_memory_is_what_the_process_has_with_its_context(record_core: RecordCore) -> None:
    found = record_core("""
        address = core.allocate(1 << 20)
        core.free(address)
    """)
    context = 1 << 20
    used = [record.used_bytes for record in found.records if isinstance(record, Memory)]
    assert used == [context, context + (1 << 20), context]
    assert found.devices[0].context_bytes == context


def test_a_graph_is_recorded_at_each_launch_as_its_parts(record_core: RecordCore) -> None:
    found = record_core("""
        one, two = core.stream(), core.stream()
        core.call("emu_capture_begin", one, None)
        fork = core.record(one)
        core.wait(two, fork)
        core.launch(two)
        core.launch(one)
        core.wait(one, core.record(two))
        graph = core.made("emu_capture_end", one)
        for _ in range(2):
            core.call("emu_graph_launch", graph, one)
        core.call("emu_device_synchronize", 0)
    """)
    parts = [("Mark", 2), ("Await", 4), ("Launch", 4), ("Launch", 2), ("Mark", 4), ("Await", 2)]
    assert shape(found)[:12] == parts * 2
    assert not any(record.dispatched for record in found.records if isinstance(record, Launch))
    moments = [record.moment for record in found.records if isinstance(record, Mark)]
    assert len(moments) == len(set(moments))


def test_a_function_of_the_host_has_its_duration(record_core: RecordCore) -> None:
    found = record_core("""
        stream = core.stream()
        core.host_function(stream, lambda: time.sleep(0.05))
        core.launch(stream)
        core.synchronize(stream)
    """)
    assert shape(found)[:2] == [("HostFunction", 2), ("Launch", 2)]
    function = issued(found)[0]
    assert isinstance(function, HostFunction)
    assert 50e6 <= function.duration_ns < 500e6


def test_threads_are_numbered_as_they_come(record_core: RecordCore) -> None:
    found = record_core("""
        import threading
        stream = core.stream()
        core.launch(stream)
        for _ in range(2):
            thread = threading.Thread(target=core.launch, args=(stream,))
            thread.start(), thread.join()
        core.launch(stream)
    """)
    assert [record.thread for record in found.records if isinstance(record, Launch)] == [0, 1, 2, 0]


def test_a_killed_process_leaves_what_it_had_recorded(run_core: Callable[..., str], tmp_path: Path) -> None:
    code = "core.launch(core.stream(), 50_000); os.kill(os.getpid(), 9)"
    run_core(code, expect=-9, record=tmp_path / "%p.records")
    (path,) = tmp_path.glob("*.records")
    found = read_process(path)
    assert not found.complete
    assert sum(isinstance(record, Launch) for record in found.records) == 50_000


def test_a_process_that_only_counts_devices_records_nothing(run_core: Callable[..., str], tmp_path: Path) -> None:
    run_core("assert core.library.emu_device_count() == 1", record=tmp_path / "%p.records")
    assert not list(tmp_path.glob("*.records"))


def test_a_forked_child_leaves_its_parents_file_alone(record_core: RecordCore) -> None:
    found = record_core("""
        import sys
        stream = core.stream()
        core.launch(stream)
        child = os.fork()
        if child == 0:
            core.status("emu_stream_query", stream)
            sys.exit(0)  # not by os._exit: functions that were registered for the end run in the child
        os.waitpid(child, 0)
        core.launch(stream)
    """)
    assert shape(found) == [("Launch", 2), ("Launch", 2)]
    assert found.complete


def test_a_folder_that_is_not_there_is_said_and_the_program_goes_on(
    run_core: Callable[..., str], tmp_path: Path
) -> None:
    printed = run_core("core.launch(core.stream()); print('goes on')", record=tmp_path / "nowhere" / "r.records", log=1)
    assert "the records end here" in printed
    assert "No such file or directory" in printed
    assert "goes on" in printed


@pytest.mark.processes
def test_collectives_have_their_communicator_and_number_on_each_rank(tmp_path: Path) -> None:
    program = """
library, comm = main_rank()
r, n = comm.fact("ncclCommUserRank"), comm.fact("ncclCommCount")
buffer, more = comm.buffer(FLOAT32, [1.0] * 1000), comm.buffer(FLOAT32, [1.0] * 2000)
comm.call("ncclAllReduce", buffer, buffer, 1000, FLOAT32, SUM)
time.sleep(0.5 * r)
comm.call("ncclAllGather", buffer, more, 1000, FLOAT32)
library.nccl.ncclGroupStart()
comm.start("ncclAllReduce", buffer, buffer, 10, FLOAT32, SUM)
comm.start("ncclAllReduce", more, more, 20, FLOAT32, SUM)
library.nccl.ncclGroupEnd()
library.nccl.ncclGroupStart()
comm.start("ncclSend", buffer, 100, FLOAT32, 1 - r)
comm.start("ncclRecv", more, 100, FLOAT32, 1 - r)
library.nccl.ncclGroupEnd()
comm.call("ncclReduceScatter", more, buffer, 500, FLOAT32, SUM)
report(now=library.now_ns())
"""
    text = settings_text(2).replace("estimator constant", f"record {tmp_path}/process-%p.records\nestimator constant")
    (tmp_path / "settings").write_text(text, encoding="ascii")
    run_ranks(program, 2, tmp_path)
    ranks = read_trace(tmp_path).ranks
    assert [rank.rank for rank in ranks] == [0, 1]
    keys = set()
    for rank in ranks:
        found = [record for record in rank.records if isinstance(record, Collective)]
        assert [(one.operation, one.number, one.bytes) for one in found] == [
            ("all_reduce", 0, 4000),
            ("all_gather", 1, 8000),
            ("all_reduce", 2, 120),  # a group's are one kernel
            ("send_receive", 0, 400),
            ("reduce_scatter", 4, 4000),
        ]
        other = 1 - rank.rank
        assert found[3].peers == ((other, 400, 0), (other, 0, 400))
        (communicator,) = rank.communicators.values()
        assert communicator.rank == rank.rank == found[0].device
        assert [device for _, device in communicator.members] == [0, 1]
        assert len({host for host, _ in communicator.members}) == 1
        keys.add(communicator.key)
        assert found[0].communicator == communicator.number
    assert len(keys) == 1
    waited = [record for record in ranks[0].records if isinstance(record, Collective)]
    assert waited[2].at_ns - waited[1].at_ns < 250e6, (
        "rank 0 waited half a second for rank 1, which is no time of its host"
    )
