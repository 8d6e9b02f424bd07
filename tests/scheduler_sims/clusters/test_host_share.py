"""The machines' work: hand-worked cases, and what processor sharing keeps whatever comes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_sims.clusters.host_share import HostShare, ends_ns

S = 10**9


def ends_s(slots: float, *work: tuple[float, float]) -> list[float]:
    """When pieces of work end, each given as (begin, duration alone) in seconds, in order of their begin."""
    return [
        end_ns / S for end_ns in ends_ns(slots, [(round(begin_s * S), round(alone_s * S)) for begin_s, alone_s in work])
    ]


@pytest.mark.parametrize(
    ("slots", "work", "ends"),
    [
        (1, [(0, 2), (1, 2)], [3, 4]),  # the first has 1 s left when the second comes
        (2, [(0, 2), (1, 2)], [2, 3]),
        (1.5, [(0, 2), (0, 2), (0, 2)], [4, 4, 4]),
        (2, [(0, 2), (0, 1), (0, 1)], [2.5, 1.5, 1.5]),  # two thirds of the speed until the short ones end
        (1, [(0, 1), (0, 0)], [1, 0]),
    ],
)
def test_work_shares_the_machines_equally(slots: float, work: list[tuple[float, float]], ends: list[float]) -> None:
    assert ends_s(slots, *work) == pytest.approx(ends, abs=1e-8)


def test_what_is_discarded_no_longer_shares() -> None:
    share = HostShare[str](1)
    share.add(0, "a", 2 * S)
    share.add(0, "b", 2 * S)
    assert share.discard(S, "b".__eq__)
    assert not share.discard(S, "b".__eq__)
    assert share.next_ns() == pytest.approx(2.5 * S, abs=2)


quarters = st.integers(0, 40).map(lambda number: number / 4)


@given(
    st.integers(4, 20).map(lambda number: number / 4), st.lists(st.tuples(quarters, quarters), min_size=1, max_size=12)
)
def test_no_work_is_lost_and_none_ends_early(slots: float, work: list[tuple[float, float]]) -> None:
    work.sort()
    ends = ends_s(slots, *work)
    assert all(end >= begin + alone - 1e-6 for end, (begin, alone) in zip(ends, work, strict=True))
    assert max(ends) <= max(begin for begin, _ in work) + sum(alone for _, alone in work) + 1e-6
    most = max(
        sum(1 for end, (begin, _) in zip(ends, work, strict=True) if begin <= at < end) for at in [b for b, _ in work]
    )
    if most <= slots:
        assert ends == pytest.approx([begin + alone for begin, alone in work], abs=1e-6)
