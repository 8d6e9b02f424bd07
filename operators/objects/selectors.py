"""Label selectors: as a pool's member (LabelSelector of meta/v1), and as a text such as that of `kubectl emugpu jobs -l`.

All requirements must hold; NotIn and DoesNotExist also hold for an object without the label. Source: Kubernetes documentation,
"Labels and Selectors".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Literal

from annotated_types import Len

from emulator_runtime.domain.errors import InputError
from operators.objects.custom_resource import Part, Rule, Schema, read_strictly
from operators.objects.forms import NO_KEY, LabelValue, is_key, text_type

_KEY = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$"
LabelKey = Annotated[str, text_type(_KEY, NO_KEY, least=1, most=317, also=is_key)]
_KEYS = Rule(
    "a key is no label's: write a name such as zone or example.com/zone (letters, digits, -, _ and ., ends alphanumeric)",
    "self.all(k, size(k) <= 317 && k.matches('" + _KEY.replace("\\", "\\\\") + "'))",
    lambda labels: all(map(is_key, labels)),
)


class Requirement(Part):
    """One condition on one label."""

    rules = (
        Rule(
            "values: In and NotIn need at least one, Exists and DoesNotExist take none",
            "self.operator in ['In', 'NotIn'] ? has(self.values) && size(self.values) > 0 : "
            "!has(self.values) || size(self.values) == 0",
            lambda requirement: bool(requirement.values) == (requirement.operator in ("In", "NotIn")),
            at="values",
        ),
    )
    key: LabelKey
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: Annotated[tuple[LabelValue, ...], Len(max_length=256)] = ()

    def holds(self, labels: Mapping[str, str]) -> bool:
        present = self.key in labels
        match self.operator:
            case "In":
                return present and labels[self.key] in self.values
            case "NotIn":
                return not present or labels[self.key] not in self.values
            case "Exists":
                return present
            case _:
                return not present


class Selector(Part):
    """All requirements together; without any it is the empty selector."""

    match_labels: Annotated[dict[str, LabelValue], Len(max_length=32), Schema(_KEYS)] = {}
    match_expressions: Annotated[tuple[Requirement, ...], Len(max_length=32)] = ()

    @property
    def is_empty(self) -> bool:
        return not self.match_labels and not self.match_expressions

    def matches(self, labels: Mapping[str, str]) -> bool:
        return all(labels.get(key) == value for key, value in self.match_labels.items()) and all(
            requirement.holds(labels) for requirement in self.match_expressions
        )


# -- selectors as texts ------------------------------------------------------------------------------------------------

_NAME = r"(?:[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?"
_VALUE = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?|"
_SET = re.compile(rf"({_NAME})\s+(in|notin)\s+\(([^()]*)\)")
_EQUALITY = re.compile(rf"({_NAME})\s*(==?|!=)\s*({_VALUE})")
_EXISTENCE = re.compile(rf"(!?)\s*({_NAME})")


def parse_selector(text: str, place: str) -> tuple[Requirement, ...]:
    """The requirements of `a=b,c!=d,e in (f,g),h notin (i),j,!k`. Raises InputError naming `place` and the wrong part."""
    parts = filter(None, (each.strip() for each in re.split(r",(?![^()]*\))", text)))
    return tuple(_requirement(part, place) for part in parts)


def normalized_selector(text: str, place: str) -> str:
    """The same selector in the form that API servers accept. Raises InputError naming `place` and the wrong part."""
    return ",".join(map(_text_of, parse_selector(text, place)))


def _requirement(part: str, place: str) -> Requirement:
    values: list[str] = []
    if match := _SET.fullmatch(part):
        key, operator = match[1], "In" if match[2] == "in" else "NotIn"
        values = [value.strip() for value in match[3].split(",")]
    elif match := _EQUALITY.fullmatch(part):
        key, operator, values = match[1], "NotIn" if match[2] == "!=" else "In", [match[3]]
    elif match := _EXISTENCE.fullmatch(part):
        key, operator = match[2], "DoesNotExist" if match[1] else "Exists"
    if match is None or not all(re.fullmatch(_VALUE, value) for value in values):
        form = "write label=value, label!=value, label in (a,b), label or !label"
        raise InputError(place, f"{part!r} is no label selector; {form}")
    return read_strictly(Requirement, {"key": key, "operator": operator, "values": values}, f"{place}: {part}")


def _text_of(requirement: Requirement) -> str:
    match requirement.operator:
        case "Exists":
            return requirement.key
        case "DoesNotExist":
            return f"!{requirement.key}"
        case _:
            word = "in" if requirement.operator == "In" else "notin"
            return f"{requirement.key} {word} ({','.join(requirement.values)})"
