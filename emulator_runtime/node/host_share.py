"""The part of a pod's allocation that its training process uses, read from the pod's annotation by the node's manager.

{"configuration": "gpu", "nodes": ["worker1"], "cpu_milli": 4000, "memory_bytes": 17179869184, "devices": []}

A job-level scheduler writes it (operators/objects/allocation.py) and changes it while the job runs. An amount that is 0 or
missing says nothing: the job has then what its configuration says.
"""

from __future__ import annotations

from emulator_runtime.domain.sensitivity import HostShare
from emulator_runtime.node.fields import Field, parse

ALLOCATION_ANNOTATION = "emugpu.dev/allocation"


def share_of_allocation(text: str, place: str) -> HostShare:
    """The emulated CPUs and memory that the annotation's text gives. Raises InputError naming `place` and the member."""
    document = parse(text, place)
    if not isinstance(document.value, dict):
        raise document.error("must be an object, as job-level schedulers write it")
    members = document.members(tuple(document.value))  # the others are for the scheduler and the operator
    return HostShare(_amount(members, "cpu_milli"), _amount(members, "memory_bytes"))


def _amount(members: dict[str, Field], name: str) -> int:
    return members[name].whole() if name in members else 0
