"""Reads JSON (or parsed YAML) from users and other programs: a Field returns its value with the expected type, or raises an
InputError with the exact position of the mistake. Duplicate keys and NaN, which Python's json accepts, are errors here.

A Field holds a parsed value, because the same inventory can be a file, an annotation of a Node or a part of a custom resource.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from emulator_runtime.domain.errors import InputError, UnknownNameError
from emulator_runtime.domain.wording import NESTED_TOO_DEEPLY

_LARGEST = 2**53
"""The largest whole number that JSON parsers which use floating point represent exactly."""


@dataclass(frozen=True, slots=True)
class Field:
    """One value of a document. `place` names the document, `path` the position in it; each InputError has both."""

    place: str
    path: str
    value: object

    def error(self, problem: str) -> InputError:
        return InputError(self._where, problem)

    def items(self) -> dict[str, Field]:
        """The members of an object whose keys are names chosen by the user."""
        for key in (members := self._members()):
            if not key.strip():
                raise self.error("has an empty name")
        return members

    def members(self, required: Collection[str], optional: Collection[str] = ()) -> dict[str, Field]:
        """The members of an object with fixed keys. Raises UnknownNameError for any other key."""
        members = self._members()
        for key in members:
            if key not in required and key not in optional:
                raise UnknownNameError(self._where, "field", str(key), (*required, *optional))
        for key in required:
            if key not in members:
                raise self.error(f"{key} is missing")
        return members

    def _members(self) -> dict[str, Field]:
        if not isinstance(self.value, dict):
            raise self.error(f"must be an object, not {_kind(self.value)}")
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

    def whole(self, *, least: int = 0, most: int = _LARGEST) -> int:
        if type(self.value) is not int:
            raise self.error(f"must be a whole number, not {_kind(self.value)}")
        if self.value > _LARGEST:
            raise self.error("is too large")
        if not least <= self.value <= most:
            bounds = f">= {least}" if most == _LARGEST else f"from {least} to {most}" if least < most else str(least)
            raise self.error(f"must be {bounds}, got {self.value}")
        return self.value

    def flag(self) -> bool:
        if not isinstance(self.value, bool):
            raise self.error(f"must be true or false, not {_kind(self.value)}")
        return self.value

    @property
    def _where(self) -> str:
        return f"{self.place}: {self.path}" if self.path else self.place


def read_json(path: Path) -> Field:
    """The document in `path`. Raises InputError if it can't be read, isn't JSON, or repeats a key."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise InputError(str(path), f"can't be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(str(path), f"is not UTF-8 text (byte {error.start})") from error
    return parse(text, str(path))


def parse(text: str, place: str) -> Field:
    """The JSON document in `text`. Raises InputError naming `place` if it isn't JSON or repeats a key."""
    try:
        return Field(place, "", json.loads(text, object_pairs_hook=_object, parse_constant=_constant))
    except json.JSONDecodeError as error:
        raise InputError(f"{place}:{error.lineno}:{error.colno}", f"is not JSON: {error.msg}") from error
    except RecursionError as error:
        raise InputError(place, NESTED_TOO_DEEPLY) from error
    except ValueError as error:
        raise InputError(place, str(error)) from error


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"has the key {next(key for key in keys if keys.count(key) > 1)!r} twice in one object")
    return members


def _constant(name: str) -> object:
    raise ValueError(f"has the value {name}, which JSON doesn't know; give a finite number")


def _kind(value: object) -> str:
    if isinstance(value, list):
        return "an array" if value else "an empty array"
    return "an object" if isinstance(value, dict) else json.dumps(value, default=repr)
