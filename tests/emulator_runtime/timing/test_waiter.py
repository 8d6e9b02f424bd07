"""The precise wait: never early, learns how early to wake, and spins no more than it may."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator_runtime.domain.errors import InputError
from emulator_runtime.timing.host import monotonic_ns
from emulator_runtime.timing.waiter import Waiter

MS, US = 1_000_000, 1_000


def cycle(*oversleeps: int):
    return itertools.cycle(oversleeps).__next__


def lags_of(host, waiter: Waiter, count: int) -> list[int]:
    return [waiter.wait_until_ns(host.time_ns + 5 * MS) for _ in range(count)]


@given(
    st.lists(st.integers(0, 10 * MS), min_size=1, max_size=30), st.lists(st.integers(-MS, 30 * MS)), st.integers(0, MS)
)
def test_never_early_and_the_answer_is_the_lag(fake_host, oversleeps, waits, spin):
    host = fake_host(cycle(*oversleeps))
    waiter = Waiter(spin, host.now, host.sleep)
    for length in waits:
        deadline = host.time_ns + length
        lag = waiter.wait_until_ns(deadline)
        assert lag == host.time_ns - deadline >= 0
        assert 0 <= waiter.margin_ns <= spin


@given(st.lists(st.integers(0, MS), min_size=1, max_size=30), st.integers(0, MS))
def test_no_wait_spins_longer_than_its_limit(fake_host, oversleeps, spin):
    host = fake_host(cycle(*oversleeps))
    waiter = Waiter(spin, host.now, host.sleep)
    for _ in range(50):
        looks = host.looks
        waiter.wait_until_ns(host.time_ns + 5 * MS)
        assert (host.looks - looks - 2) * 100 <= spin + 100


def test_without_spinning_it_sleeps_the_whole_way(fake_host):
    host = fake_host(cycle(60 * US))
    assert lags_of(host, Waiter(0, host.now, host.sleep), 3) == [60 * US + 100] * 3
    assert host.looks == 6
    assert host.sleeps == [5 * MS - 100] * 3


@pytest.mark.parametrize("oversleep", [5 * US, 60 * US, 180 * US])
def test_it_learns_how_late_sleeps_end(fake_host, oversleep):
    host = fake_host(cycle(oversleep))
    waiter = Waiter(200 * US, host.now, host.sleep)
    lags_of(host, waiter, 20_000)
    assert oversleep * 0.8 < waiter.margin_ns < oversleep * 1.2 + 2 * US
    lags = sorted(lags_of(host, waiter, 1_000))
    assert lags[900] < 200  # two looks


def test_it_follows_when_sleeps_end_later_than_before(fake_host):
    oversleeps = itertools.chain(itertools.repeat(20 * US, 1_000), itertools.repeat(120 * US))
    host = fake_host(oversleeps.__next__)
    waiter = Waiter(200 * US, host.now, host.sleep)
    lags_of(host, waiter, 1_000)
    assert waiter.margin_ns < 30 * US
    lags_of(host, waiter, 50)
    assert waiter.margin_ns > 100 * US


def test_waiting_for_a_core_does_not_make_it_spin_more(fake_host):
    host = fake_host(cycle(4 * MS, 25 * US, 25 * US))
    waiter = Waiter(200 * US, host.now, host.sleep)
    lags_of(host, waiter, 3_000)
    assert waiter.margin_ns < 35 * US


def test_a_past_deadline_returns_at_once(fake_host):
    host = fake_host()
    assert Waiter(200 * US, host.now, host.sleep).wait_until_ns(host.time_ns - 5 * MS) == 5 * MS + 100
    assert host.sleeps == []


def test_a_deadline_within_the_margin_is_spun(fake_host):
    host = fake_host()
    assert Waiter(200 * US, host.now, host.sleep).wait_until_ns(host.time_ns + 20 * US) < 100
    assert host.sleeps == []


def test_a_sleep_that_ends_early_is_repeated(fake_host):
    host = fake_host(cycle(-2 * MS))
    assert Waiter(200 * US, host.now, host.sleep).wait_until_ns(host.time_ns + 5 * MS) < 100
    assert len(host.sleeps) > 1


def test_negative_spin_is_refused():
    with pytest.raises(InputError, match="spin_ns: must be >= 0, got -1"):
        Waiter(-1)


def test_on_the_real_host():
    waiter = Waiter()
    deadline = monotonic_ns() + 3 * MS
    lag = waiter.wait_until_ns(deadline)
    assert 0 <= lag <= monotonic_ns() - deadline
    assert lag < 5_000 * MS
