"""When a policy wants to be asked again, and how often is too often: virtual time doesn't end such a run by itself."""

from __future__ import annotations

from collections.abc import Set
from math import inf

from emulator_runtime.domain.errors import PolicyError
from emulator_runtime.domain.units import NS_PER_S, to_ns, to_s

MAX_WAKES = 10_000
"""So many wakes within WINDOW_S of emulated time, in which nothing else happens, are too many."""
WINDOW_S = 1.0

_NEVER_S = 2**62 / NS_PER_S
"""Clocks don't go as far: 146 years."""


def wake_ns(wake_at_s: float | None, now_s: float) -> int | None:
    """A plan's wake_at_s on the cluster's clock; None where there is nothing to wait for. Raises PolicyError for a past one."""
    if wake_at_s is None or wake_at_s == inf:
        return None
    if not wake_at_s > now_s:
        raise PolicyError(f"the plan's wake_at_s is {wake_at_s}, which is not after now ({now_s})")
    if wake_at_s >= _NEVER_S:
        return None
    at_ns = to_ns(wake_at_s)
    return at_ns + (to_s(at_ns) < wake_at_s)  # rounding must not wake the policy just before what it waits for


class Wakes:
    """Those in a row that nothing else came between."""

    def __init__(self) -> None:
        self._count, self._since_s = 0, 0.0

    def note(self, triggers: Set[str], now_s: float) -> None:
        """The policy was asked for these reasons. Raises PolicyError where it is woken again and again for nothing."""
        if triggers != {"wake"} or now_s - self._since_s >= WINDOW_S:
            self._count, self._since_s = 0, now_s
        self._count += 1
        if self._count > MAX_WAKES:
            raise PolicyError(
                f"the policy was woken {MAX_WAKES} times from {self._since_s:.6f} s to {now_s:.6f} s, as it asked, and "
                "nothing else happened meanwhile; answer a later wake_at_s"
            )
