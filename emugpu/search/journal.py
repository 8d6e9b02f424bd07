"""What a search has found so far, so that an interrupted search goes on."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from emugpu.evaluations.journal import Journal
from emugpu.search.evaluation import Outcome, State
from emugpu.search.optimiser import Evaluated
from emugpu.search.recipe import Recipe


class SearchJournal:
    """The file of one recipe. Another recipe, or a changed one, must have another file."""

    def __init__(self, path: Path, recipe: Recipe) -> None:
        subject = {
            "command": list(recipe.command),
            "constants": dict(recipe.constants),
            "derived": {name: expression.text for name, expression in recipe.derived.items()},
            "gpus": recipe.gpus.text,
            "layout": {axis: size.text for axis, size in recipe.layout.items()},
            "gpus_per_node": recipe.gpus_per_node,
            "microbatches": _microbatches(recipe),
            "samples": recipe.samples.text,
            "prices": dict(recipe.prices),
            "network_gbps": recipe.network_gbps,
        }
        self._journal = Journal(path, subject, "recipe")

    def read(self) -> list[Evaluated]:
        """What was found, without what is unfinished or didn't need to be done. Raises InputError for another recipe's file."""
        try:
            return [one for values in self._journal.read() if (one := _evaluated(values)) is not None]
        except (ValueError, KeyError, TypeError) as error:
            raise self._journal.damaged(error) from error

    def append(self, one: Evaluated) -> None:
        """At once, so that nothing is lost."""
        self._journal.append({"configuration": dict(one.configuration), **asdict(one.outcome)})


def _evaluated(values: dict[str, Any]) -> Evaluated | None:
    configuration = values.pop("configuration")
    outcome = Outcome(**{**values, "state": State(values["state"])})
    return None if outcome.state in (State.PRUNED, State.FAILED) else Evaluated(configuration, outcome)


def _microbatches(recipe: Recipe) -> list[str]:
    """What decides a step: nothing, where all of its microbatches are traced."""
    if recipe.microbatches is None or recipe.traced_microbatches is None:
        return []
    return [recipe.microbatches.text, recipe.traced_microbatches.text]
