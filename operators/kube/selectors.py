"""Label selectors: parsed for `-l` of the kubectl plugin, and matched by the API server of tests.

Source: Kubernetes documentation, "Labels and Selectors".
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from emulator_runtime.domain.errors import InputError

_KEY = r"(?:[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?"
_VALUE = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?|"
_SET = re.compile(rf"({_KEY})\s+(in|notin)\s+\(([^()]*)\)")
_EQUALITY = re.compile(rf"({_KEY})\s*(==?|!=)\s*({_VALUE})")
_EXISTENCE = re.compile(rf"(!?)\s*({_KEY})")


@dataclass(frozen=True, slots=True)
class Requirement:
    """`operator`: in, notin, exists or !; `values` for the first two. As Kubernetes, `notin` also holds without the label."""

    label: str
    operator: str
    values: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.operator in ("in", "notin"):
            return f"{self.label} {self.operator} ({','.join(self.values)})"
        return f"!{self.label}" if self.operator == "!" else self.label

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether an object with these labels meets it."""
        match self.operator:
            case "in":
                return labels.get(self.label) in self.values
            case "notin":
                return labels.get(self.label) not in self.values
            case "exists":
                return self.label in labels
            case _:
                return self.label not in labels


def parse_selector(text: str, place: str) -> tuple[Requirement, ...]:
    """The requirements of `a=b,c!=d,e in (f,g),h notin (i),j,!k`. Raises InputError naming `place` and the wrong part."""
    parts = filter(None, (each.strip() for each in re.split(r",(?![^()]*\))", text)))
    return tuple(_requirement(part, place) for part in parts)


def selector(text: str, place: str) -> str:
    """The same selector, checked. Raises InputError naming `place` and the wrong part."""
    return ",".join(map(str, parse_selector(text, place)))


def matches(text: str, labels: Mapping[str, str]) -> bool:
    """Whether an object with these labels meets all requirements of a selector."""
    return all(requirement.matches(labels) for requirement in parse_selector(text, "labelSelector"))


def _requirement(part: str, place: str) -> Requirement:
    if match := _SET.fullmatch(part):
        values = tuple(value.strip() for value in match[3].split(","))
        if all(re.fullmatch(_VALUE, value) for value in values):
            return Requirement(match[1], match[2], values)
    if match := _EQUALITY.fullmatch(part):
        return Requirement(match[1], "notin" if match[2] == "!=" else "in", (match[3],))
    if match := _EXISTENCE.fullmatch(part):
        return Requirement(match[2], "!" if match[1] else "exists")
    raise InputError(
        place, f"{part!r} is no label selector; write label=value, label!=value, label in (a,b), label or !label"
    )
