"""When a policy is woken, and how often it may be: in virtual time a policy that always asks to be woken would never end."""

from __future__ import annotations

from collections.abc import Set
from math import inf

from emulator_runtime.domain.errors import PolicyError
from emulator_runtime.domain.units import NS_PER_S, to_ns, to_s
from scheduler_sims.interface.rounds import Round

MAX_WAKES = 10_000
"""Limit of wakes within WINDOW_S of emulated time without any other event."""
WINDOW_S = 1.0

_NEVER_S = 2**62 / NS_PER_S
"""Beyond the range of the clocks: 146 years."""


def next_wake_ns(wake_at_s: float | None, present: Round | None, now_s: float) -> int | None:
    """The earlier of a plan's wake_at_s and the end of the present round, as `wake_ns`."""
    both = [time_s for time_s in (wake_at_s, present.end_s if present is not None else None) if time_s is not None]
    return wake_ns(min(both, default=None), now_s)


def wake_ns(wake_at_s: float | None, now_s: float) -> int | None:
    """A plan's wake_at_s on the cluster's clock; None for no wake. Raises PolicyError for a time that is past."""
    if wake_at_s is None or wake_at_s == inf:
        return None
    if not wake_at_s > now_s:
        raise PolicyError(f"the plan's wake_at_s is {wake_at_s}, which is not after now ({now_s})")
    if wake_at_s >= _NEVER_S:
        return None
    at_ns = to_ns(wake_at_s)
    return at_ns + (
        to_s(at_ns) < wake_at_s
    )  # rounded up: the policy must not be woken before the time that it asked for


class Wakes:
    """Counts consecutive wakes without any other event."""

    def __init__(self) -> None:
        self._count, self._since_s = 0, 0.0

    def note(self, triggers: Set[str], now_s: float) -> None:
        """Count a decision with these triggers. Raises PolicyError after more than MAX_WAKES wakes within WINDOW_S."""
        if triggers != {"wake"} or now_s - self._since_s >= WINDOW_S:
            self._count, self._since_s = 0, now_s
        self._count += 1
        if self._count > MAX_WAKES:
            raise PolicyError(
                f"the policy was woken {MAX_WAKES} times from {self._since_s:.6f} s to {now_s:.6f} s, as it asked, and "
                "nothing else happened meanwhile; answer a later wake_at_s"
            )
