"""Offsets of nodes' clocks: measured from whole seconds, believed by their worth."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator_runtime.domain.errors import ProtocolError
from emulator_runtime.http_server import TEXT, HttpServer
from emulator_runtime.timing.host import monotonic_ns, wall_ns
from operators.results.clocks import Bounds, ClockOffset, Clocks, ClockUnknownError, measure, second_of

S = 1_000_000_000
MS = 1_000_000


class Network:
    """A node whose clock is `ahead_ns` ahead; messages take `there_ns` and `back_ns`."""

    def __init__(self, ahead_ns, there_ns, back_ns, now_ns=1_700_000_000 * S + 123_456_789):
        self.now, self.ahead, self.there, self.back, self.asked = now_ns, ahead_ns, there_ns, back_ns, 0

    def ask(self):
        self.asked += 1
        self.now += self.there
        second = (self.now + self.ahead) // S
        self.now += self.back
        return second

    def sleep(self, duration_ns):
        self.now += duration_ns

    def measure(self):
        return measure("n1", self.ask, lambda: self.now, self.sleep)


@given(st.integers(-10 * S, 10 * S), st.integers(0, 3 * MS), st.integers(0, 3 * MS), st.integers(0, S))
def test_a_measurement_is_right_within_what_it_says_and_says_little(ahead_ns, there_ns, back_ns, phase_ns):
    network = Network(ahead_ns, there_ns, back_ns, 1_700_000_000 * S + phase_ns)
    offset = network.measure()
    assert abs(offset.ahead_ns - ahead_ns) <= offset.uncertain_ns
    best_ns = 2 * MS + there_ns + back_ns + 1
    assert offset.uncertain_ns <= (best_ns if offset.ahead_ns else 2 * best_ns)
    assert network.asked <= 13


@given(st.integers(-MS, MS), st.integers(MS, 3 * MS), st.integers(0, S))
def test_clocks_that_may_agree_are_left_alone(ahead_ns, trip_ns, phase_ns):
    assert Network(ahead_ns, trip_ns, trip_ns, 1_700_000_000 * S + phase_ns).measure().ahead_ns == 0


def test_a_clock_that_is_set_meanwhile_is_told():
    network = Network(0, MS, MS)
    seconds = itertools.chain([network.now // S], itertools.repeat(network.now // S + 100))
    with pytest.raises(ClockUnknownError, match="node n1: its clock or the operator's was set"):
        measure("n1", lambda: next(seconds), lambda: network.now, network.sleep)


def test_answers_that_take_long_tell_nothing():
    with pytest.raises(ClockUnknownError, match=r"can't be measured better than .* ms; its manager answers too slowly"):
        Network(0, 200 * MS, 200 * MS).measure()


def test_bounds_that_touch_agree():
    assert Bounds(0, 5).and_also(Bounds(5, 9)) == Bounds(5, 5)
    assert Bounds(0, 5).and_also(Bounds(6, 9)) is None


def test_the_measurement_that_is_worth_most_at_that_moment_is_believed():
    early, late, rough = (
        ClockOffset("a", 0, 10, MS),
        ClockOffset("a", 1000 * S, 20, MS),
        ClockOffset("a", 500 * S, 99, S),
    )
    clocks = Clocks([late, rough, early])
    assert [clocks.corrected_ns("a", at_s * S) - at_s * S for at_s in (100, 499, 501, 2000)] == [-10, -10, -20, -20]
    assert clocks.corrected_ns("b", 7) == 7
    assert clocks.offset("b", 7) is None


def test_a_manager_says_what_second_it_is():
    server = HttpServer(0, lambda _path: (200, TEXT, b"ok\n"), monotonic_ns)
    server.start()
    try:
        before = wall_ns() // S
        assert before <= second_of("n1", "127.0.0.1", server.port) <= wall_ns() // S
    finally:
        server.close()
    with pytest.raises(ClockUnknownError, match=r"node n1: can't be asked for its time at 127\.0\.0\.1"):
        second_of("n1", "127.0.0.1", server.port, timeout_s=1.0)


def test_a_date_that_is_none_is_told(monkeypatch):
    server = HttpServer(0, lambda _path: (200, TEXT, b"ok\n"), monotonic_ns)
    monkeypatch.setattr("http.server.BaseHTTPRequestHandler.date_time_string", lambda _self: "yesterday")
    server.start()
    try:
        with pytest.raises(ProtocolError, match="answers Date 'yesterday', which is no HTTP date"):
            second_of("n1", "127.0.0.1", server.port)
    finally:
        server.close()
