"""Tests of the check that compares observed with predicted runs: which differences a busy machine excuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from scheduler_sims.record import JobRecord, LagAccount, RunRecord

Agree = Callable[..., RunRecord]


def observed(jct_s: float, lag_s: float, status: str = "finished") -> RunRecord:
    """A run of one job with one start, one of whose steps had a lag of `lag_s`."""
    jobs = (JobRecord("a", "u", 0, 0.0, 0.0, jct_s, 0, (), status),)
    lag = {"start": LagAccount(1), "step": LagAccount(1, max_s=lag_s)}
    return RunRecord("p", "local", 0, 1, ("n",), jobs, (), lag=lag)


def off_from_ten(run: RunRecord, excuse: Any) -> list[object]:
    (job,) = run.jobs
    return [] if job.status == "finished" and abs(job.jct_s - 10) <= excuse.widen(0.5) else [job]


@pytest.mark.parametrize(("jct_s", "lag_s"), [(10.4, 0.0), (10.4, 9.0), (11.2, 0.8), (11.4, 2.0)])
def test_within_the_tolerance_or_what_lags_explain(agree: Agree, jct_s: float, lag_s: float) -> None:
    assert agree(lambda: observed(jct_s, lag_s), off_from_ten).jobs[0].jct_s == jct_s


@pytest.mark.parametrize(("jct_s", "lag_s"), [(10.6, 0.0), (10.6, 0.02), (11.4, 0.8), (19.0, 2.0)])
def test_what_lags_do_not_explain_fails(agree: Agree, jct_s: float, lag_s: float) -> None:
    with pytest.raises(AssertionError, match="lags explain"):
        agree(lambda: observed(jct_s, lag_s), off_from_ten)


def test_lags_that_explain_too_much_tell_nothing(agree: Agree) -> None:
    with pytest.raises(pytest.skip.Exception, match=r"host too busy: lags explain 5\.00 s"):
        agree(lambda: observed(12.0, 5.0), off_from_ten)


def test_no_lag_excuses_what_is_wrong_by_any_clock(agree: Agree) -> None:
    with pytest.raises(AssertionError, match="lags explain"):
        agree(lambda: observed(10.0, 60.0, "failed"), off_from_ten)


def test_a_share_of_a_mean_is_excused_by_the_lag_in_that_mean(agree: Agree) -> None:
    def off(run: RunRecord, excuse: Any) -> list[object]:
        return [] if abs(run.jobs[0].jct_s / 10 - 1) < excuse.widen(0.05, 10) else [run]

    agree(lambda: observed(11.0, 0.6), off)
    with pytest.raises(AssertionError, match="lags explain"):
        agree(lambda: observed(11.0, 0.4), off)


def test_a_second_run_may_do_better(agree: Agree) -> None:
    runs = iter([observed(30.0, 0.0), observed(10.0, 0.0)])
    assert agree(lambda: next(runs), off_from_ten).jobs[0].jct_s == 10.0
