"""Strict decoding of JSON from other programs: duplicate keys and NaN, which Python's json accepts, are errors here."""

from __future__ import annotations

import json

from emulator_runtime.domain.errors import InputError
from emulator_runtime.domain.wording import NESTED_TOO_DEEPLY


def decode(text: str, place: str) -> object:
    """The value of the JSON document in `text`. Raises InputError naming `place` if it isn't JSON or repeats a key."""
    try:
        return json.loads(text, object_pairs_hook=_object, parse_constant=_constant)
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
