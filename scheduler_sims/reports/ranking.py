"""Ranks the policies: is the better one better by as much as predicted?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from scheduler_sims.reports.comparison import Comparison
from scheduler_sims.reports.stats import relative_error


@dataclass(frozen=True, slots=True)
class Standing:
    """The rank of a policy by mean JCT (1 is the shortest), and the ratio of its mean JCT to that of the first policy.

    `error` is the error of the ratio. None: not predicted, not observed, or only one policy.
    """

    policy: str
    predicted_place: int | None
    observed_place: int | None
    predicted_ratio: float | None
    observed_ratio: float | None
    error: float | None


def standings(comparison: Comparison) -> list[Standing]:
    """The standing of each policy, in the order of the comparison; empty for fewer than two policies."""
    if len(comparison.policies) < 2:
        return []
    predicted = {p.policy: p.predicted.mean_jct_s if p.predicted else None for p in comparison.policies}
    observed = {p.policy: p.observed.figures.mean_jct_s if p.observed else None for p in comparison.policies}
    result = []
    for policy in predicted:
        predicted_ratio, observed_ratio = _ratio(predicted, policy), _ratio(observed, policy)
        places = _place(predicted, policy), _place(observed, policy)
        result.append(
            Standing(policy, *places, predicted_ratio, observed_ratio, relative_error(predicted_ratio, observed_ratio))
        )
    return result


def _ratio(means: Mapping[str, float | None], policy: str) -> float | None:
    first, own = next(iter(means.values())), means[policy]
    return own / first if own is not None and first else None


def _place(means: Mapping[str, float | None], policy: str) -> int | None:
    own = means[policy]
    return None if own is None else 1 + sum(other is not None and other < own for other in means.values())
