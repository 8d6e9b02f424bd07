"""The range of a policy's option, because a time that is next to nothing, or past all clocks, never lets a run end."""

from __future__ import annotations

from emulator_runtime.domain.errors import InputError
from emulator_runtime.domain.units import MAX_SECONDS


def checked_seconds(place: str, value: float, *, least: float = 0.0) -> float:
    """The value. Raises InputError at `place` where it isn't from `least` to MAX_SECONDS."""
    if not least <= value <= MAX_SECONDS:
        raise InputError(place, f"must be from {least:g} to {MAX_SECONDS:g} seconds, not {value!r}")
    return value
