from __future__ import annotations

import pytest

from emulator_runtime.domain.errors import InputError
from scheduler_sims.record import LagAccount
from scheduler_sims.reports.comparison import compare, mean_jcts


def observed(run, repeat, jobs, **others):
    return run(jobs, cluster="local", repeat=repeat, **others)


def test_errors_are_relative_to_the_mean_of_the_repeats(job, run):
    predicted = run([job("a", 0, 0, 10), job("b", 0, 0, 30)])
    first = observed(run, 1, [job("a", 0, 0, 8), job("b", 0, 0, 40)])
    second = observed(run, 2, [job("a", 0, 0, 12), job("b", 0, 0, 20)])
    (policy,) = compare([predicted, first, second]).policies
    assert policy.error is not None and policy.observed is not None
    assert policy.observed.figures.mean_jct_s == 20
    assert policy.error.by_figure["mean_jct"] == 0
    # p95: predicted 10 + 0.95 * 20 = 29; observed (8 + 0.95 * 32 + 12 + 0.95 * 8) / 2 = 29
    assert policy.error.by_figure["p95_jct"] == pytest.approx(0)
    assert policy.error.by_figure["makespan"] == 0
    assert policy.observed.spread["mean_jct_s"].min == 16
    assert policy.observed.spread["mean_jct_s"].max == 24
    assert policy.observed.spread["mean_jct_s"].relative == pytest.approx(0.4)


def test_errors_of_single_jobs_keep_their_sign_in_the_mean_only(job, run):
    predicted = run([job("a", 0, 0, 11), job("b", 0, 0, 16), job("c", 0, 0, 30)])
    real = observed(run, 1, [job("a", 0, 0, 10), job("b", 0, 0, 20), job("c", 0, 0, 30)])
    (policy,) = compare([predicted, real]).policies
    per_job = policy.error.per_job
    assert per_job.jobs == 3
    assert per_job.mean_signed == pytest.approx((0.1 - 0.2 + 0) / 3)
    assert per_job.median_abs == pytest.approx(0.1)
    assert per_job.p95_abs == pytest.approx(0.1 + 0.9 * 0.1)
    assert per_job.spearman == 1
    # the 50% quantile is 16 against 20; between the jobs the error is smaller
    assert policy.error.jct_quantiles_max_abs == pytest.approx(0.2)
    middle = policy.error.jct_quantiles[9]
    assert (middle.share, middle.predicted_s, middle.observed_s, middle.error) == (0.5, 16, 20, pytest.approx(-0.2))


def test_a_job_swap_is_invisible_in_quantiles_and_visible_per_job(job, run):
    predicted = run([job("a", 0, 0, 10), job("b", 0, 0, 20)])
    (policy,) = compare([predicted, observed(run, 1, [job("a", 0, 0, 20), job("b", 0, 0, 10)])]).policies
    assert policy.error.jct_quantiles_max_abs == 0
    assert policy.error.per_job.median_abs == pytest.approx(0.75)
    assert (policy.error.per_job.spearman, policy.error.per_job.kendall) == (-1, pytest.approx(-1))


def test_one_job_and_one_repeat(job, run):
    (policy,) = compare([run([job("a", 0, 0, 9)]), observed(run, 1, [job("a", 0, 0, 10)])]).policies
    assert (policy.error.per_job.spearman, policy.error.per_job.kendall) == (None, None)
    assert policy.error.per_job.mean_signed == pytest.approx(-0.1)
    assert policy.observed.spread["mean_jct_s"].relative is None


def test_zero_times_leave_errors_undefined_instead_of_dividing(job, run):
    (policy,) = compare([run([job("a", 0, 0, 1)]), observed(run, 1, [job("a", 0, 0, 0)])]).policies
    assert policy.error.by_figure["mean_jct"] is None
    assert policy.error.per_job.mean_signed is None
    assert policy.error.jct_quantiles_max_abs is None
    assert policy.error.by_figure["mean_queueing_delay"] == 0


def test_a_job_that_failed_on_one_side_is_named_and_left_out(job, run):
    predicted = run([job("a", 0, 0, 10), job("b", 0, 0, 20)])
    real = observed(run, 1, [job("a", 0, 0, 10), job("b", 0, 0, 3, status="failed", reason="killed")])
    (policy,) = compare([predicted, real]).policies
    assert policy.error.per_job.jobs == 1
    assert policy.unmatched == ("b",)
    assert [(f.cluster, f.repeat, f.job_id, f.reason) for f in policy.failures] == [("local", 1, "b", "killed")]


def test_a_job_that_failed_in_one_repeat_counts_where_it_finished(job, run):
    repeats = [
        observed(run, 1, [job("a", 0, 0, 10, status="failed")]),
        observed(run, 2, [job("a", 0, 0, 30)]),
        observed(run, 3, [job("a", 0, 0, 50)]),
    ]
    assert mean_jcts(repeats) == {"a": 40}


def test_only_simulated_or_only_observed_runs_have_no_error(job, run):
    (policy,) = compare([run([job("a", 0, 0, 9)])]).policies
    assert policy.predicted is not None and policy.observed is None and policy.error is None
    (policy,) = compare([observed(run, 1, [job("a", 0, 0, 9)])]).policies
    assert policy.predicted is None and policy.observed is not None and policy.error is None
    assert compare([]).policies == ()


def test_policies_keep_the_order_in_which_they_came(runs):
    assert [policy.policy for policy in compare(reversed(runs)).policies] == ["las", "fifo"]


def test_lag_of_repeats_is_that_of_the_worst(job, run):
    jobs = [job("a", 0, 0, 9)]
    one = observed(run, 1, jobs, lag={"step": LagAccount(10, 0.1, 0.2, 0.9)})
    two = observed(run, 2, jobs, lag={"step": LagAccount(20, 0.05, 0.4, 0.5), "start": LagAccount(1, 0, 0, 0)})
    (policy,) = compare([one, two]).policies
    assert policy.observed.lag == {"start": LagAccount(1, 0, 0, 0), "step": LagAccount(30, 0.1, 0.4, 0.9)}


@pytest.mark.parametrize(
    ("kinds", "problem"),
    [
        ([("simulated", 0), ("simulated", 1)], "several simulated runs"),
        ([("local", 1), ("local", 1)], "same repeat number"),
        ([("local", 1), ("kubernetes", 1)], "kubernetes, local"),
    ],
)
def test_what_can_not_be_compared_is_refused_by_policy_name(job, run, kinds, problem):
    runs = [run([job("a", 0, 0, 9)], cluster=cluster, repeat=repeat) for cluster, repeat in kinds]
    with pytest.raises(InputError, match=f"policy 'fifo': .*{problem}"):
        compare(runs)
