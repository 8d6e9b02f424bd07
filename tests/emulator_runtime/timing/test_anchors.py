"""Emulated time is a line: it never goes back, and it goes on where it was when its rate changes."""

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from emulator_runtime.domain.errors import InputError
from emulator_runtime.timing.anchors import Anchors, checked_rate

DAY_NS = 86_400 * 10**9
moments = st.integers(0, 365 * DAY_NS)
rates = st.one_of(st.just(0.0), st.just(1.0), st.floats(1e-6, 1e6))


def test_wall_time_is_exact():
    anchors = Anchors(5, 7, 1.0)
    assert anchors.emulated_at(5 + 10 * DAY_NS + 1) == 7 + 10 * DAY_NS + 1
    assert anchors.wall_at(7 + 10 * DAY_NS + 1) == 5 + 10 * DAY_NS + 1


def test_scaled_time():
    anchors = Anchors(1_000, 0, 10.0)
    assert anchors.emulated_at(1_005) == 50
    assert anchors.wall_at(50) == 1_005
    assert anchors.wall_at(51) == 1_006


def test_paused_time_is_reached_only_if_it_was():
    anchors = Anchors(1_000, 40, 0.0)
    assert anchors.emulated_at(10**15) == 40
    assert anchors.wall_at(40) == 1_000
    assert anchors.wall_at(41) is None


@example(0, 28855418145851, 0.8091497704144215)  # where the quotient rounds to a moment just before
@given(moments, st.integers(0, DAY_NS), st.floats(1e-6, 1e6))
def test_wall_at_has_reached_the_moment_and_not_long_before(start, ahead, rate):
    anchors = Anchors(start, 0, rate)
    wall = anchors.wall_at(ahead)
    assert wall is not None
    assert anchors.emulated_at(wall) >= ahead
    earlier = wall - 2 - math.ceil((wall - start) * 2**-50)
    assert earlier < start or anchors.emulated_at(earlier) < ahead + 1


@given(moments, rates, rates, st.integers(0, DAY_NS), st.integers(0, DAY_NS))
def test_a_change_of_rate_is_continuous_and_time_never_goes_back(start, old_rate, new_rate, before, after):
    old = Anchors(start, 3, old_rate)
    new = old.with_rate(new_rate, start + before)
    assert new.emulated_at(start + before) == old.emulated_at(start + before)
    assert new.emulated_at(start + before + after) >= old.emulated_at(start + before)


@given(moments, rates, st.integers(0, DAY_NS), st.integers(-DAY_NS, DAY_NS))
def test_a_jump_only_goes_forward(start, rate, before, ahead):
    old = Anchors(start, 0, rate)
    here = old.emulated_at(start + before)
    new = old.jumped_to(here + ahead, start + before)
    assert new.emulated_at(start + before) == here + max(ahead, 0)
    assert new.rate == rate


@pytest.mark.parametrize("rate", [-1.0, 1e-7, 1e7, math.nan, math.inf])
def test_a_rate_that_is_none_says_what_is(rate):
    with pytest.raises(InputError, match=r"rate: must be 0 \(paused\) or from 1e-06 to 1e\+06 times wall time"):
        checked_rate(rate)
