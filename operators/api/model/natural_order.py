"""Natural order of nodes and devices: w2 before w10, and GPUs before the CPUs of nodes."""

from __future__ import annotations

import re

CPU = "cpu"
"""What stands for a node's CPUs in the place of a device's index."""


Natural = tuple[tuple[str | int, ...], str]


def natural(name: str) -> Natural:
    """Texts and numbers by turns, so that names compare by the numbers in them; w01 and w1 by their signs."""
    return tuple(int(part) if place % 2 else part for place, part in enumerate(re.split("([0-9]+)", name))), name


def place_order(place: str) -> tuple[bool, Natural, Natural]:
    """Of NODE/INDEX and NODE/cpu."""
    node, _, index = place.rpartition("/")
    return index == CPU, natural(node), natural(index)
