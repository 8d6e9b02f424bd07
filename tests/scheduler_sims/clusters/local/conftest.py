"""Comparing what was observed with what was predicted on a machine that may be busy with other work."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest

from scheduler_sims.record import RunRecord

TRIES = 2
CALM_S = 0.03
"""Host seconds. Where a machine has time for the processes, starts and steps are less late than this."""
WIDEST = 3.0
"""No lag widens a tolerance to more than so many times what it is."""


@dataclass(frozen=True)
class Excuse:
    """By how many emulated seconds a run may be off because its processes came late, and how far that widens a tolerance."""

    late_s: float = 0.0
    widest: float = math.inf

    def widen(self, tolerance: float, of_s: float = 1.0) -> float:
        """The tolerance of a figure in seconds, or of one that is divided by `of_s` of them."""
        return min(tolerance + self.late_s / of_s, self.widest * tolerance)


Differences = Callable[[RunRecord, Excuse], Sequence[object]]


def late_s(observed: RunRecord, speed: float) -> float:
    """Emulated seconds by which this run may be off because its processes came late, as it reports itself; 0: it was calm.

    Whoever waits for a device inherits the lateness of all who had it before: one decision's, one start's, one step's each.
    """
    worst_s = sum(account.max_s for account in observed.lag.values())
    return observed.lag["start"].count * worst_s if worst_s > CALM_S * speed else 0.0


def pytest_itemcollected(item: pytest.Item) -> None:
    """What is compared in scaled time depends on what else the machine does."""
    if "agree" in getattr(item, "fixturenames", ()) and "scaled" in item.name:
        item.add_marker("alone")


@pytest.fixture
def agree() -> Callable[..., RunRecord]:
    """`differences` says what is wrong with a run that has this excuse. It gets two tries without any; what still differs then
    must be explained by the lags that the last run reports. Where they explain more than they may excuse, nobody can tell."""

    def agree(observe: Callable[[], RunRecord], differences: Differences, speed: float = 1.0) -> RunRecord:
        for _ in range(TRIES):
            observed = observe()
            if not differences(observed, Excuse()):
                return observed
        behind_s = late_s(observed, speed)
        found = differences(observed, Excuse(behind_s, WIDEST))
        if found and not differences(observed, Excuse(behind_s)):
            pytest.skip(f"host too busy: lags explain {behind_s:.2f} s: {observed.lag}")
        assert not found, f"{found}; lags explain {behind_s:.2f} s: {observed.lag}"
        return observed

    return agree
