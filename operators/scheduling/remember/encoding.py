"""Encodes a policy's state as plain data and decodes it, so that it can be stored outside the process.

Plain data are numbers, texts, None, and tuples, lists, sets, maps and frozen dataclasses of plain data. A dataclass with
`KEPT = False` is a cache: it is stored as None, and the policy computes it again. Types are stored by module and name; decoding
creates only types of the bundled policies and of the policy's own file.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from math import isfinite
from typing import Any

from emulator_runtime.domain.errors import EmuGpuError

_OWN = "scheduler_sims."
_KINDS: Mapping[str, type[Any]] = {"tuple": tuple, "set": set, "frozenset": frozenset}


class EncodingError(EmuGpuError):
    """A value is not plain data, or was not written by `encode`."""

    code = "encoding"


def encode(value: Any) -> object:
    """The value in types that json.dumps accepts. Raises EncodingError naming the type that isn't plain."""
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
    raise EncodingError(
        f"a {type(value).__qualname__} is not plain data (numbers, texts, lists, maps, frozen dataclasses)"
    )


def _encode_object(value: Any) -> object:
    kind = type(value)
    if getattr(kind, "KEPT", True) is False:
        return None
    members = {each.name: encode(getattr(value, each.name)) for each in fields(value) if each.init}
    return {"type": f"{kind.__module__}:{kind.__qualname__}", "fields": members}


def decode(value: object, module: str) -> Any:
    """The value that was encoded. It may contain dataclasses of `module` and of the bundled policies. Raises EncodingError."""
    if value is None or isinstance(value, (bool, str, int, float)):
        return value
    if isinstance(value, list):
        return [decode(element, module) for element in value]
    if not isinstance(value, dict):
        raise EncodingError(f"{value!r} is not plain data")
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
        raise EncodingError(f"{str(value)[:80]} is not plain data") from error


def _decode_object(value: Mapping[str, Any], module: str) -> Any:
    where, _, name = str(value["type"]).partition(":")
    kind: Any = sys.modules.get(where) if where == module or where.startswith(_OWN) else None
    for part in name.split("."):
        kind = getattr(kind, part, None)
    if not (isinstance(kind, type) and is_dataclass(kind)):
        raise EncodingError(f"{value['type']} is not a type of this policy")
    try:
        return kind(**{key: decode(member, module) for key, member in value["fields"].items()})
    except (TypeError, KeyError, AttributeError) as error:
        raise EncodingError(f"{value['type']} has other fields now") from error
