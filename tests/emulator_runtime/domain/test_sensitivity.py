from __future__ import annotations

from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator_runtime.domain.sensitivity import HostShare, Sensitivity

HUNDRED = ((100, 1.0),)


def cpu(*knots):
    return Sensitivity(knots, ())


@pytest.mark.parametrize(
    ("cpu_milli", "speed"),
    [(1, 0.0005), (1000, 0.5), (2000, 1.0), (3000, 1.5), (4000, 2.0), (4001, 2.0), (10**9, 2.0), (0, 0.0005)],
)
def test_a_curve_is_linear_between_knots_and_from_the_origin_and_flat_at_its_end(cpu_milli, speed):
    assert cpu((2000, 1.0), (4000, 2.0)).speed(HostShare(cpu_milli)) == pytest.approx(speed)


def test_the_scarcer_resource_sets_the_pace():
    both = Sensitivity(((1000, 1.0), (4000, 4.0)), ((10, 1.0), (30, 3.0)))
    assert both.speed(HostShare(4000, 10)) == 1.0
    assert both.speed(HostShare(2000, 30)) == 2.0
    assert both.speed(HostShare(4000, 30)) == 3.0  # memory is the bound even at its best


def test_the_best_share_is_the_least_that_is_as_fast():
    both = Sensitivity(((1000, 1.0), (4000, 4.0)), ((10, 1.0), (30, 3.0)))
    assert both.best == HostShare(3000, 30)
    assert cpu((1000, 1.0), (2000, 2.0), (5000, 2.0)).best == HostShare(2000, 0)


def test_between_is_the_formula_of_synergys_simulator():
    # 1 + (S - 1) / (best - fair) * (given - fair): alexnet with 6 of its 12 CPUs, OSDI'22 artifact.
    s = Sensitivity.between(HostShare(3000, 625), HostShare(12000, 1250), 2.94)
    assert s.speed(HostShare(6000, 1250)) == pytest.approx(1 + 1.94 / 9 * 3)
    assert s.speed(HostShare(3000, 625)) == 1.0
    assert s.speed(HostShare(12000, 1250)) == 2.94


def test_a_resource_of_which_more_is_no_use_does_not_matter():
    s = Sensitivity.between(HostShare(3000, 0), HostShare(6000, 0), 2.0)
    assert s.memory == ()
    assert s.speed(HostShare(6000, 0)) == 2.0


def test_several_devices_need_several_times_as_much():
    two = Sensitivity(((1000, 1.0),), HUNDRED).times(2)
    assert (two.cpu, two.memory) == (((2000, 1.0),), ((200, 1.0),))


@pytest.mark.parametrize(
    "curve",
    [((0, 1.0),), ((1, 0.0),), ((1, -1.0),), ((1, nan),), ((1, inf),), ((2, 1.0), (1, 2.0)), ((1, 1.0), (1, 2.0))],
)
def test_what_is_no_curve_is_refused(curve):
    with pytest.raises(ValueError, match="is no curve"):
        Sensitivity(curve, HUNDRED)


def test_a_speed_that_depends_on_nothing_is_refused():
    with pytest.raises(ValueError, match="depends on nothing"):
        Sensitivity((), ())


curves = st.lists(st.tuples(st.integers(1, 10**6), st.floats(0.1, 10)), min_size=1, max_size=5).map(
    lambda knots: tuple(zip(sorted({amount for amount, _ in knots}), sorted(speed for _, speed in knots), strict=False))
)


@given(cpu=curves, memory=curves, given=st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)))
def test_more_never_slows_a_growing_curve_and_the_best_share_is_as_fast_as_any(cpu, memory, given):
    s = Sensitivity(cpu, memory)
    share = HostShare(*given)
    assert s.speed(share) <= s.speed(HostShare(given[0] + 1, given[1] + 1)) + 1e-12
    assert s.speed(share) <= s.speed(s.best) * (1 + 1e-12)
    assert s.speed(s.best) == pytest.approx(s.speed(HostShare(10**9, 10**9)))
