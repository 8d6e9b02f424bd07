"""Flows that share links, worked by hand."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator_runtime.prediction.network.fairness import Flow, fair_speeds, shared_ends


def flow(start: int, duration: int, weight: float = 1.0, **uses: float) -> Flow:
    return Flow(start, duration, tuple(uses.items()), weight)


def test_two_flows_halve_a_link() -> None:
    assert fair_speeds([flow(0, 1, card=1), flow(0, 1, card=1)]) == [0.5, 0.5]


def test_a_flow_that_wants_less_than_its_half_gets_it() -> None:
    assert fair_speeds([flow(0, 1, card=0.3), flow(0, 1, card=1)]) == pytest.approx([1, 0.7])
    assert fair_speeds([flow(0, 1, card=0.3), flow(0, 1, card=0.7)]) == [1, 1], "together they fit"


def test_max_min_over_two_links() -> None:
    """A uses the first, B both, C and D the second: a third each there; A has what B leaves of the first."""
    flows = [flow(0, 1, one=1), flow(0, 1, one=1, two=1), flow(0, 1, two=1), flow(0, 1, two=1)]
    assert fair_speeds(flows) == pytest.approx([2 / 3, 1 / 3, 1 / 3, 1 / 3])


def test_a_slowed_flow_leaves_its_other_links_to_others() -> None:
    """B is slowed to half on the first link, so that it uses 0.4 of the second, where C wants 0.6."""
    flows = [flow(0, 1, one=1), flow(0, 1, one=1, two=0.8), flow(0, 1, two=0.6)]
    assert fair_speeds(flows) == pytest.approx([0.5, 0.5, 1])


def test_claims_are_weighted() -> None:
    """Both sides of a message count half each, so that it has half of the link beside one collective."""
    flows = [flow(0, 1, card=1), flow(0, 1, 0.5, card=0.5), flow(0, 1, 0.5, card=0.5)]
    assert fair_speeds(flows) == pytest.approx([0.5, 0.5, 0.5])


def test_a_flow_without_links_keeps_its_speed() -> None:
    assert fair_speeds([flow(0, 1), flow(0, 1, card=1), flow(0, 1, card=1)]) == [1, 0.5, 0.5]


def test_speeds_change_when_flows_begin_and_end() -> None:
    """The first has done 50 of 100 when the second begins; both at half the speed until 150, when the second has done 50."""
    assert shared_ends([flow(0, 100, card=1), flow(50, 100, card=1)]) == [150, 200]


def test_three_flows_in_pieces() -> None:
    """Alone until 60 (60 of 100 done), two until 80 (70), three until the first ends: 30 left at a third: 170. The second has
    done 10 at 80, 40 at 170; with the third, which has done 30, two until 230: the second has 60 to do at half: 290, when the
    third has done 90. It ends at 300."""
    flows = [flow(0, 100, card=1), flow(60, 100, card=1), flow(80, 100, card=1)]
    assert shared_ends(flows) == [170, 290, 300]


def test_flows_that_meet_through_another_one() -> None:
    """A and C share no link, but both share one with B: while B runs, A and C have half each. B does 100 at half."""
    flows = [flow(0, 200, one=1), flow(0, 100, one=1, two=1), flow(0, 100, two=1)]
    assert shared_ends(flows) == [300, 200, 200]


def test_what_shares_nothing_ends_when_it_would_alone() -> None:
    flows = [flow(0, 101, one=1), flow(3, 77, two=1), flow(101, 5, one=1), flow(101, 0, one=1), flow(0, 9)]
    assert shared_ends(flows) == [101, 80, 106, 101, 9]


parts = st.floats(0.01, 1)
flows_of_a_link = st.lists(
    st.builds(
        lambda start, duration, one, two, weight: Flow(start, duration, (("one", one), ("two", two)), weight),
        *(st.integers(0, 1000), st.integers(0, 1000), parts, parts, st.sampled_from([0.5, 1.0])),
    ),
    max_size=12,
)


@given(flows_of_a_link)
def test_no_link_is_overloaded_and_none_is_wasted(flows: list[Flow]) -> None:
    """Each flow that is slowed uses a link that is full."""
    speeds = fair_speeds(flows)
    for number in (0, 1):
        load = sum(speed * each.uses[number][1] for speed, each in zip(speeds, flows, strict=True))
        assert load <= 1 + 1e-6 or all(speed == 1 for speed in speeds)
    for speed in speeds:
        assert 0 < speed <= 1
        if speed < 0.999:
            loads = [sum(s * f.uses[n][1] for s, f in zip(speeds, flows, strict=True)) for n in (0, 1)]
            assert max(loads) == pytest.approx(1, abs=1e-6)


@given(flows_of_a_link, st.randoms())
def test_the_order_of_flows_does_not_matter(flows: list[Flow], random: Random) -> None:
    ends = dict(zip(map(id, flows), shared_ends(flows), strict=True))
    shuffled = flows[:]
    random.shuffle(shuffled)
    for each, end in zip(shuffled, shared_ends(shuffled), strict=True):
        assert abs(ends[id(each)] - end) <= 1
        assert end >= each.start_ns + each.duration_ns
