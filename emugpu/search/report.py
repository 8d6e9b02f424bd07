"""What a search found: the best, why it is better than the next one, how sure that is, and what doesn't run."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence

from rich import box
from rich.markup import escape
from rich.table import Table

from emugpu.prediction.figures import PARTS
from emugpu.search.evaluation import Outcome, State
from emugpu.search.expressions import Value
from emugpu.search.optimiser import Evaluated, Search, front, key_of, objective_of
from emugpu.search.recipe import COST, GPU_TYPE, shown
from emulator_runtime.domain.units import GIB
from emulator_runtime.profiles.catalogue import bundled_catalogue

ESTIMATE_ERROR = 0.094
"""Median error of estimated steps against published ones, on the worst of the measured GPU types (docs/cuda.md, "Time")."""
_ROWS = 10


def as_json(search: Search) -> str:
    """All that was evaluated, the best first, then what has no value."""
    best = search.best()
    pareto = {id(one) for one in front(search.recipe, search.found)}
    baseline = None if search.recipe.baseline is None else key_of(search.recipe.baseline)
    others = [one for one in search.found.values() if one.outcome.sample_s is None]
    document = {
        "objective": search.recipe.objective,
        "allowed_configurations": len(search.allowed),
        "evaluated": [
            {
                "configuration": dict(one.configuration),
                "command": search.recipe.words(one.configuration),
                "gpus": search.recipe.gpu_count(one.configuration),
                "state": one.outcome.state.value,
                "reason": one.outcome.reason,
                "step_s": one.outcome.step_s,
                "sample_s": one.outcome.sample_s,
                "sample_cost": one.outcome.sample_cost,
                "memory_bytes": one.outcome.memory_bytes,
                "bound": one.outcome.bound,
                "step_seconds": dict(one.outcome.seconds),
                "pareto": id(one) in pareto,
                "baseline": key_of(one.configuration) == baseline,
            }
            for one in (*best, *others)
        ],
    }
    return json.dumps(document, indent=2) + "\n"


def table(search: Search) -> Table:
    """The best ones, and those of the Pareto front, marked `*`."""
    best, pareto = search.best(), {id(one) for one in front(search.recipe, search.found)}
    priced = any(one.outcome.sample_cost is not None for one in best)
    found = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    for name in search.recipe.knobs:
        found.add_column(escape(name), justify="right")
    headings = ("Step ms", "Sample ms", *(["Cost of 1M samples"] if priced else []), "Memory GiB", "Bound", "Pareto")
    for heading in headings:
        found.add_column(heading, justify="right")
    for one in [one for place, one in enumerate(best) if place < _ROWS or (priced and id(one) in pareto)]:
        outcome = one.outcome
        cost = "-" if outcome.sample_cost is None else f"{outcome.sample_cost * 1e6:,.2f}"
        found.add_row(
            *(escape(_cell(name, value)) for name, value in one.configuration.items()),
            f"{(outcome.step_s or 0) * 1e3:.2f}",
            f"{(outcome.sample_s or 0) * 1e3:.3f}",
            *([cost] if priced else []),
            f"{(outcome.memory_bytes or 0) / GIB:.2f}",
            PARTS.get(outcome.bound, outcome.bound),
            "*" if id(one) in pareto else "",
        )
    return found


def _cell(name: str, value: Value) -> str:
    """GPU types by their short names."""
    return (
        next(iter(bundled_catalogue().short_names(str(value))), str(value)) if name == GPU_TYPE else str(value) or "-"
    )


def sentences(search: Search) -> list[str]:
    """The findings in words."""
    best = search.best()
    counts = Counter(one.outcome.state for one in search.found.values())
    states = ", ".join(f"{count} {state.value}" for state, count in counts.items())
    lines = [f"{len(search.found)} of {len(search.allowed)} configurations: {states or 'none'}"]
    if best:
        lines.append(f"best by {search.recipe.objective}: {shown(best[0].configuration)}")
        lines += _comparison(search, best)
        lines += _with_baseline(search, best[0])
    reasons = Counter(one.outcome.reason for one in search.found.values() if one.outcome.state is State.FAILED)
    lines += [f"failed, {count}: {reason}" for reason, count in reasons.most_common(3)]
    return lines


def _with_baseline(search: Search, best: Evaluated) -> list[str]:
    """How the recipe's baseline compares with the best."""
    if search.recipe.baseline is None:
        return []
    name = f"the baseline ({shown(search.recipe.baseline)})"
    baseline = search.found.get(key_of(search.recipe.baseline))
    value = None if baseline is None else objective_of(search.recipe, baseline.outcome)
    if baseline is None:
        return [f"{name} wasn't evaluated"]
    if baseline is best:
        return [f"{name} is the best"]
    if value is None:
        return [f"{name}: {baseline.outcome.state.value}: {baseline.outcome.reason}"]
    margin = value / (objective_of(search.recipe, best.outcome) or value) - 1
    what = "costs" if search.recipe.objective == COST else "takes"
    return [f"{name} {what} {margin:.1%} more for a sample{_why(best.outcome, baseline.outcome, 'more')}"]


def _comparison(search: Search, best: Sequence[Evaluated]) -> list[str]:
    if len(best) == 1:
        return ["nothing else ran, so that there is nothing to compare it with"]
    values = [objective_of(search.recipe, one.outcome) or 0.0 for one in best]
    margin = values[1] / values[0] - 1
    what = "cheaper" if search.recipe.objective == COST else "faster"
    second = shown(best[1].configuration)
    lines = [f"it is {margin:.1%} {what} than the next one ({second}){_why(best[0].outcome, best[1].outcome)}"]
    alike = sum(value <= values[0] * (1 + ESTIMATE_ERROR) for value in values) - 1
    if alike:
        lines.append(
            f"{alike} more within {ESTIMATE_ERROR:.1%}, the median error of estimated steps: measure these before a long run"
        )
    else:
        lines.append(f"all others are further away than {ESTIMATE_ERROR:.1%}, the median error of estimated steps")
    return lines


def _why(best: Outcome, other: Outcome, word: str = "less") -> str:
    """The part of a step in whose time for a sample the best saves most. `word`: less for the best, more for the other."""
    if not (best.step_s and best.sample_s and other.step_s and other.sample_s):
        return ""
    one = {part: seconds * best.sample_s / best.step_s for part, seconds in best.seconds.items()}
    two = {part: seconds * other.sample_s / other.step_s for part, seconds in other.seconds.items()}
    saved = {part: two.get(part, 0.0) - one.get(part, 0.0) for part in {*one, *two}}
    part = max(sorted(saved), key=lambda name: saved[name], default="")
    if not part or saved[part] <= 0:
        return ""
    return f": {saved[part] * 1e3:.3f} ms {word} of {PARTS.get(part, part)} for a sample"
