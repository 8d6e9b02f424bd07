"""The statistics that reports need. They are also defined for cases in which the textbook formula divides by zero."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


def mean(values: Sequence[float]) -> float | None:
    """The arithmetic mean; None without values."""
    return float(np.mean(values)) if values else None


def quantile(values: Sequence[float], share: float) -> float | None:
    """The quantile at `share` (0 to 1), interpolated linearly between the two nearest ranks; None without values.

    This is numpy's default and type 7 of Hyndman and Fan, "Sample Quantiles in Statistical Packages" (1996).
    """
    return float(np.quantile(values, share)) if values else None


def relative_error(predicted: float | None, observed: float | None) -> float | None:
    """(predicted - observed) / observed; 0 if both are zero, None if it is undefined."""
    if predicted is None or observed is None:
        return None
    if observed == 0:
        return 0.0 if predicted == 0 else None
    return (predicted - observed) / observed


def spearman(left: Sequence[float], right: Sequence[float]) -> float | None:
    """Spearman's rank correlation with mean ranks for ties; None with fewer than two pairs, or if one side is constant."""
    if len(set(left)) < 2 or len(set(right)) < 2:
        return None
    a, b = _ranks(left), _ranks(right)
    a, b = a - a.mean(), b - b.mean()
    correlation = float((a * b).sum() / np.sqrt((a * a).sum() * (b * b).sum()))
    return min(1.0, max(-1.0, correlation))


def kendall(left: Sequence[float], right: Sequence[float]) -> float | None:
    """Kendall's rank correlation tau-b: pairs in the same order minus pairs in the opposite order, corrected for ties.

    None with fewer than two pairs, or if one side is constant.
    """
    if len(set(left)) < 2 or len(set(right)) < 2:
        return None
    from scipy.stats import kendalltau  # takes a second, which programs that compare nothing need not wait for

    return float(kendalltau(left, right).statistic)


def _ranks(values: Sequence[float]) -> NDArray[np.float64]:
    _, inverse, counts = np.unique(np.asarray(values, dtype=np.float64), return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    ranks: NDArray[np.float64] = (last - (counts - 1) / 2)[inverse]
    return ranks
