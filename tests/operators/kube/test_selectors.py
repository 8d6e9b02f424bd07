"""Label selectors as users write them, and which labels they match."""

from __future__ import annotations

import pytest

from emulator_runtime.domain.errors import InputError
from operators.kube.selectors import Requirement, matches, parse_selector, selector


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ()),
        ("a=b", (Requirement("a", "in", ("b",)),)),
        ("a==b, x.dev/c != d", (Requirement("a", "in", ("b",)), Requirement("x.dev/c", "notin", ("d",)))),
        ("a in (b, c),d notin (e)", (Requirement("a", "in", ("b", "c")), Requirement("d", "notin", ("e",)))),
        ("a,!b", (Requirement("a", "exists"), Requirement("b", "!"))),
    ],
)
def test_selectors_are_those_of_kubernetes(text: str, expected: tuple[Requirement, ...]) -> None:
    assert parse_selector(text, "-l") == expected
    assert parse_selector(selector(text, "-l"), "-l") == expected


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
    assert matches(text, {"a": "1"}) is expected
