"""Utilisation over the last second, and the snapshot of a node."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator_runtime.memory.rules import Reservation
from sharing_manager.devices.busy_time import WINDOW_NS, BusyTime

GIB = 1024**3
MS = 1_000_000


def test_the_share_of_the_last_second():
    busy = BusyTime()
    assert busy.share(5 * WINDOW_NS) == 0
    busy.add(0, 250 * MS, 0)
    assert busy.share(WINDOW_NS) == 0.25
    assert busy.share(100 * MS) == 0.1  # what is still to come doesn't count
    busy.add(WINDOW_NS, WINDOW_NS + 500 * MS, WINDOW_NS)
    assert busy.share(WINDOW_NS + 125 * MS) == 0.25
    assert busy.share(WINDOW_NS + 500 * MS) == 0.5
    busy.cut(WINDOW_NS + 100 * MS)
    assert busy.share(WINDOW_NS + 500 * MS) == 0.1
    assert busy.share(9 * WINDOW_NS) == 0


@given(st.lists(st.tuples(st.integers(0, 300), st.integers(1, 300)), max_size=40), st.integers(0, 1_500))
def test_it_is_what_counting_says(steps, later):
    busy, now, free, intervals = BusyTime(), 0, 0, []
    for pause, duration in steps:
        now += pause * MS
        start = max(now, free)
        free = start + duration * MS
        busy.add(start, free, now)
        intervals.append((start, free))
    at = now + later * MS
    counted = sum(max(0, min(e, at) - max(s, at - WINDOW_NS)) for s, e in intervals)
    assert busy.share(at) == pytest.approx(counted / WINDOW_NS)
    assert 0 <= busy.share(at) <= 1
    busy.cut(at - 100 * MS)
    counted = sum(max(0, min(e, at - 100 * MS) - max(s, at - WINDOW_NS)) for s, e in intervals)
    assert busy.share(at) == pytest.approx(counted / WINDOW_NS)


def test_what_was_asked_for_long_ago_costs_nothing():
    """A client says when it issued a step; thousands of such steps must not be kept."""
    busy = BusyTime()
    for step in range(5_000):
        busy.add(2 * step, 2 * step + 1, 9 * WINDOW_NS)
    assert busy.share(9 * WINDOW_NS) == 0
    assert len(busy) == 0


def test_a_snapshot(make_pod_node, pod, uuids):
    node = make_pod_node(2)
    a = node.attach(node.mint("a", f"{uuids[0]}::0"), pod("a"))
    b = node.attach(node.mint("b", f"{uuids[0]}::1", f"{uuids[1]}::0"), pod("b"))
    a.main.pid, a.main.connected = 77, True
    node.manager.reserve(a.main, Reservation(GIB, 2 * GIB))
    node.clock.advance_to_ns(WINDOW_NS)
    node.manager.lease(a, 0, 500 * MS, WINDOW_NS)
    node.clock.advance_to_ns(WINDOW_NS + 500 * MS)
    node.manager.lease(b, 0, 100 * MS, WINDOW_NS + 400 * MS)
    seen = node.manager.telemetry()
    assert (seen.at_ns, seen.leases_total) == (WINDOW_NS + 500 * MS, 2)
    assert (seen.request_lag_ns, seen.request_lag_max_ns) == (100 * MS, 100 * MS)
    first = seen.devices[0]
    assert (first.utilisation, first.leased_ns, first.used_bytes) == (0.5, 600 * MS, 2 * GIB)
    assert (first.resource, first.replicas, first.healthy, first.reason) == ("emugpu.dev/emuGPU", 2, True, "")
    assert [(p.pod.pod, p.pid, p.used_bytes, p.leased_ns) for p in first.processes] == [
        ("a", 77, 2 * GIB, 500 * MS),
        ("b", 0, 0, 100 * MS),
    ]
    assert [len(device.processes) for device in seen.devices] == [2, 1, 0]
    node.manager.close_session(a.main)
    assert node.manager.telemetry().devices[0].processes[0].pid == 0
