"""Kubernetes quantities (`80Gi`, `500m`, `1e3`) as exact numbers, so that half a GPU is half and not 0.49999.

Source: Kubernetes API, apimachinery pkg/api/resource: a signed decimal number and a suffix, binary (Ki .. Ei) or
decimal (n, u, m, k .. E), or a decimal exponent.
"""

from __future__ import annotations

import re
from fractions import Fraction

from emulator_runtime.domain.errors import InputError

_FORM = re.compile(r"([+-]?(?:\d+(?:\.\d*)?|\.\d+))(?:([numkMGTPE]|[KMGTPE]i)|[eE]([+-]?\d{1,3}))?", re.ASCII)
_SUFFIXES = {name: Fraction(1024) ** (power + 1) for power, name in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"))} | {
    name: Fraction(10) ** power
    for name, power in {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}.items()
}


def parse_quantity(text: str, place: str) -> Fraction:
    """The exact number that `text` means. Raises InputError naming `place` where it is no quantity."""
    match = _FORM.fullmatch(text)
    if match is None or len(text) > 64:
        raise InputError(place, f"{text!r} is no quantity; write a number with a suffix, such as 80Gi")
    number, suffix, exponent = match.groups()
    return Fraction(number) * (_SUFFIXES[suffix] if suffix else Fraction(10) ** int(exponent or 0))
