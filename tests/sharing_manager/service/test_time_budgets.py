"""Time budgets: burst, refill, and independence of the peers."""

from hypothesis import given
from hypothesis import strategies as st

from sharing_manager.service import time_budgets
from sharing_manager.service.time_budgets import (
    BURST_NS,
    HIGHEST_PRICE_NS,
    LOG_INTERVAL_NS,
    MAX_CONNECTIONS,
    MAX_LOG_LINES,
    SHARE_PERCENT,
    LogLimiter,
    TimeBudgets,
    price_ns,
)

S = 1_000_000_000


def test_a_burst_and_then_a_share():
    budgets = TimeBudgets()
    asked = 1
    while budgets.spend("a", 200_000, 0):
        asked += 1
    assert asked == BURST_NS // 200_000
    assert not budgets.has_budget("a", 0)
    assert budgets.has_budget("a", 100)  # 3 ns of it
    assert budgets.has_budget("b", 0)
    assert budgets.spend("a", BURST_NS - 1, 10 * S)  # full again, and no fuller


@given(st.lists(st.tuples(st.integers(0, S), st.integers(1, HIGHEST_PRICE_NS)), max_size=200))
def test_nobody_gets_more_than_its_share(requests):
    budgets, now_ns, used_ns = TimeBudgets(), 0, 0
    for later_ns, price in requests:
        now_ns += later_ns
        if budgets.has_budget("a", now_ns):
            budgets.spend("a", price, now_ns)
            used_ns += price
        assert used_ns <= BURST_NS + now_ns * SHARE_PERCENT // 100 + HIGHEST_PRICE_NS


def test_connections_are_few_and_counted_for_each():
    budgets = TimeBudgets()
    assert [budgets.open_connection("a") for _ in range(MAX_CONNECTIONS + 1)] == [True] * MAX_CONNECTIONS + [False]
    assert budgets.open_connection("b")
    budgets.close_connection("a")
    assert budgets.open_connection("a")
    assert not budgets.open_connection("a")


def test_full_purses_are_forgotten_and_empty_ones_are_not(monkeypatch):
    monkeypatch.setattr(time_budgets, "_FORGET_ABOVE", 10)
    budgets = TimeBudgets()
    budgets.spend("debtor", 1000 * BURST_NS, 0)
    for number in range(100):
        budgets.spend(str(number), 1000, number * S)
        assert len(budgets._remaining) <= 11
    assert not budgets.has_budget("debtor", 100 * S)


def test_a_saying_is_due_once_a_minute_for_each_peer_and_of_many_peers_few_are_named():
    limiter = LogLimiter()
    assert [limiter.due("a", "waits", now_ns) for now_ns in (0, LOG_INTERVAL_NS - 1, LOG_INTERVAL_NS)] == [
        True,
        False,
        True,
    ]
    assert limiter.due("a", "is full", LOG_INTERVAL_NS)
    assert limiter.due("b", "waits", LOG_INTERVAL_NS)
    assert sum(limiter.due(str(number), "waits", LOG_INTERVAL_NS) for number in range(1000)) == MAX_LOG_LINES - 3
    assert limiter.due("c", "waits", 2 * LOG_INTERVAL_NS)


def test_what_is_no_op_is_dear():
    assert (
        price_ns("lease")
        < price_ns("query")
        < price_ns("attach")
        == price_ns(None)
        == price_ns(["lease"])
        == HIGHEST_PRICE_NS
    )
