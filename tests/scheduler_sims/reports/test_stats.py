from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr

from scheduler_sims.reports.stats import kendall, mean, quantile, relative_error, spearman


def test_nothing_has_no_mean_and_no_quantile():
    assert mean([]) is None
    assert quantile([], 0.5) is None


@pytest.mark.parametrize(
    ("predicted", "observed", "error"),
    [(11, 10, 0.1), (9, 10, -0.1), (0, 10, -1), (0, 0, 0), (1, 0, None), (None, 1, None), (1, None, None)],
)
def test_relative_error_and_where_it_is_undefined(predicted, observed, error):
    assert relative_error(predicted, observed) == (error if error is None else pytest.approx(error))


def test_spearman_by_hand():
    assert spearman([1, 2, 3], [10, 20, 30]) == 1
    assert spearman([1, 2, 3], [3, 2, 1]) == -1
    assert spearman([1, 2, 3, 4], [1, 3, 2, 4]) == pytest.approx(1 - 6 * 2 / (4 * 15))


@pytest.mark.parametrize("pairs", [[], [(1, 2)], [(5, 1), (5, 2)], [(1, 0), (2, 0)]])
def test_spearman_is_undefined_for_one_job_and_constant_times(pairs):
    assert spearman([a for a, _ in pairs], [b for _, b in pairs]) is None


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=2, max_size=20))
def test_spearman_with_ties_is_that_of_scipy(pairs):
    left, right = [a for a, _ in pairs], [b for _, b in pairs]
    found = spearman(left, right)
    if len(set(left)) < 2 or len(set(right)) < 2:
        assert found is None
    else:
        assert found == pytest.approx(spearmanr(left, right).statistic)


def test_kendall_by_hand():
    assert kendall([1, 2, 3], [10, 20, 30]) == pytest.approx(1)
    assert kendall([1, 2, 3, 4], [1, 3, 2, 4]) == pytest.approx((5 - 1) / 6)  # one pair of six is the other way round


@pytest.mark.parametrize("pairs", [[], [(1, 2)], [(5, 1), (5, 2)], [(1, 0), (2, 0)]])
def test_kendall_is_undefined_for_one_job_and_constant_times(pairs):
    assert kendall([a for a, _ in pairs], [b for _, b in pairs]) is None
