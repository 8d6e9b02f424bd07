"""What the tables about devices have in common: load, memory, lists of holders."""

from __future__ import annotations

from collections.abc import Sequence

from emugpu.kubectl.nodes_seen import NodeSeen
from emugpu.kubectl.output import MISSING, Cell, percent
from emugpu.kubectl.samples import DeviceFigures
from emulator_runtime.domain.units import GIB

NO_NODES = "no node has emulated GPUs; `kubectl get emugpupools` shows which nodes the pools choose"
Figures = Sequence[DeviceFigures | None]
"""Of several devices; None: its manager doesn't tell."""
_BUSY = ((0.8, "green"), (0.3, "yellow"))


def mean_load(figures: Figures) -> float | None:
    """The devices' mean utilisation, over those that are known."""
    known = [each.utilisation for each in figures if each is not None]
    return sum(known) / len(known) if known else None


def load(figures: Figures) -> Cell:
    share = mean_load(figures)
    style = next((style for least, style in _BUSY if share is not None and share >= least), "")
    return Cell(percent(share).text, style, right=True)


def used_bytes(figures: Figures) -> int | None:
    known = [each.used_bytes for each in figures if each is not None]
    return sum(known) if known else None


def memory(figures: Figures) -> Cell:
    """Used of all memory, of the devices that are known."""
    used = used_bytes(figures)
    if used is None:
        return Cell(MISSING, right=True)
    total = sum(each.memory_bytes for each in figures if each is not None)
    return Cell(f"{used / GIB:.1f}/{total / GIB:.1f}Gi", right=True)


def some(names: Sequence[str], *, wide: bool = False, most: int = 3) -> str:
    """The first few names and how many more there are; all where it is wide."""
    if wide or len(names) <= most:
        return ", ".join(names) or MISSING
    return f"{', '.join(names[:most])} and {len(names) - most} more"


def problems(nodes: Sequence[NodeSeen]) -> list[str]:
    """Why some managers tell nothing, each reason once with the nodes that have it."""
    by_problem: dict[str, list[str]] = {}
    for node in nodes:
        if node.problem:
            by_problem.setdefault(node.problem, []).append(node.name)
    return [f"no load and memory of {some(names)}: {problem}" for problem, names in by_problem.items()]
