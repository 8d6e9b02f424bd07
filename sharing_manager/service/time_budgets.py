"""Time budgets: how much of the manager's time each peer may use, so that a peer that floods the socket doesn't slow
others.

Every peer (in a cluster: a container) has a time budget, a token bucket of manager time. It refills at SHARE_PERCENT of a
core, holds at most BURST_NS, and each request takes its price. A peer whose budget is used up is not refused: its further
requests stay unread until the budget has refilled.

Example: at 10 percent, a lease (50 us) is paid back in 500 us, so one peer can get 2,000 leases a second.

Measured CPU time of the manager per sequential request (us): lease 45, refusal 33, query of one device of eight 89,
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
MAX_CONNECTIONS = 16
"""Connections of one peer at a time. A container has one for its training and one for each nvidia-smi that runs."""
DOOR_TURNED_AWAY = 100
"""After this many rejected connections the listener pauses for a tick, since peers that reconnect all the time would use
a whole core. A rejection costs 27 us: 100 per tick of 20 ms are 2.7 ms, an eighth of a core. With a much lower number, the
socket's queue would stay full of such peers, and a new one couldn't connect."""
TICK_NS = 20_000_000
"""Interval at which waiting connections are checked (host nanoseconds)."""

OPEN_NS = 300_000
REFUSED_NS = 650_000
PRICES_NS: Mapping[object, int] = {"lease": 50_000, "reserve": 100_000, "query": 500_000}
"""By op; all other ops cost DEAREST_NS, because they write to the log."""
DEAREST_NS = 650_000

SAY_NS = 60_000_000_000
"""Minimum time between two log lines that say the same about one peer (host nanoseconds)."""
SAID_LINES = 64
"""Maximum number of such lines in that time, since peers choose their names and can have many."""

_MANY = 1024


@dataclass(slots=True)
class GuardCounts:
    """What the guard did since the manager's start: rejected connections, and how often a connection had to wait."""

    turned_away: int = 0
    held: int = 0


class Sayings:
    """Limits log lines: remembers which lines were logged recently."""

    def __init__(self) -> None:
        self._said: dict[tuple[str, str], int] = {}

    def due(self, peer: str, what: str, now_ns: int) -> bool:
        """Whether to log this line about this peer now; if so, it is remembered."""
        for key, since_ns in list(self._said.items()):  # in the order of insertion, so the oldest come first
            if now_ns - since_ns < SAY_NS:
                break
            del self._said[key]
        if (peer, what) in self._said or len(self._said) >= SAID_LINES:
            return False
        self._said[peer, what] = now_ns
        return True


class Purses:
    """The time budgets of all peers. Times are nanoseconds of one monotonic clock."""

    def __init__(self) -> None:
        self._left: dict[str, tuple[int, int]] = {}  # remaining budget, and when that was computed
        self._connections: Counter[str] = Counter()

    def spend(self, peer: str, price_ns: int, now_ns: int) -> bool:
        """Take the price of a request that was already answered, so the budget may become negative. Returns whether it
        is positive."""
        left_ns = self._now(peer, now_ns) - price_ns
        self._left[peer] = (left_ns, now_ns)
        if len(self._left) > _MANY:
            self._forget_the_full(now_ns)
        return left_ns > 0

    def solvent(self, peer: str, now_ns: int) -> bool:
        """Whether the peer's budget is positive."""
        return self._now(peer, now_ns) > 0

    def enter(self, peer: str) -> bool:
        """Count one more connection; False if the peer has reached MAX_CONNECTIONS."""
        if self._connections[peer] >= MAX_CONNECTIONS:
            return False
        self._connections[peer] += 1
        return True

    def leave(self, peer: str) -> None:
        """Count one connection less."""
        self._connections[peer] -= 1
        if not self._connections[peer]:
            del self._connections[peer]

    def _now(self, peer: str, now_ns: int) -> int:
        left_ns, since_ns = self._left.get(peer, (BURST_NS, now_ns))
        return min(BURST_NS, left_ns + (now_ns - since_ns) * SHARE_PERCENT // 100)

    def _forget_the_full(self, now_ns: int) -> None:
        """Forget peers with a full budget, which is also the budget of an unknown peer. Otherwise old pods would
        accumulate."""
        for peer in [peer for peer in self._left if self._now(peer, now_ns) >= BURST_NS]:
            del self._left[peer]


def price_ns(op: object) -> int:
    """The price of a request that was answered."""
    return PRICES_NS.get(op, DEAREST_NS) if isinstance(op, str) else DEAREST_NS
