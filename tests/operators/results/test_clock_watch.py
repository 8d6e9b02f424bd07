from __future__ import annotations

import itertools
import threading

from emulator_runtime.timing.host import wall_ns
from operators.results.clock_watch import ClockWatch
from operators.results.clocks import ClockUnknownError


def clock(ahead_s):
    return (wall_ns() + round(ahead_s * 10**9)) // 10**9


def test_each_node_is_measured_and_one_that_is_away_holds_up_no_other(capsys):
    ahead = {"n1": 5.0, "n3": -3.0}

    def ask(node, host, port):
        assert (host, port) == (f"{node}.example", 9)
        if node not in ahead:
            raise ClockUnknownError(f"node {node}: is away")
        return clock(ahead[node])

    noted = []
    addresses = {node: (f"{node}.example", 9) for node in ("n1", "n2", "n3")}
    watch = ClockWatch(lambda: addresses, noted.append, wall_ns, ask=ask)
    watch._sleep = lambda _ns: None  # the width of a second is enough here
    watch.round()
    watch.round()
    assert [offset.node for offset in noted] == ["n1", "n3", "n1", "n3"]
    for offset in noted:
        assert abs(offset.ahead_ns - ahead[offset.node] * 1e9) <= offset.uncertain_ns + 1_000_000
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


def test_a_stop_ends_a_measurement_under_way():
    asked = threading.Event()

    def ask(*_):
        asked.set()
        return clock(0)

    watch = ClockWatch(lambda: {"n1": ("h", 1)}, lambda _offset: None, wall_ns, ask=ask)
    watch.start()
    assert asked.wait(10)
    watch.stop()
    assert not watch._thread.is_alive()
