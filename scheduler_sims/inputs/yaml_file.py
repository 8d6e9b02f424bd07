"""Reads a user's YAML file, and fields of its mappings. Errors name the file and the field."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from emulator_runtime.domain.errors import InputError, UnknownNameError
from emulator_runtime.domain.units import MAX_SECONDS
from emulator_runtime.domain.wording import NESTED_TOO_DEEPLY, shown


def read_yaml(path: Path, what: str) -> object:
    """The document in `path`. `what` names it in errors, such as "cluster file". Raises InputError that names file and line."""
    try:
        return yaml.load(path.read_text(encoding="utf-8"), Loader=_Loader)
    except OSError as error:
        raise InputError(str(path), f"can't read the {what}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise InputError(str(path), "is not UTF-8 text") from error
    except (yaml.YAMLError, ValueError) as error:  # ValueError: a date such as 2001-99-99
        raise _not_yaml(path, error) from error
    except RecursionError as error:
        raise InputError(str(path), NESTED_TOO_DEEPLY) from error


class _Loader(yaml.SafeLoader):
    """Refuses a key that is given twice: YAML forbids it, the library would silently take the last one."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                raise yaml.MarkedYAMLError(problem=f"{key.value!r} is given twice", problem_mark=key.start_mark)
            seen.add(str(key.value))
        return super().construct_mapping(node, deep=deep)


def _not_yaml(path: Path, error: Exception) -> InputError:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or " ".join(str(error).split())
    return InputError(f"{path}:{mark.line + 1}" if mark else str(path), f"not valid YAML: {problem}")


def list_of(fields: Mapping[str, Any], name: str, place: str) -> list[object]:
    """The list `name`, empty if it is missing. Raises InputError."""
    value = fields.get(name, [])
    if not isinstance(value, list):
        raise InputError(f"{place}.{name}", f"must be a list, not {shown(value)}")
    return value


def mapping_of(value: object, place: str, known: tuple[str, ...]) -> dict[str, Any]:
    """`value`, if it is a mapping with fields of `known` only. Raises InputError."""
    if not isinstance(value, dict):
        raise InputError(place, f"must be a mapping with {', '.join(known)}")
    for key in value:
        if key not in known:
            raise UnknownNameError(place, "field", str(key), known)
    return value


def whole_of(fields: Mapping[str, Any], name: str, place: str, *, default: int, least: int, most: int) -> int:
    """The whole number `name`. Raises InputError."""
    value = fields.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise InputError(f"{place}.{name}", f"must be a whole number from {least} to {most}, not {shown(value)}")
    return value


def number_of(
    fields: Mapping[str, Any], name: str, place: str, *, default: float | None, above: float | None = None
) -> float:
    """The number `name`, not negative; without a default it must be there. Raises InputError."""
    value = fields.get(name, default)
    if value is None:
        raise InputError(f"{place}.{name}", "is missing")
    wrong = isinstance(value, bool) or not isinstance(value, int | float) or value != value or abs(value) > MAX_SECONDS
    if wrong or value < 0 or (above is not None and value <= above):
        wanted = f"> {above:g}" if above is not None else ">= 0"
        hint = " (YAML reads 1e9 as a text: write 1.0e+9)" if isinstance(value, str) and "e" in value.lower() else ""
        raise InputError(
            f"{place}.{name}", f"must be a number {wanted} and at most {MAX_SECONDS:g}, not {shown(value)}{hint}"
        )
    return float(value)
