"""What a search has found so far, a line of JSON for each evaluation, so that an interrupted search goes on."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from emugpu.search.evaluation import Outcome, State
from emugpu.search.optimiser import Evaluated
from emugpu.search.recipe import Recipe
from emulator_runtime.domain.errors import InputError
from emulator_runtime.files import write_whole


class Journal:
    """The file of one recipe. Another recipe, or a changed one, must have another file."""

    def __init__(self, path: Path, recipe: Recipe) -> None:
        self._path = path
        self._recipe = {
            "command": list(recipe.command),
            "constants": dict(recipe.constants),
            "gpus": recipe.gpus.text,
            "samples": recipe.samples.text,
            "prices": dict(recipe.prices),
            "network_gbps": recipe.network_gbps,
        }

    def read(self) -> list[Evaluated]:
        """What was found, without what is unfinished or didn't need to be done. Raises InputError for another recipe's file.

        A line that was being written when the machine stopped is removed, so that the next one has a line of its own."""
        if not self._path.exists():
            self._path.write_text(json.dumps(self._recipe) + "\n", encoding="utf-8")
            return []
        text = self._path.read_text(encoding="utf-8")
        whole = text[: text.rfind("\n") + 1]
        lines = (whole or text).splitlines()
        try:
            if json.loads(lines[0]) != self._recipe:
                raise InputError(str(self._path), "is of another recipe; name another folder by --out, or delete it")
            found = [one for line in lines[1:] if (one := _evaluated(json.loads(line))) is not None]
        except (ValueError, KeyError, TypeError, IndexError) as error:
            raise InputError(str(self._path), f"isn't what a search wrote ({error}); delete it") from error
        if whole != text:
            write_whole(self._path, whole, sync=False)
        return found

    def append(self, one: Evaluated) -> None:
        """At once, so that nothing is lost."""
        line = json.dumps({"configuration": dict(one.configuration), **asdict(one.outcome)})
        with self._path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")


def _evaluated(values: dict[str, Any]) -> Evaluated | None:
    configuration = values.pop("configuration")
    outcome = Outcome(**{**values, "state": State(values["state"])})
    return None if outcome.state in (State.PRUNED, State.FAILED) else Evaluated(configuration, outcome)
