"""Label selectors, because a pool names its nodes by labels and no API call answers "which of these objects match".

Meaning: Kubernetes API, LabelSelector of meta/v1: all requirements must hold; NotIn and DoesNotExist hold where the key is
missing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from emulator_runtime.domain.errors import UnknownNameError
from emulator_runtime.node.fields import Field, required

# Source: Kubernetes API, labels: a name of 63 characters, after a DNS subdomain and a slash if it has one; a value may be empty.
_NAME = r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_PART = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_KEY = re.compile(rf"((?=[^/]{{1,253}}/){_PART}(\.{_PART})*/)?{_NAME}")
_VALUE = re.compile(rf"({_NAME})?")

NO_KEY = "is no key of a label; write a name such as zone or example.com/zone"
NO_VALUE = "is no value of a label; write 63 letters, digits, -, _ and . at most, with a letter or digit at both ends, or nothing"
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


def is_key(text: str) -> bool:
    """Whether it can be the key of a label, an annotation or a taint, or the name of a resource: NAME or DOMAIN/NAME."""
    return _KEY.fullmatch(text) is not None


def is_value(text: str) -> bool:
    """Whether it can be the value of a label."""
    return _VALUE.fullmatch(text) is not None


def parse_selector(document: Field) -> Selector:
    """Raises InputError naming the field that is wrong."""
    members = document.members(("matchLabels", "matchExpressions"))
    found: list[Requirement] = []
    if "matchLabels" in members:
        wanted = members["matchLabels"]
        labels = wanted.members(wanted.value if isinstance(wanted.value, dict) else ())
        found += [Requirement(_key(key, value), "In", frozenset([_value(value)])) for key, value in labels.items()]
    if "matchExpressions" in members:
        found += [_requirement(element) for element in members["matchExpressions"].elements()]
    return Selector(tuple(found))


def _requirement(document: Field) -> Requirement:
    members = document.members(("key", "operator", "values"))
    key, operator = required(members, "key", document), required(members, "operator", document)
    if operator.text() not in OPERATORS:
        raise UnknownNameError(f"{operator.place}: {operator.path}", "operator", operator.text(), OPERATORS)
    values = frozenset(_value(v) for v in members["values"].elements()) if "values" in members else frozenset()
    if bool(values) != (operator.value in ("In", "NotIn")):
        raise document.error("values: In and NotIn need at least one, Exists and DoesNotExist take none")
    return Requirement(_key(key.text(least=1), key), operator.text(), values)


def _key(text: str, document: Field) -> str:
    if not is_key(text):
        raise document.error(f"{text!r} {NO_KEY}")
    return text


def _value(document: Field) -> str:
    text = document.text()
    if not is_value(text):
        raise document.error(f"{text!r} {NO_VALUE}")
    return text
