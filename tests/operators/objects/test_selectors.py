"""Label selectors as users write them, and which labels they match."""

from __future__ import annotations

from typing import Literal

import pytest

from emulator_runtime.domain.errors import InputError
from operators.objects.selectors import Requirement, normalized_selector, parse_selector


def requirement(key: str, operator: Literal["In", "NotIn", "Exists", "DoesNotExist"], *values: str) -> Requirement:
    return Requirement(key=key, operator=operator, values=values)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ()),
        ("a=b", (requirement("a", "In", "b"),)),
        ("a==b, x.dev/c != d", (requirement("a", "In", "b"), requirement("x.dev/c", "NotIn", "d"))),
        ("a in (b, c),d notin (e)", (requirement("a", "In", "b", "c"), requirement("d", "NotIn", "e"))),
        ("a,!b", (requirement("a", "Exists"), requirement("b", "DoesNotExist"))),
    ],
)
def test_selectors_are_those_of_kubernetes(text: str, expected: tuple[Requirement, ...]) -> None:
    assert parse_selector(text, "-l") == expected
    assert parse_selector(normalized_selector(text, "-l"), "-l") == expected


@pytest.mark.parametrize("text", ["a=b=c", "=b", "a in b", "a in (b c)", "-a", "a b"])
def test_the_wrong_part_is_named(text: str) -> None:
    with pytest.raises(InputError, match=r"-l: .*is no label selector"):
        parse_selector(text, "-l")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *(("", True), ("a", True), ("!a", False), ("a=1", True), ("a!=1", False), ("a=1,b", False), ("c!=1", True)),
        *(
            ("a in (1,2)", True),
            ("a notin (1,2)", False),
            ("c notin (1)", True),
            ("a=1,a!=2", True),
            ("c in (1)", False),
        ),
    ],
)
def test_what_a_selector_matches(text: str, expected: bool) -> None:
    requirements = parse_selector(text, "-l")
    assert all(requirement.holds({"a": "1"}) for requirement in requirements) is expected
