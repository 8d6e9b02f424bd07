from __future__ import annotations

import itertools
import threading

import pytest

from emulator_runtime.domain.errors import ClusterError
from emulator_runtime.timing.host import wall_ns
from operators.results.clock_watch import ClockWatch
from operators.results.clocks import ClockUnknownError


class Time:
    """A clock that only sleeping moves on."""

    def __init__(self):
        self.ns = 1_700_000_000_123_456_789

    def now_ns(self):
        return self.ns

    def sleep(self, duration_ns):
        self.ns += duration_ns

    def second(self, ahead_s=0.0):
        return (self.ns + round(ahead_s * 10**9)) // 10**9


def test_each_node_is_measured_and_one_that_is_away_holds_up_no_other(capsys):
    ahead, time = {"n1": 5.0, "n3": -3.25}, Time()

    def ask(node, host, port):
        assert (host, port) == (f"{node}.example", 9)
        if node not in ahead:
            raise ClockUnknownError(f"node {node}: is away")
        return time.second(ahead[node])

    noted = []
    addresses = {node: (f"{node}.example", 9) for node in ("n1", "n2", "n3")}
    watch = ClockWatch(lambda: addresses, noted.append, time.now_ns, ask=ask, at_once=1)
    watch._sleep = time.sleep
    watch.round()
    watch.round()
    assert [offset.node for offset in noted] == ["n1", "n3", "n1", "n3"]
    for offset in noted:
        assert abs(offset.ahead_ns - ahead[offset.node] * 1e9) <= offset.uncertain_ns
    assert capsys.readouterr().err == "clocks: node n2: is away\n"


def test_the_thread_outlives_any_trouble_and_stops_at_once(capsys):
    calls, often = itertools.count(1), threading.Event()

    def addresses():
        if next(calls) >= 3:
            often.set()
        raise OSError("no list of nodes")

    watch = ClockWatch(addresses, lambda _offset: None, wall_ns, every_s=0.01)
    watch.start()
    assert often.wait(10)
    watch.stop()
    watch.stop()
    assert not watch._thread.is_alive()
    assert capsys.readouterr().err == "clocks: no list of nodes\n"


@pytest.mark.parametrize("at_once", [1, 4])
def test_a_few_nodes_are_measured_at_a_time(at_once):
    """Each question is held until as many are under way as may be: one by one they would never be."""
    together, most, noted = threading.Barrier(at_once), 0, []

    def ask(*_):
        nonlocal most
        together.wait(10)
        most = max(most, sum(thread.name.startswith("emugpu-clock_") for thread in threading.enumerate()))
        raise ClockUnknownError("is away")

    nodes = {f"n{number}": ("h", 1) for number in range(8)}
    watch = ClockWatch(lambda: nodes, noted.append, wall_ns, ask=ask, at_once=at_once)
    assert watch.round()
    assert (most, noted, watch._troubles) == (at_once, [], dict.fromkeys(nodes, "is away"))


def test_what_is_measured_and_can_not_be_noted_is_told_of_that_node(capsys):
    def note(offset):
        raise ClusterError(f"{offset.node}: no room")

    time = Time()
    watch = ClockWatch(lambda: {"n1": ("h", 1)}, note, time.now_ns, ask=lambda *_: time.second(), at_once=1)
    watch._sleep = time.sleep
    assert watch.round()
    assert capsys.readouterr().err == "clocks: n1: no room\n"


def test_a_stop_ends_a_round_under_way_without_half_a_measurement(capsys):
    asked, nodes, noted = threading.Event(), set(), []

    def ask(node, *_):
        nodes.add(node)
        asked.set()
        return wall_ns() // 10**9

    two = {"n1": ("h", 1), "n2": ("h", 1)}
    watch = ClockWatch(lambda: two, noted.append, wall_ns, ask=ask, at_once=1)
    watch.start()
    assert asked.wait(10)
    watch.stop()
    assert not watch._thread.is_alive()
    assert (nodes, capsys.readouterr().err) == ({"n1"}, "")
    assert all(offset.uncertain_ns <= 50_000_000 for offset in noted)
