"""Arithmetic of recipes: what it works out, and that it can do nothing else."""

from __future__ import annotations

import pytest

from emugpu.search.expressions import MAX_LENGTH, Expression, Value
from emulator_runtime.domain.errors import InputError

VALUES: dict[str, Value] = {"tp": 4, "dp": 8, "rate": 0.5, "kind": "fp16", "on": True}


def value(text: str) -> Value:
    return Expression(text, VALUES, "recipe: constraints[0]").value(VALUES)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("tp * dp == 32", True),
        ("512 % (dp * tp) == 0 and tp < dp", True),
        ("tp // 3 + -dp", -7),
        ("tp / dp", 0.5),
        ("1 < tp <= 4 != dp", True),
        ("kind == 'fp16' or 1 / 0", True),
        ("not on", False),
        ("dp if kind == 'fp32' else tp * rate", 2.0),
        ("max(tp, dp, 3) - min(tp, 2)", 6),
    ],
)
def test_values(text: str, wanted: Value) -> None:
    assert value(text) == wanted


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is not an expression"),
        ("tp =", "is not an expression"),
        ("pp > 1", "there is no pp, only dp, kind, on, rate, tp"),
        ("__import__('os')", "a call of anything but"),
        ("tp.real", "has Attribute"),
        ("[1][0]", "which expressions can't have"),
        ("tp ** dp", "has Pow"),
        ("max(key=tp)", "a call of anything but"),
        ("max()", "a call of anything but"),
        ("(lambda: 1)()", "which expressions can't have"),
        ("f'{tp}'", "which expressions can't have"),
        ("1 + " * MAX_LENGTH + "1", f"at most {MAX_LENGTH} characters"),
        ("tp / (dp - 8)", "with dp 8, tp 4: division by zero"),
        ("1/0 == 1", "'1/0 == 1': division by zero"),
        ("kind * 3", "'fp16' is not a number"),
        ("kind < tp", "not supported"),
        ("*".join(["9999999999"] * 10), "the result is too large"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(text: str, problem: str) -> None:
    with pytest.raises(InputError, match=r"^recipe: constraints\[0\]") as raised:
        value(text)
    assert problem in str(raised.value)


@pytest.mark.parametrize("text", ["0", "-1", "on", "kind", "1e300"])
def test_a_number_is_above_zero(text: str) -> None:
    with pytest.raises(InputError, match="must be a number above 0"):
        Expression(text, VALUES, "gpus").number(VALUES)
