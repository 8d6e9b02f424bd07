"""Natural order of nodes and devices: w2 before w10, and GPUs before the CPUs of nodes."""

from __future__ import annotations

import re

CPU = "cpu"
"""The index of a node's CPUs in a place NODE/INDEX."""


Natural = tuple[tuple[str | int, ...], str]


def natural(name: str) -> Natural:
    """A sort key of alternating texts and numbers: w2 before w10; the name itself decides between w01 and w1."""
    return tuple(int(part) if place % 2 else part for place, part in enumerate(re.split("([0-9]+)", name))), name


def place_order(place: str) -> tuple[bool, Natural, Natural]:
    """A sort key of NODE/INDEX and NODE/cpu."""
    node, _, index = place.rpartition("/")
    return index == CPU, natural(node), natural(index)
