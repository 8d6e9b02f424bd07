"""Quantities are exact; the API server and this code must agree on what half a device is."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator_runtime.domain.errors import InputError
from operators.kube.quantities import parse_quantity


@pytest.mark.parametrize(
    ("text", "value"),
    [("80Gi", 80 * 2**30), ("500m", Fraction(1, 2)), ("1e3", 1000), ("1E", 10**18), ("1Ei", 2**60), ("-1", -1),
     (".5", Fraction(1, 2)), ("+2.5k", 2500), ("3n", Fraction(3, 10**9)), ("5.", 5), ("1E3", 1000)],
)  # fmt: skip
def test_reads_every_form(text: str, value: Fraction) -> None:
    assert parse_quantity(text, "here") == value


@pytest.mark.parametrize("text", ["", "two", "1 Gi", "80GB", "1e", "--1", "0x10", "1e9999", "٣", "9" * 65])
def test_refuses_what_is_none(text: str) -> None:
    with pytest.raises(
        InputError, match=r"^spec\.memory: .* is no quantity; write a number with a suffix, such as 80Gi$"
    ):
        parse_quantity(text, "spec.memory")


@given(st.text(max_size=12))
def test_any_text_is_a_number_or_an_input_error(text: str) -> None:
    try:
        parse_quantity(text, "here")
    except InputError as error:
        assert error.place == "here"
