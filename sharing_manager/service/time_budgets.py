"""Time budgets: how much of the manager's time each peer may use, so that a peer that floods the socket doesn't slow
others.

Every peer (in a cluster: a container) has a time budget, a token bucket of manager time. It refills at SHARE_PERCENT of a
core, holds at most BURST_NS, and each request takes its price. A container with several devices, and a process for each, pays
for each request as many times less. A peer whose budget is used up is not refused: its further
requests stay unread until the budget has refilled.

Example: at 10 percent, a lease (50 us) is paid back in 500 us, so one peer can get 2,000 leases a second.

Measured CPU time of the manager for each sequential request (us): lease 45, refusal 33, query of one device of eight 89,
connection 19, attachment 144. The prices are higher, so that a peer's real share stays below SHARE_PERCENT. Requests that a
training job never sends in large numbers (those that are refused, new connections) cost a multiple of their time.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

SHARE_PERCENT = 10
"""Share of a core that one peer may use over a long time, in percent: 2,000 leases or 150 refusals a second."""
BURST_NS = 60_000_000
"""Time that one peer may use at once: 1,200 leases or 90 refusals."""
MAX_CONNECTIONS = 60
"""Connections of one peer at a time. A container has one for each device that one of its processes uses (emugpu.gpu), one for
each process that counts steps, and one for each nvidia-smi that runs."""
MAX_REJECTIONS = 100
"""After this many rejected connections the listener pauses for a tick, since peers that reconnect all the time would use
a whole core. A rejection costs 27 us: 100 per tick of 20 ms are 2.7 ms, an eighth of a core. With a much lower number, the
socket's queue would stay full of such peers, and a new one couldn't connect."""
TICK_NS = 20_000_000
"""Interval at which waiting connections are checked (host nanoseconds)."""

OPEN_NS = 300_000
REFUSED_NS = 650_000
PRICES_NS: Mapping[object, int] = {
    "lease": 50_000,
    "demand": 80_000,
    "report": 30_000,
    "reserve": 100_000,
    "query": 500_000,
}
"""By op; all other ops cost HIGHEST_PRICE_NS, because they write to the log."""
HIGHEST_PRICE_NS = 650_000

LOG_INTERVAL_NS = 60_000_000_000
"""Minimum time between two equal log lines about one peer (host nanoseconds)."""
MAX_LOG_LINES = 64
"""Maximum number of different lines in that time: peers can make many names."""

_FORGET_ABOVE = 1024


@dataclass(slots=True)
class GuardCounts:
    """Counts since the manager's start: rejected connections, and how often a connection was paused."""

    rejected: int = 0
    paused: int = 0


class LogLimiter:
    """Limits log lines: remembers which lines were logged recently."""

    def __init__(self) -> None:
        self._logged: dict[tuple[str, str], int] = {}

    def due(self, peer: str, what: str, now_ns: int) -> bool:
        """Whether to log this line about this peer now; if so, it is remembered."""
        for key, since_ns in list(self._logged.items()):  # in the order of insertion, so the oldest come first
            if now_ns - since_ns < LOG_INTERVAL_NS:
                break
            del self._logged[key]
        if (peer, what) in self._logged or len(self._logged) >= MAX_LOG_LINES:
            return False
        self._logged[peer, what] = now_ns
        return True


class TimeBudgets:
    """The time budgets of all peers. Times are nanoseconds of one monotonic clock."""

    def __init__(self) -> None:
        self._remaining: dict[str, tuple[int, int]] = {}  # remaining budget, and when that was computed
        self._connections: Counter[str] = Counter()

    def spend(self, peer: str, price_ns: int, now_ns: int) -> bool:
        """Take the price of a request that was already answered, so the budget may become negative. Returns whether it
        is positive."""
        left_ns = self._now(peer, now_ns) - price_ns
        self._remaining[peer] = (left_ns, now_ns)
        if len(self._remaining) > _FORGET_ABOVE:
            self._forget_full_budgets(now_ns)
        return left_ns > 0

    def has_budget(self, peer: str, now_ns: int) -> bool:
        """Whether the peer's budget is positive."""
        return self._now(peer, now_ns) > 0

    def open_connection(self, peer: str) -> bool:
        """Count one more connection; False if the peer has reached MAX_CONNECTIONS."""
        if self._connections[peer] >= MAX_CONNECTIONS:
            return False
        self._connections[peer] += 1
        return True

    def close_connection(self, peer: str) -> None:
        """Count one connection less."""
        self._connections[peer] -= 1
        if not self._connections[peer]:
            del self._connections[peer]

    def _now(self, peer: str, now_ns: int) -> int:
        left_ns, since_ns = self._remaining.get(peer, (BURST_NS, now_ns))
        return min(BURST_NS, left_ns + (now_ns - since_ns) * SHARE_PERCENT // 100)

    def _forget_full_budgets(self, now_ns: int) -> None:
        """Forget peers with a full budget, which is also the budget of an unknown peer. Otherwise old pods would
        accumulate."""
        for peer in [peer for peer in self._remaining if self._now(peer, now_ns) >= BURST_NS]:
            del self._remaining[peer]


def price_ns(op: object) -> int:
    """The price of a request that was answered."""
    return PRICES_NS.get(op, HIGHEST_PRICE_NS) if isinstance(op, str) else HIGHEST_PRICE_NS
