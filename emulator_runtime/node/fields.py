"""Reads typed values from a JSON or YAML document of unknown origin; errors name the document and the path in it.

It works on parsed values, because the same inventory can be a file, an annotation of a Node or a part of a custom resource.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass

from emulator_runtime.domain.errors import InputError, UnknownNameError
from emulator_runtime.domain.json_document import decode

LARGEST = 2**53
"""The largest whole number that JSON parsers which use floating point represent exactly."""


@dataclass(frozen=True, slots=True)
class Field:
    """One value of a document. `place` names the document, `path` the position in it; each InputError has both."""

    place: str
    path: str
    value: object

    def error(self, problem: str) -> InputError:
        return InputError(self._where, problem)

    def members(self, known: Collection[str]) -> dict[str, Field]:
        """The members of an object. Raises UnknownNameError for a member that isn't in `known`."""
        if not isinstance(self.value, dict):
            raise self.error(f"must be an object, not {_kind(self.value)}")
        for key in self.value:
            if key not in known:
                raise UnknownNameError(self._where, "field", str(key), known)
        return {key: Field(self.place, f"{self.path}.{key}" if self.path else key, v) for key, v in self.value.items()}

    def elements(self) -> list[Field]:
        """The elements of an array. The array may be empty."""
        if not isinstance(self.value, list):
            raise self.error(f"must be an array, not {_kind(self.value)}")
        return [Field(self.place, f"{self.path}[{index}]", value) for index, value in enumerate(self.value)]

    def text(self, *, least: int = 0, most: int = 1024) -> str:
        """A text of `least` to `most` characters. Surrogates are refused, because files can't hold them."""
        if not isinstance(self.value, str):
            raise self.error(f"must be a string, not {_kind(self.value)}")
        if not least <= len(self.value) <= most or any("\ud800" <= char <= "\udfff" for char in self.value):
            raise self.error(f"must be a text of {least} to {most} characters")
        return self.value

    def whole(self, *, least: int = 0, most: int = LARGEST) -> int:
        if type(self.value) is not int:
            raise self.error(f"must be a whole number, not {_kind(self.value)}")
        if not least <= self.value <= most:
            wanted = f"from {least} to {most}" if least < most else str(least)
            raise self.error(f"must be {wanted}, got {self.value}")
        return self.value

    def flag(self) -> bool:
        if not isinstance(self.value, bool):
            raise self.error(f"must be true or false, not {_kind(self.value)}")
        return self.value

    @property
    def _where(self) -> str:
        return f"{self.place}: {self.path}" if self.path else self.place


def parse(text: str, place: str) -> Field:
    """The JSON document in `text`. Raises InputError if it isn't JSON or repeats a key."""
    return Field(place, "", decode(text, place))


def required(members: dict[str, Field], name: str, owner: Field) -> Field:
    """The member `name`. Raises InputError naming `owner` if it is missing."""
    if name not in members:
        raise owner.error(f"{name} is missing")
    return members[name]


def _kind(value: object) -> str:
    if isinstance(value, list):
        return "an array"
    return "an object" if isinstance(value, dict) else json.dumps(value, default=repr)
