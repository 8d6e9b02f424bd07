"""A JSON document whose values know their paths, so that an error names the exact position of the mistake."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from emulator_runtime.domain.errors import InputError, UnknownNameError
from emulator_runtime.domain.json_document import decode

_LARGEST = 2**53
"""The largest whole number that floating point represents exactly; all sizes and times here are far below it."""


@dataclass(frozen=True, slots=True)
class Field:
    """One value of a JSON document. Each method returns it with its type, or raises InputError with file and path."""

    file: str
    path: str
    value: object

    def error(self, problem: str) -> InputError:
        """An InputError for this value."""
        return InputError(self._place, problem)

    def items(self) -> dict[str, Field]:
        """The members of an object whose keys are names chosen by the user."""
        if not isinstance(self.value, dict):
            raise self.error(f"must be an object, not {_kind(self.value)}")
        for key in self.value:
            if not key.strip():
                raise self.error("has an empty name")
        return {key: Field(self.file, _join(self.path, key), value) for key, value in self.value.items()}

    def members(self, known: Collection[str], required: Collection[str] = ()) -> dict[str, Field]:
        """The members of an object with fixed keys: those in `known` are allowed, those in `required` must exist."""
        members = self.items()
        for key in members:
            if key not in known:
                raise UnknownNameError(self._place, "field", key, known)
        for key in required:
            if key not in members:
                raise self.error(f"{key} is missing")
        return members

    def elements(self) -> Iterator[Field]:
        """The elements of an array that isn't empty."""
        if not isinstance(self.value, list) or not self.value:
            raise self.error(f"must be an array of at least one element, not {_kind(self.value)}")
        for index, value in enumerate(self.value):
            yield Field(self.file, f"{self.path}[{index}]", value)

    def number(self, *, above: float | None = None, least: float | None = None) -> float:
        """A finite number, greater than `above` and at least `least`, if given."""
        if isinstance(self.value, bool) or not isinstance(self.value, int | float):
            raise self.error(f"must be a number, not {_kind(self.value)}")
        if not -_LARGEST <= self.value <= _LARGEST:
            raise self.error("is too large")
        if above is not None and self.value <= above:
            raise self.error(f"must be > {above:g}")
        if least is not None and self.value < least:
            raise self.error(f"must be >= {least:g}")
        return float(self.value)

    def whole(self, *, least: int) -> int:
        """A whole number of at least `least`."""
        if isinstance(self.value, bool) or not isinstance(self.value, int):
            raise self.error(f"must be a whole number, not {_kind(self.value)}")
        if self.value < least:
            raise self.error(f"must be >= {least}")
        if self.value > _LARGEST:
            raise self.error("is too large")
        return self.value

    def text(self) -> str:
        """A string, unchanged."""
        if not isinstance(self.value, str):
            raise self.error(f"must be a string, not {_kind(self.value)}")
        return self.value

    @property
    def _place(self) -> str:
        return f"{self.file}: {self.path}" if self.path else self.file


def read_json(path: Path) -> Field:
    """The document in `path`. Raises InputError if it can't be read, isn't JSON, or repeats a key."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InputError(str(path), f"can't be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(str(path), f"is not UTF-8 text (byte {error.start})") from error
    return Field(str(path), "", decode(text, str(path)))


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _kind(value: object) -> str:
    if isinstance(value, list):
        return "an array" if value else "an empty array"
    if isinstance(value, dict):
        return "an object"
    return json.dumps(value)
