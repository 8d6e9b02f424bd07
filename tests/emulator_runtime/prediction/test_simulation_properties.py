"""What holds for every trace: order in a stream, one thing at a time on an engine, waits that are kept, equal results."""

from __future__ import annotations

import itertools
from collections import defaultdict

from hypothesis import given, settings
from hypothesis import strategies as st

from emulator_runtime.prediction.records import Await, Collective, Copy, HostFunction, HostWaits, Launch, Mark
from emulator_runtime.prediction.simulation import RankRun
from tests.support.traces import Host, Stated, hosts, run, times

DONE = Launch | Copy | HostFunction | Collective

calls = st.tuples(
    st.sampled_from(["launch", "in", "out", "function", "mark", "wait", "synchronize", "all_reduce", "exchange"]),
    st.integers(0, 3),  # stream
    st.integers(0, 50),  # duration
    st.integers(0, 20),  # host time before
    st.integers(0, 1),  # thread
)
programs = st.lists(calls, max_size=60)
delays = st.lists(st.integers(0, 100), min_size=1, max_size=4)


def write(host: Host, program: list[tuple[str, int, int, int, int]], delay: int) -> None:
    """The same calls on each rank; only the host's times differ."""
    number, marked, ranks = 0, 0, len(host.communicators[0].members)
    host.at = delay
    for call, stream, duration, gap, thread in program:
        host.at += gap + delay
        host.thread = thread
        if call == "launch":
            host.launch(duration, stream)
        elif call == "in":
            host.copy(duration, stream)
        elif call == "out":
            host.copy(duration, stream, to=-1, source=0)
        elif call == "function":
            host.function(duration, stream)
        elif call == "mark":
            marked = host.mark(stream)
        elif call == "wait" and marked:
            host.wait(marked, stream)
        elif call == "synchronize" and marked:
            host.synchronize(marked)
        elif call == "all_reduce":
            host.all_reduce(number, duration, stream=9)
            number += 1
        elif call == "exchange" and ranks > 1:
            after, before = (host.rank + 1) % ranks, (host.rank - 1) % ranks
            host.exchange((after, 8, 0), (before, 0, 8), duration=duration, stream=8)


def simulated(program: list[tuple[str, int, int, int, int]], late: list[int], stated: Stated) -> tuple[RankRun, ...]:
    ranks = hosts(len(late))
    for host, delay in zip(ranks, late, strict=True):
        write(host, program, delay)
    return run(*ranks, stated=stated)


@settings(max_examples=200, deadline=None)
@given(programs, delays, st.sampled_from([0, 15]))
def test_rules_hold(program: list[tuple[str, int, int, int, int]], late: list[int], dispatch_ns: int) -> None:
    runs = simulated(program, late, Stated(dispatch_ns))
    for done in runs:
        spans = {**times(done)}
        records = done.trace.records
        ends: defaultdict[int, int] = defaultdict(int)
        moments: dict[int, int] = {}
        busy: defaultdict[str, int] = defaultdict(int)
        for index, record in enumerate(records):
            if isinstance(record, DONE):
                start, end = spans[index]
                assert start >= max(ends[record.stream], record.at_ns), "order in a stream, and behind the host"
                assert end >= start
                ends[record.stream] = end
                if isinstance(record, Launch):
                    busy["compute"] += int(record.work.bytes)
                    assert end - start >= record.work.bytes
            elif isinstance(record, Mark):
                moments[record.moment] = max(ends[record.stream], record.at_ns)
            elif isinstance(record, Await):
                ends[record.stream] = max(ends[record.stream], moments[record.moment])
            elif isinstance(record, HostWaits):
                assert spans[index][1] >= moments[record.moment]
        for engine in done.compute.values():
            taken = list(zip(engine.starts, engine.ends, strict=True))
            assert all(start < end for start, end in taken)
            assert all(one[1] < two[0] for one, two in itertools.pairwise(taken)), "one thing at a time"
            assert sum(end - start for start, end in taken) == busy["compute"]


@settings(max_examples=100, deadline=None)
@given(programs, delays)
def test_collectives_begin_and_end_together(program: list[tuple[str, int, int, int, int]], late: list[int]) -> None:
    together: defaultdict[int, set[tuple[int, int]]] = defaultdict(set)
    for done in simulated(program, late, Stated()):
        spans = done.collectives
        for index, start, end, arrival in zip(
            spans.records, spans.starts_ns, spans.ends_ns, done.arrivals_ns, strict=True
        ):
            record = done.trace.records[index]
            assert isinstance(record, Collective)
            assert arrival <= start
            if record.operation == "all_reduce":
                together[record.number].add((start, end))
    assert all(len(times) == 1 for times in together.values())


@settings(max_examples=100, deadline=None)
@given(programs, delays)
def test_the_same_trace_has_the_same_result(program: list[tuple[str, int, int, int, int]], late: list[int]) -> None:
    one, two = (simulated(program, late, Stated()) for _ in range(2))
    assert [(times(done), done.end_ns) for done in one] == [(times(done), done.end_ns) for done in two]
