"""Parses amounts of memory on a command line."""

from __future__ import annotations

import re

from emulator_runtime.domain.errors import InputError

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40}
_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,9})?)\s*([KMGT]?I?)B?", re.ASCII | re.IGNORECASE)


def parse_bytes(text: str, place: str) -> int:
    """The bytes of `10GiB`, `512MiB`, `80Gi`, `1.5GB` or a plain number. Raises InputError naming `place`."""
    match = _SIZE.fullmatch(text.strip())
    unit = match[2].upper() if match else ""
    if match is None or unit not in _UNITS:
        raise InputError(place, f"must be an amount of memory such as 10GiB or 512MiB, not {text!r}")
    return round(float(match[1]) * _UNITS[unit])
