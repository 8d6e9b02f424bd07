"""Clocks report lateness; waits notice changes of the rate and jumps; manual time moves only when advanced."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator_runtime.domain.clock import Clock
from emulator_runtime.domain.errors import LateError
from emulator_runtime.timing.anchors import Anchors, FixedAnchors
from emulator_runtime.timing.clocks import NOTICE_NS, HostClock, ManualClock
from emulator_runtime.timing.shared_clock import SharedClockFile
from emulator_runtime.timing.waiter import Waiter
from tests.support.private_clock import private_clock

MS, S = 1_000_000, 1_000_000_000


@pytest.fixture
def shared(fake_host, tmp_path):
    """A fake host, a writable shared clock on it at rate 1, and a HostClock that reads the same file."""
    host = fake_host(lambda: 50_000)
    writer = SharedClockFile.create(tmp_path / "clock", now=host.now)
    reader = SharedClockFile.open(tmp_path / "clock", now=host.now)
    return host, writer, HostClock(reader, Waiter(200_000, host.now, host.sleep))


def later(host, wall_ns: int, action) -> None:
    host.events.append((host.time_ns + wall_ns, action))


def test_both_are_clocks():
    clocks: list[Clock] = [private_clock(), ManualClock()]
    assert all(clock.now_ns() >= 0 for clock in clocks)


def test_scaled_time_on_the_real_host():
    clock = private_clock(50.0)
    lag = clock.wait_until_ns(100 * MS)  # 2 ms of wall time
    assert 0 <= lag < 60 * S
    assert clock.now_ns() >= 100 * MS + lag


def test_lag_is_in_emulated_time(fake_host):
    host = fake_host(itertools.cycle([3 * MS]).__next__)
    clock = private_clock(10.0, Waiter(0, host.now, host.sleep))
    assert 30 * MS <= clock.wait_until_ns(100 * MS) < 31 * MS


def test_a_deadline_that_is_past_tells_how_long(fake_host):
    host = fake_host()
    clock = private_clock(1.0, Waiter(0, host.now, host.sleep))
    host.time_ns += S
    assert S <= clock.wait_until_ns(0) < S + MS
    assert host.sleeps == []


def test_no_sleep_is_longer_than_a_notice(shared):
    host, _, clock = shared
    assert clock.wait_until_ns(S) < 50_000
    assert max(host.sleeps) <= NOTICE_NS
    assert len(host.sleeps) < 60


@pytest.mark.parametrize("length_us", [20_010, 20_500, 25_000, 30_010, 39_990, 40_010, 60_000])
def test_the_last_sleep_is_a_precise_one_however_long_the_wait(shared, length_us):
    _, _, clock = shared
    assert clock.wait_until_ns(clock.now_ns() + length_us * 1_000) < 1_000


def test_speeding_up_is_noticed(shared):
    host, writer, clock = shared
    later(host, S, lambda: writer.set_rate(10.0))
    start = host.time_ns
    lag = clock.wait_until_ns(10 * S)
    assert abs(host.time_ns - start - 1_900 * MS) < NOTICE_NS
    assert lag < 10 * NOTICE_NS


def test_slowing_down_is_noticed(shared):
    host, writer, clock = shared
    writer.set_rate(10.0)
    later(host, S, lambda: writer.set_rate(1.0))
    start = host.time_ns
    assert clock.wait_until_ns(11 * S) < MS
    assert abs(host.time_ns - start - 2 * S) < NOTICE_NS


def test_who_waits_sits_out_a_pause(shared):
    host, writer, clock = shared
    later(host, S, writer.pause)
    later(host, 5 * S, lambda: writer.set_rate(1.0))
    start = host.time_ns
    assert clock.wait_until_ns(10 * S) < MS
    assert abs(host.time_ns - start - 14 * S) < NOTICE_NS


def test_a_jump_to_the_deadline_ends_the_wait(shared):
    host, writer, clock = shared
    later(host, S, lambda: writer.jump_to_ns(3_600 * S))
    start = host.time_ns
    assert clock.wait_until_ns(3_600 * S) <= NOTICE_NS + MS
    assert host.time_ns - start <= S + NOTICE_NS + MS


@given(
    st.lists(st.tuples(st.integers(0, S), st.sampled_from([0.0, 0.3, 1.0, 25.0])), max_size=8), st.integers(0, 5 * S)
)
def test_no_wait_ends_early_nor_later_than_a_notice_whatever_the_rate_does(
    fake_host, tmp_path_factory, changes, deadline
):
    host = fake_host(lambda: 50_000)
    writer = SharedClockFile.create(tmp_path_factory.mktemp("clock") / "clock", now=host.now)
    clock = HostClock(writer, Waiter(200_000, host.now, host.sleep))
    moment = host.time_ns
    for after, rate in [*changes, (S, 1.0)]:
        moment += after
        host.events.append((moment, lambda rate=rate: writer.set_rate(rate)))
    lag = clock.wait_until_ns(deadline)
    assert 0 <= lag <= 25 * (NOTICE_NS + 100_000)
    assert writer.now_ns() >= deadline + lag


def test_a_strict_clock_raises_above_its_limit_only(fake_host):
    host = fake_host(itertools.chain([MS], itertools.repeat(3 * MS)).__next__)
    clock = private_clock(1.0, Waiter(0, host.now, host.sleep), strict_ns=2 * MS)
    assert clock.wait_until_ns(10 * MS) < 2 * MS
    with pytest.raises(LateError, match=r"until 20000000 ns ended 30\d{5} ns late .* \(limit 2000000 ns\); run fewer"):
        clock.wait_until_ns(20 * MS)


def test_private_anchors_can_start_anywhere(fake_host):
    host = fake_host(look_ns=0)
    clock = HostClock(FixedAnchors(Anchors(host.now(), 5 * S, 2.0), host.now), Waiter(0, host.now, host.sleep))
    assert clock.now_ns() == 5 * S
    clock.wait_until_ns(7 * S)
    assert host.time_ns == 1_000_000 + S


def test_manual_time_stands_still_until_advanced():
    clock = ManualClock(5)
    clock.advance_ns(10)
    clock.advance_to_ns(40)
    assert clock.now_ns() == 40
    with pytest.raises(ValueError, match="doesn't go back"):
        clock.advance_to_ns(39)


def test_manual_waits_jump_and_are_recorded():
    clock = ManualClock(oversleep=iter([0, 7]).__next__)
    assert clock.wait_until_ns(100) == 0
    assert clock.wait_until_ns(200) == 7
    assert clock.wait_until_ns(150) == 57
    assert clock.now_ns() == 207
    assert clock.waits == [100, 200, 150]
