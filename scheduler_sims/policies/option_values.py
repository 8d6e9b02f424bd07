"""Range checks of policy options: with a time near 0, or beyond what clocks can count, a run would never end."""

from __future__ import annotations

from emulator_runtime.domain.errors import InputError
from emulator_runtime.domain.units import MAX_SECONDS


def checked_seconds(place: str, value: float, *, least: float = 0.0, most: float = MAX_SECONDS) -> float:
    """The value. Raises InputError at `place` where it isn't from `least` to `most`."""
    if not least <= value <= most:
        raise InputError(place, f"must be from {least:g} to {most:g} seconds, not {value!r}")
    return value
