"""A file with a line of JSON for each evaluation, written as it ends, so that what is done survives an interruption.

The first line says what was evaluated; a file of something else is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from emulator_runtime.domain.errors import InputError
from emulator_runtime.files import write_whole


class Journal:
    """The file of one subject. `subject`: in JSON values; `kind`: what it is, for messages."""

    def __init__(self, path: Path, subject: Mapping[str, Any], kind: str) -> None:
        self.path, self._kind = path, kind
        self._subject = json.loads(json.dumps(subject))

    def read(self) -> list[dict[str, Any]]:
        """The evaluations in the order in which they ended. Raises InputError for another subject's file.

        A line that was being written when the machine stopped is removed, so that the next one has a line of its own."""
        if not self.path.exists():
            self.path.write_text(json.dumps(self._subject) + "\n", encoding="utf-8")
            return []
        text = self.path.read_text(encoding="utf-8", errors="replace")
        whole = text[: text.rfind("\n") + 1]
        lines = (whole or text).splitlines()
        try:
            if json.loads(lines[0]) != self._subject:
                raise InputError(
                    str(self.path), f"is of another {self._kind}; name another folder by --out, or delete it"
                )
            values = [json.loads(line) for line in lines[1:]]
        except (ValueError, IndexError) as error:
            raise self.damaged(error) from error
        if not all(isinstance(value, dict) for value in values):
            raise self.damaged("a line is no object")
        if whole != text:
            write_whole(self.path, whole, sync=False)
        return values

    def append(self, values: Mapping[str, Any]) -> None:
        """At once, so that nothing is lost."""
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(values) + "\n")

    def damaged(self, problem: object) -> InputError:
        """The error for a file whose lines aren't what the command writes."""
        return InputError(str(self.path), f"isn't what this command writes ({problem}); delete it")
