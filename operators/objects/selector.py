"""Label selectors, because a pool names its nodes by labels and no API call answers "which of these objects match".

Meaning: Kubernetes API, LabelSelector of meta/v1: all requirements must hold; NotIn and DoesNotExist hold where the key is
missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from annotated_types import Len

from operators.objects.custom_resource import Part, Rule, Schema
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
