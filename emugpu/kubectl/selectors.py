"""`-l`: Kubernetes' label selectors as the client library wants them.

Source: Kubernetes documentation, "Labels and Selectors".
"""

from __future__ import annotations

import re

from lightkube.operators import exists, in_, not_equal, not_exists, not_in

from emulator_runtime.domain.errors import InputError

_KEY = r"(?:[a-z0-9](?:[-a-z0-9.]*[a-z0-9])?/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?"
_VALUE = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?|"
_SET = re.compile(rf"({_KEY})\s+(in|notin)\s+\(([^()]*)\)")
_EQUALITY = re.compile(rf"({_KEY})\s*(==?|!=)\s*({_VALUE})")
_EXISTENCE = re.compile(rf"(!?)\s*({_KEY})")


def parse_selector(text: str) -> dict[str, object]:
    """Requirements by label: `a=b,c!=d,e in (f,g),h notin (i),j,!k`. Raises InputError naming the part that is none."""
    found: dict[str, object] = {}
    for part in filter(None, (each.strip() for each in re.split(r",(?![^()]*\))", text))):
        key, requirement = _requirement(part)
        if key in found:
            raise InputError(
                "-l", f"label {key} is asked for twice; ask once, with `{key} in (...)` for several values"
            )
        found[key] = requirement
    return found


def _requirement(part: str) -> tuple[str, object]:
    if match := _SET.fullmatch(part):
        values = [value.strip() for value in match[3].split(",")]
        if all(re.fullmatch(_VALUE, value) for value in values):
            return match[1], in_(values) if match[2] == "in" else not_in(values)
    if match := _EQUALITY.fullmatch(part):
        return match[1], not_equal(match[3]) if match[2] == "!=" else match[3]
    if match := _EXISTENCE.fullmatch(part):
        return match[2], not_exists() if match[1] else exists()
    raise InputError(
        "-l", f"{part!r} is no label selector; write label=value, label!=value, label in (a,b), label or !label"
    )
