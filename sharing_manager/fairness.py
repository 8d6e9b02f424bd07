"""How much of the manager's time each peer may have, so that one that floods the socket takes nothing from the others.

Every peer (a container, in a cluster) has a purse of manager time. It fills at SHARE_PERCENT of a core, holds BURST_NS at
most, and each request takes its price; who has emptied it is not refused but waits, unread, until it has filled again.
Measured (CPU time of the manager, one request after the other, microseconds): a lease 45, a refusal 33, a query of one device
of eight 89, a connection 19, an attachment 144. Prices are above that, so that a peer's real share is below SHARE_PERCENT;
what a training job never does in numbers (refusals, new connections) costs a multiple. Half a millisecond brings a lease.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

SHARE_PERCENT = 10
"""Of a core: what one peer may use for long. 2,000 leases or 150 refusals a second."""
BURST_NS = 60_000_000
"""What it may use at once: 1,200 leases, or 90 refusals."""
MAX_CONNECTIONS = 16
"""Of one peer at a time; a container has one for its training and one for each nvidia-smi that runs."""
DOOR_TURNED_AWAY = 100
"""So many are turned away before the door rests for a tick: those who connect again and again would cost a core otherwise.
Each costs 27 us, so an eighth of one; with few, the socket's queue stays full of them and a newcomer doesn't get in."""
TICK_NS = 20_000_000
"""How often it is looked at who may go on, while somebody waits (host nanoseconds)."""

OPEN_NS = 300_000
REFUSED_NS = 650_000
PRICES_NS: Mapping[object, int] = {"lease": 50_000, "reserve": 100_000, "query": 500_000}
"""By op; the others write to the log."""
DEAREST_NS = 650_000

SAY_NS = 60_000_000_000
"""How often it is said of one peer that it is turned away or waits."""
SAID_LINES = 64
"""At most so many such lines in that time: peers' names aren't ours."""

_MANY = 1024


@dataclass(slots=True)
class GuardCounts:
    """What the guard did since the manager's start: connections that were turned away, and how often one had to wait."""

    turned_away: int = 0
    held: int = 0


class Sayings:
    """What was said lately, so that one who does the same again and again fills no log."""

    def __init__(self) -> None:
        self._said: dict[tuple[str, str], int] = {}

    def due(self, peer: str, what: str, now_ns: int) -> bool:
        """Whether to say this of that peer now; it counts as said then."""
        for key, since_ns in list(self._said.items()):  # the oldest come first
            if now_ns - since_ns < SAY_NS:
                break
            del self._said[key]
        if (peer, what) in self._said or len(self._said) >= SAID_LINES:
            return False
        self._said[peer, what] = now_ns
        return True


class Purses:
    """The purses of all peers. Times are nanoseconds of one clock that doesn't go back."""

    def __init__(self) -> None:
        self._left: dict[str, tuple[int, int]] = {}  # what was left, and when
        self._connections: Counter[str] = Counter()

    def spend(self, peer: str, price_ns: int, now_ns: int) -> bool:
        """Take the price of something that was done already, so there may be a debt; answers `solvent`."""
        left_ns = self._now(peer, now_ns) - price_ns
        self._left[peer] = (left_ns, now_ns)
        if len(self._left) > _MANY:
            self._forget_the_full(now_ns)
        return left_ns > 0

    def solvent(self, peer: str, now_ns: int) -> bool:
        """Whether it may go on."""
        return self._now(peer, now_ns) > 0

    def enter(self, peer: str) -> bool:
        """One more connection; False where it has enough of them."""
        if self._connections[peer] >= MAX_CONNECTIONS:
            return False
        self._connections[peer] += 1
        return True

    def leave(self, peer: str) -> None:
        """One connection less."""
        self._connections[peer] -= 1
        if not self._connections[peer]:
            del self._connections[peer]

    def _now(self, peer: str, now_ns: int) -> int:
        left_ns, since_ns = self._left.get(peer, (BURST_NS, now_ns))
        return min(BURST_NS, left_ns + (now_ns - since_ns) * SHARE_PERCENT // 100)

    def _forget_the_full(self, now_ns: int) -> None:
        """Pods come and go; a full purse is like none."""
        for peer in [peer for peer in self._left if self._now(peer, now_ns) >= BURST_NS]:
            del self._left[peer]


def price_ns(op: object) -> int:
    """What a request costs that was answered."""
    return PRICES_NS.get(op, DEAREST_NS) if isinstance(op, str) else DEAREST_NS
