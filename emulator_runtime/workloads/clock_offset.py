"""How far the clock of rank 0 is ahead of ours, learnt from the messages of the barriers themselves.

Ranks tell each other when a step ended on the device, not when they got round to saying so. Otherwise the delay of each
message and of each late wake-up would make every step longer. They may run on several hosts, whose clocks have nothing in
common; so the offset is estimated as NTP does (RFC 5905, section 8), and the exchange with the shortest delay is believed
for as long as the clocks can't have drifted apart by more than a newer one is uncertain. It must not follow each exchange:
the ranks take the latest end of all, so whatever the estimate wavers by would be added to every step.
"""

from __future__ import annotations

DRIFT_PER_S = 20_000
"""By how many nanoseconds a second two hosts' monotonic clocks, both disciplined by NTP, may drift apart: 20 ppm."""


class ClockOffset:
    """Nanoseconds that rank 0's clock is ahead; wrong by at most half the round trip of the exchange that is believed."""

    def __init__(self) -> None:
        self._uncertain_ns: int | None = None
        self._at_ns = 0
        self.ahead_ns = 0

    def add(self, sent_ns: int, their_received_ns: int, their_sent_ns: int, received_ns: int) -> None:
        """One exchange: our request was sent and received, their answer was sent and received, each by its own clock."""
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
