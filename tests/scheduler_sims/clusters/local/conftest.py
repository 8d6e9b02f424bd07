"""Comparing what was observed with what was predicted on a machine that may be busy with other work."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from scheduler_sims.record import RunRecord

TRIES = 2
CALM_S = 0.03
"""Host seconds. Where a machine has time for the processes, starts and steps are less late than this."""

Differences = Callable[[RunRecord, float], Sequence[object]]


def excuse_s(observed: RunRecord, speed: float) -> float:
    """Emulated seconds by which this run may be off because its processes came late, as it reports itself; 0: it was calm.

    Whoever waits for a device inherits the lateness of all who had it before: one decision's, one start's, one step's each.
    """
    worst_s = sum(account.max_s for account in observed.lag.values())
    return observed.lag["start"].count * worst_s if worst_s > CALM_S * speed else 0.0


@pytest.fixture
def agree() -> Callable[..., RunRecord]:
    """`differences` says what is wrong with a run that may be off by so many seconds. It gets two tries to be as predicted;
    what still differs then must be explained by the lags that the last run reports. A calm run has no excuse, and one try."""

    def agree(observe: Callable[[], RunRecord], differences: Differences, speed: float = 1.0) -> RunRecord:
        for _ in range(TRIES):
            observed = observe()
            late_s = excuse_s(observed, speed)
            if not differences(observed, 0.0):
                return observed
            if not late_s:
                break
        found = differences(observed, late_s)
        assert not found, f"{found}; lags explain {late_s:.2f} s: {observed.lag}"
        return observed

    return agree
