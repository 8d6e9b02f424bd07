"""Jobs of which only the ranks run that differ: which these are, and what their interpreter loads so that they miss nobody."""

from __future__ import annotations

from pathlib import Path


def hooks_folder() -> Path:
    """What comes first in a rank's PYTHONPATH."""
    return Path(__file__).parent / "hooks"
