from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator_runtime.profiles.curves import Curve


@st.composite
def curves(draw: st.DrawFn, least: int = 1) -> Curve:
    batches = sorted(draw(st.sets(st.integers(1, 1024), min_size=least, max_size=20)))
    values = [draw(st.floats(1e-6, 1e3)) for _ in batches]
    return Curve(tuple(batches), tuple(values))


@given(curves())
def test_is_exact_at_every_knot(curve: Curve) -> None:
    assert tuple(curve.at(batch) for batch in curve.batches) == curve.values


@given(curves(least=2), st.data())
def test_lies_on_the_line_between_two_knots(curve: Curve, data: st.DataObject) -> None:
    left = data.draw(st.integers(0, len(curve.batches) - 2))
    low, high = curve.batches[left], curve.batches[left + 1]
    batch = data.draw(st.integers(low, high))
    share = (batch - low) / (high - low)
    expected = (1 - share) * curve.values[left] + share * curve.values[left + 1]
    assert curve.at(batch) == pytest.approx(expected, rel=1e-9, abs=1e-12)


@given(curves(), st.integers(1, 4096))
def test_is_positive_everywhere_and_never_falls_beyond_the_last_knot(curve: Curve, batch: int) -> None:
    assert curve.at(batch) > 0
    if batch > curve.batches[-1]:
        assert curve.values[-1] <= curve.at(batch) <= curve.at(batch + 1)


def test_goes_on_with_the_slope_of_the_upper_half_and_not_of_the_last_two_points() -> None:
    curve = Curve((1, 64, 127, 128), (1.0, 10.0, 25.0, 20.0))
    assert curve.at(256) == pytest.approx(20 + (20 - 10) / 64 * 128)


def test_stays_level_where_the_upper_half_falls() -> None:
    assert Curve((1, 10, 20), (1.0, 5.0, 4.0)).at(40) == 4.0


def test_holds_the_first_value_below_it() -> None:
    assert Curve((8, 16), (3.0, 4.0)).at(1) == 3.0


def test_a_single_point_goes_on_in_proportion() -> None:
    assert Curve((32,), (2.0,)).at(64) == 4.0
    assert Curve((32,), (2.0,)).at(16) == 2.0


def test_knows_what_it_covers() -> None:
    curve = Curve((8, 16), (3.0, 4.0))
    assert [curve.covers(batch) for batch in (7, 8, 12, 16, 17)] == [False, True, True, True, False]
