from __future__ import annotations

import pytest

from emulator_runtime.domain.wording import one_line, quoted, shown


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("it's", '"it\'s"'),
        ("a\nb", r"'a\nb'"),
        ("x" * 60, repr("x" * 60)),
        ("x" * 5_000, repr("x" * 57 + "...")),
        (3.5, "3.5"),
        (None, "None"),
        ({"a": [1]}, "{'a': [1]}"),
    ],
)
def test_values_are_shown_as_python_writes_them_and_long_ones_are_cut(value: object, text: str) -> None:
    assert shown(value) == text
    if isinstance(value, str):
        assert quoted(value) == text


def test_what_stands_for_more_than_memory_holds_is_shown_at_once() -> None:
    bomb: list[object] = ["boom"]
    for _ in range(100):
        bomb = [bomb] * 10
    assert len(shown(bomb)) <= 60


def test_a_number_with_more_digits_than_python_writes() -> None:
    assert shown(16**5_000) == "a number of 20001 bits"


def test_lines_are_folded() -> None:
    assert one_line(RuntimeError("boom\n  second")) == "boom second"
