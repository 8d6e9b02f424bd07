"""Purses: what a peer may use at once and for long, and that nobody pays for another."""

from hypothesis import given
from hypothesis import strategies as st

from sharing_manager.service import time_budgets
from sharing_manager.service.time_budgets import (
    BURST_NS,
    DEAREST_NS,
    MAX_CONNECTIONS,
    SAID_LINES,
    SAY_NS,
    SHARE_PERCENT,
    Purses,
    Sayings,
    price_ns,
)

S = 1_000_000_000


def test_a_burst_and_then_a_share():
    purses = Purses()
    asked = 1
    while purses.spend("a", 200_000, 0):
        asked += 1
    assert asked == BURST_NS // 200_000
    assert not purses.solvent("a", 0)
    assert purses.solvent("a", 100)  # 3 ns of it
    assert purses.solvent("b", 0)
    assert purses.spend("a", BURST_NS - 1, 10 * S)  # full again, and no fuller


@given(st.lists(st.tuples(st.integers(0, S), st.integers(1, DEAREST_NS)), max_size=200))
def test_nobody_gets_more_than_its_share(requests):
    purses, now_ns, used_ns = Purses(), 0, 0
    for later_ns, price in requests:
        now_ns += later_ns
        if purses.solvent("a", now_ns):
            purses.spend("a", price, now_ns)
            used_ns += price
        assert used_ns <= BURST_NS + now_ns * SHARE_PERCENT // 100 + DEAREST_NS


def test_connections_are_few_and_counted_for_each():
    purses = Purses()
    assert [purses.enter("a") for _ in range(MAX_CONNECTIONS + 1)] == [True] * MAX_CONNECTIONS + [False]
    assert purses.enter("b")
    purses.leave("a")
    assert purses.enter("a")
    assert not purses.enter("a")


def test_full_purses_are_forgotten_and_empty_ones_are_not(monkeypatch):
    monkeypatch.setattr(time_budgets, "_MANY", 10)
    purses = Purses()
    purses.spend("debtor", 1000 * BURST_NS, 0)
    for number in range(100):
        purses.spend(str(number), 1000, number * S)
        assert len(purses._left) <= 11
    assert not purses.solvent("debtor", 100 * S)


def test_a_saying_is_due_once_a_minute_for_each_peer_and_of_many_peers_few_are_named():
    sayings = Sayings()
    assert [sayings.due("a", "waits", now_ns) for now_ns in (0, SAY_NS - 1, SAY_NS)] == [True, False, True]
    assert sayings.due("a", "is full", SAY_NS)
    assert sayings.due("b", "waits", SAY_NS)
    assert sum(sayings.due(str(number), "waits", SAY_NS) for number in range(1000)) == SAID_LINES - 3
    assert sayings.due("c", "waits", 2 * SAY_NS)


def test_what_is_no_op_is_dear():
    assert (
        price_ns("lease")
        < price_ns("query")
        < price_ns("attach")
        == price_ns(None)
        == price_ns(["lease"])
        == DEAREST_NS
    )
