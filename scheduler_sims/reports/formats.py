"""Formats figures for display, in the same way for the terminal and the page."""

from __future__ import annotations

from collections.abc import Sequence

MISSING = "–"


def seconds(value: float | None) -> str:
    """Seconds without the unit, with about four digits: 0.123, 4.56, 78.9, 12,345."""
    if value is None:
        return MISSING
    size = abs(value)
    decimals = 0 if size >= 1000 else 1 if size >= 10 else 2 if size >= 1 or size == 0 else 3
    return f"{value:,.{decimals}f}"


def percent(value: float | None, *, signed: bool = True) -> str:
    """A fraction as percent, with a typographic minus sign: +0.42%, −12.3%."""
    if value is None:
        return MISSING
    size = abs(value)
    decimals = 2 if size < 0.1 else 1 if size < 10 else 0
    text = f"{100 * size:,.{decimals}f}"
    if not signed or float(text.replace(",", "")) == 0:
        return f"{text}%"
    return f"{'+' if value > 0 else '−'}{text}%"


def share(value: float | None) -> str:
    """A fraction as percent without a sign: 78.9%."""
    return MISSING if value is None else f"{100 * value:.1f}%"


def count(value: float | None) -> str:
    """A count, or a mean of counts with at most two decimals: 3, 2.67."""
    return MISSING if value is None else f"{value:,.2f}".rstrip("0").rstrip(".")


def correlation(value: float | None) -> str:
    """A rank correlation with three decimals; a value below 1 is never rounded to 1."""
    if value is None:
        return MISSING
    text = f"{value:.3f}"
    return f"{value:.6f}"[:5] if text == "1.000" and value < 1 - 1e-12 else text


def list_some(names: Sequence[str], most: int = 5) -> str:
    """The first few names, and the number of the others."""
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")
