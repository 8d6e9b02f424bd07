"""The devices that a job-level scheduler chose for a pod on this node, and the terms on which the pod uses them."""

from __future__ import annotations

from collections.abc import Callable, Container
from dataclasses import dataclass

from emulator_runtime.node.allocation import Allocation
from emulator_runtime.sharing.demands import Terms
from sharing_manager.grants.grant import Grant


@dataclass(frozen=True, slots=True)
class Choice:
    """What a pod's scheduler gave it; None if nobody did, or somebody else may have said so. `is_gone` says whether the pod of
    a grant no longer exists, so that it doesn't keep a device from the next one."""

    allocation: Allocation | None = None
    is_gone: Callable[[Grant], bool] = lambda _: False


NO_CHOICE = Choice()


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
