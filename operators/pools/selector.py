"""Label selectors, because a pool names its nodes by labels and no API call answers "which of these objects match".

Meaning: Kubernetes API, LabelSelector of meta/v1: all requirements must hold; NotIn and DoesNotExist hold where the key is
missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from emulator_runtime.domain.errors import UnknownNameError
from emulator_runtime.node.fields import Field, required

OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")


@dataclass(frozen=True, slots=True)
class Requirement:
    """One condition on one label."""

    key: str
    operator: str
    values: frozenset[str]

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


@dataclass(frozen=True, slots=True)
class Selector:
    """All requirements together; none of them is the empty selector."""

    requirements: tuple[Requirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        return all(requirement.holds(labels) for requirement in self.requirements)


def parse_selector(document: Field) -> Selector:
    """Raises InputError naming the field that is wrong."""
    members = document.members(("matchLabels", "matchExpressions"))
    found: list[Requirement] = []
    if "matchLabels" in members:
        wanted = members["matchLabels"]
        labels = wanted.members(wanted.value if isinstance(wanted.value, dict) else ())
        found += [Requirement(key, "In", frozenset([value.text()])) for key, value in labels.items()]
    if "matchExpressions" in members:
        found += [_requirement(element) for element in members["matchExpressions"].elements()]
    return Selector(tuple(found))


def _requirement(document: Field) -> Requirement:
    members = document.members(("key", "operator", "values"))
    key, operator = required(members, "key", document).text(least=1), required(members, "operator", document)
    if operator.text() not in OPERATORS:
        raise UnknownNameError(f"{operator.place}: {operator.path}", "operator", operator.text(), OPERATORS)
    values = frozenset(v.text() for v in members["values"].elements()) if "values" in members else frozenset()
    if bool(values) != (operator.value in ("In", "NotIn")):
        raise document.error("values: In and NotIn need at least one, Exists and DoesNotExist take none")
    return Requirement(key, operator.text(), values)
