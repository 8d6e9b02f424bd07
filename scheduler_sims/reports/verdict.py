"""Summarises a comparison in two or three sentences."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise, permutations

from scheduler_sims.reports.comparison import Comparison
from scheduler_sims.reports.formats import percent, seconds

Ranges = Mapping[str, tuple[float, float]]
"""For each policy, the smallest and the largest mean JCT of its runs, in seconds."""


def verdict(comparison: Comparison) -> tuple[str, ...]:
    """How accurate the predictions were, and which policy is best; empty if no job finished."""
    return (*_accuracy(comparison), *_ranking(comparison))


def _accuracy(comparison: Comparison) -> Iterator[str]:
    errors = {p.policy: e for p in comparison.policies if p.error and (e := p.error.by_figure["mean_jct"]) is not None}
    if not errors:
        return
    worst = max(errors, key=lambda policy: abs(errors[policy]))
    if len(errors) == 1:
        yield f"The predicted mean JCT of {worst} is {percent(errors[worst])} off the observed one."
        return
    size = percent(abs(errors[worst]), signed=False)
    yield (
        f"The predicted mean JCT is within {size} of the observed one for all {len(errors)} policies; "
        f"the largest error is that of {worst} ({percent(errors[worst])})."
    )


def _ranking(comparison: Comparison) -> Iterator[str]:
    predicted = {
        p.policy: (v, v) for p in comparison.policies if p.predicted and (v := p.predicted.mean_jct_s) is not None
    }
    observed = {
        p.policy: (spread.min, spread.max)
        for p in comparison.policies
        if p.observed and (spread := p.observed.spread.get("mean_jct_s"))
    }
    if len(observed) >= 2 and _agree(predicted, observed):
        yield f"Prediction and observation rank the policies alike by mean JCT: {_chain(observed)}."
    else:
        if len(predicted) >= 2:
            yield f"Predicted ranking by mean JCT: {_chain(predicted)}."
        if len(observed) >= 2:
            yield f"Observed ranking by mean JCT: {_chain(observed)}."
    for ranges, how in ((observed, "observed"), (predicted, "predicted")):
        if ranges:
            best = _order(ranges)[0]
            yield f"The shortest {how} mean JCT is {_range(*ranges[best])}, with {best}."
            return


def _agree(predicted: Ranges, observed: Ranges) -> bool:
    """Whether the prediction has the same order for all pairs of policies that the repeats distinguish."""
    if predicted.keys() != observed.keys():
        return False
    pairs = permutations(observed, 2)
    return all(_shorter(predicted[a], predicted[b]) for a, b in pairs if _shorter(observed[a], observed[b]))


def _chain(ranges: Ranges) -> str:
    """The policies by mean JCT: `<` if every repeat of one is shorter than every repeat of the next, else `≈`."""
    order = _order(ranges)
    signs = ["<" if _shorter(ranges[a], ranges[b]) else "≈" for a, b in pairwise(order)]
    return " ".join(word for pair in zip(order, [*signs, ""], strict=True) for word in pair).strip()


def _shorter(one: tuple[float, float], other: tuple[float, float]) -> bool:
    return one[1] < other[0] * (1 - 1e-9)  # ignore rounding errors


def _order(ranges: Ranges) -> list[str]:
    return sorted(ranges, key=lambda policy: sum(ranges[policy]))


def _range(low: float, high: float) -> str:
    ends = dict.fromkeys((seconds(low), seconds(high)))
    return f"{' to '.join(ends)} s"
