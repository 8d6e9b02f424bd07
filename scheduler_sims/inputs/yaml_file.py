"""Reads a user's YAML file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from emulator_runtime.domain.errors import InputError
from emulator_runtime.domain.wording import NESTED_TOO_DEEPLY


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
