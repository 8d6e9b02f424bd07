"""The devices that a job-level scheduler chose for a pod on this node, and the terms on which the pod uses them."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

from emulator_runtime.node.allocation import Allocation
from emulator_runtime.sharing.demands import Terms


@dataclass(frozen=True, slots=True)
class Placement:
    """`devices`: UUIDs. `terms`: of each device; empty if the scheduler stated none."""

    devices: tuple[str, ...]
    terms: tuple[Terms, ...] = ()


def placement_of(allocation: Allocation, node: str, known: Container[str]) -> Placement:
    """The part of an allocation that is about the node `node`, whose devices are `known`."""
    rank = allocation.nodes.index(node) if node in allocation.nodes else 0
    own = [number for number, uuid in enumerate(allocation.devices) if uuid in known]
    priority = allocation.priority or (0,) * len(allocation.milli)
    terms = (
        tuple(Terms(allocation.row, rank, allocation.milli[n], priority[n]) for n in own) if allocation.milli else ()
    )
    return Placement(tuple(allocation.devices[n] for n in own), terms)
