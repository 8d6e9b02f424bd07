"""A policy's memory as plain data and back, so that it can be kept outside the program.

Plain are numbers, texts, None, tuples, lists, sets and maps of such, and frozen dataclasses of such. A dataclass that says
`KEPT = False` is a cache: it is kept as None, and the policy makes it anew. Types are named by module and name; only those of
the bundled policies and of the policy's own file are made when the text is read.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from math import isfinite
from typing import Any

_OWN = "scheduler_sims."
_KINDS: Mapping[str, type[Any]] = {"tuple": tuple, "set": set, "frozenset": frozenset}


class PlainError(ValueError):
    """A value that is not plain, or a text that is none of `encode`'s."""


def encode(value: Any) -> object:
    """What json.dumps takes. Raises PlainError naming the type that isn't plain."""
    if value is None or isinstance(value, (bool, str)) or type(value) is int:
        return value
    if type(value) is float:
        return value if isfinite(value) else {"number": str(value)}
    if type(value) is list:
        return [encode(element) for element in value]
    for name, kind in _KINDS.items():
        if type(value) is kind:
            elements = [encode(element) for element in value]
            return {name: elements}
    if isinstance(value, Mapping):
        return {"map": [[encode(key), encode(element)] for key, element in value.items()]}
    if is_dataclass(value) and not isinstance(value, type):
        return _encode_object(value)
    raise PlainError(f"a {type(value).__qualname__} is no plain data (numbers, texts, lists, maps, frozen dataclasses)")


def _encode_object(value: Any) -> object:
    kind = type(value)
    if getattr(kind, "KEPT", True) is False:
        return None
    members = {each.name: encode(getattr(value, each.name)) for each in fields(value) if each.init}
    return {"type": f"{kind.__module__}:{kind.__qualname__}", "fields": members}


def decode(value: object, module: str) -> Any:
    """The value again; `module`: whose dataclasses may be in it, beside the bundled policies'. Raises PlainError."""
    if value is None or isinstance(value, (bool, str, int, float)):
        return value
    if isinstance(value, list):
        return [decode(element, module) for element in value]
    if not isinstance(value, dict):
        raise PlainError(f"{value!r} is no plain data")
    if "type" in value:
        return _decode_object(value, module)
    try:
        ((name, content),) = value.items()
        if name == "number":
            return float(content)
        if name == "map":
            return {decode(key, module): decode(element, module) for key, element in content}
        return _KINDS[name](decode(element, module) for element in content)
    except (ValueError, TypeError, KeyError) as error:
        raise PlainError(f"{str(value)[:80]} is no plain data") from error


def _decode_object(value: Mapping[str, Any], module: str) -> Any:
    where, _, name = str(value["type"]).partition(":")
    found: Any = sys.modules.get(where) if where == module or where.startswith(_OWN) else None
    for part in name.split("."):
        found = getattr(found, part, None)
    if not (isinstance(found, type) and is_dataclass(found)):
        raise PlainError(f"{value['type']} is no type of this policy")
    try:
        return found(**{key: decode(member, module) for key, member in value["fields"].items()})
    except (TypeError, KeyError, AttributeError) as error:
        raise PlainError(f"{value['type']} is made in another way now") from error
