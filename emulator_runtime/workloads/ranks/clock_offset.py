"""Estimates the difference between the clocks of rank 0 and this rank from the timestamps of the barrier messages.

Ranks report when a step ended on the device, not when they sent the message; otherwise message delays and late wake-ups would
lengthen every step. Ranks may run on several hosts with unrelated monotonic clocks, so the offset is estimated as in NTP
(RFC 5905, section 8). The exchange with the smallest uncertainty is used until clock drift could have made it worse than a
newer exchange. The estimate doesn't follow every exchange: a step ends with the slowest rank, so the variation of the
estimate would be added to every step.

Example: a request is sent at 100 and received at rank 0's 160; the reply is sent at 165 and received at 115. The uncertainty
is (15 - 5) / 2 = 5 ns, and rank 0 is ahead by ((160 - 100) + (165 - 115)) / 2 = 55 ns.
"""

from __future__ import annotations

DRIFT_PER_S = 20_000
"""Assumed maximum drift between two monotonic clocks that NTP disciplines, in nanoseconds per second: 20 ppm."""


class ClockOffset:
    """By how many nanoseconds rank 0's clock is ahead. The error is at most half the round trip of the best exchange."""

    def __init__(self) -> None:
        self._uncertain_ns: int | None = None
        self._at_ns = 0
        self.ahead_ns = 0

    def add(self, sent_ns: int, their_received_ns: int, their_sent_ns: int, received_ns: int) -> None:
        """Add one exchange: request sent and received, reply sent and received, each in the clock of its process."""
        uncertain_ns = ((received_ns - sent_ns) - (their_sent_ns - their_received_ns)) // 2
        if self._uncertain_ns is not None:
            drift_ns = (received_ns - self._at_ns) * DRIFT_PER_S // 1_000_000_000
            if uncertain_ns > self._uncertain_ns + drift_ns:
                return
        self._uncertain_ns, self._at_ns = uncertain_ns, received_ns
        self.ahead_ns = ((their_received_ns - sent_ns) + (their_sent_ns - received_ns)) // 2

    def to_theirs(self, own_ns: int) -> int:
        return own_ns + self.ahead_ns

    def to_own(self, their_ns: int) -> int:
        return their_ns - self.ahead_ns
