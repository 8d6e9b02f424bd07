"""From the text of `--policy` to a policy: `las`, `las:threshold_s=300`, or `my/policy.py:MyPolicy:option=value`.

Every mistake ends in one line that names the place: the option, or file and line.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_type_hints

from emulator_runtime.domain.errors import EmuGpuError, InputError, UnknownNameError
from emulator_runtime.domain.wording import one_line, quoted
from scheduler_sims.interface.policy import Policy
from scheduler_sims.policies import POLICIES
from scheduler_sims.policies.custom import load_class

_FLAG = "--policy"
_TRUE, _FALSE = ("true", "yes", "1"), ("false", "no", "0")


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a policy, as its `__init__` declares it; `default` is None where `required`."""

    name: str
    kind: type
    default: Any
    required: bool


def resolve_policy(text: str) -> tuple[str, Policy]:
    """The display name and the policy that `text` names.

    The name is `text` as given; for a class in a file it is the class's name, and its options if there are any.
    Raises InputError (UnknownNameError for names) with the place and what to write instead.
    """
    target, options_text = _split(text)
    if (custom := _custom(target)) is not None:
        path, class_name = custom
        policy_class: type[Any] = load_class(path, class_name)
        name = f"{class_name}:{options_text}" if options_text else class_name
    elif target in POLICIES:
        policy_class, name = POLICIES[target], text
    else:
        raise UnknownNameError(_FLAG, "policy", target, POLICIES)
    return name, _build(policy_class, target, options_text)


def policy_file(text: str) -> Path | None:
    """The file that `text` takes its policy from; None for a built-in policy."""
    custom = _custom(_split(text)[0])
    return None if custom is None else Path(custom[0])


def options_of(policy_class: type[Any], place: str = _FLAG) -> list[Option]:
    """The options of a policy, in the order of its `__init__`. Raises InputError for a type that text can't give."""
    if policy_class.__init__ is object.__init__:
        return []
    try:
        hints = get_type_hints(policy_class.__init__)
    except NameError as error:
        raise InputError(
            place, f"{policy_class.__name__}.__init__ has an annotation that can't be read: {error}"
        ) from error
    options = []
    for name, parameter in list(inspect.signature(policy_class.__init__).parameters.items())[1:]:
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        required = parameter.default is parameter.empty
        default = None if required else parameter.default
        kind = hints.get(name, str if required else type(default))
        if kind not in (float, int, bool, str):
            raise InputError(place, f"{policy_class.__name__}: option {name} must be annotated float, int, bool or str")
        options.append(Option(name, kind, default, required))
    return options


def _custom(target: str) -> tuple[str, str] | None:
    """File and class (empty: none is named) of a policy that isn't ours."""
    if ".py:" in target:
        path, _, class_name = target.rpartition(":")
        return path, class_name
    return (target, "") if target.endswith(".py") else None


def _split(text: str) -> tuple[str, str]:
    """`name` or `file.py:Class`, and what follows the next colon."""
    head, dot_py, tail = text.partition(".py:")
    if dot_py:
        class_name, _, options_text = tail.partition(":")
        return f"{head}.py:{class_name}", options_text
    name, _, options_text = text.partition(":")
    return name, options_text


def _build(policy_class: type[Any], target: str, options_text: str) -> Policy:
    place = f"{_FLAG} {target}"
    options = {option.name: option for option in options_of(policy_class, place)}
    values = _values(options_text, options, place)
    missing = [o.name for o in options.values() if o.required and o.name not in values]
    if missing:
        raise InputError(place, f"option {missing[0]} has no default; write {target}:{missing[0]}=VALUE")
    try:
        policy: Policy = policy_class(**values)
    except EmuGpuError:
        raise
    except (Exception, SystemExit) as error:
        raise InputError(place, f"can't be constructed: {type(error).__name__}: {one_line(error)}") from error
    return policy


def _values(text: str, options: dict[str, Option], place: str) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for part in text.split(",") if text else ():
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not equals:
            raise InputError(place, f"{quoted(part)} is not an option; write name=value, such as threshold_s=300")
        if name not in options:
            raise UnknownNameError(place, "option", name, options)
        if name in values:
            raise InputError(place, f"option {name} is given twice")
        values[name] = _typed(value, options[name], place)
    return values


def _typed(text: str, option: Option, place: str) -> float | int | bool | str:
    if option.kind is bool:
        if text.lower() in (*_TRUE, *_FALSE):
            return text.lower() in _TRUE
        raise InputError(f"{place}: {option.name}", f"must be true or false, not {quoted(text)}")
    if option.kind is str:
        return text
    try:
        return int(text) if option.kind is int else float(text)
    except ValueError as error:
        wanted = "a whole number" if option.kind is int else "a number"
        raise InputError(f"{place}: {option.name}", f"must be {wanted}, not {quoted(text)}") from error
