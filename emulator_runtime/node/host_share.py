"""Reads the CPUs and memory of a pod's training process from the allocation annotation of the pod.

{"configuration": "gpu", "nodes": ["worker1"], "cpu_milli": 4000, "memory_bytes": 17179869184, "devices": []}

A job-level scheduler writes the annotation (operators/objects/allocation.py) and may change it while the job runs. If an
amount is 0 or missing, the amount of the job's configuration applies.
"""

from __future__ import annotations

from emulator_runtime.domain.json_document import Field, parse
from emulator_runtime.domain.sensitivity import HostShare

ALLOCATION_ANNOTATION = "emugpu.dev/allocation"


def share_of_allocation(text: str, place: str) -> HostShare:
    """The emulated CPUs and memory in the annotation `text`. Raises InputError naming `place` and the member."""
    document = parse(text, place)
    if not isinstance(document.value, dict):
        raise document.error("must be an object, as job-level schedulers write it")
    members = document.members((), tuple(document.value))  # accept all: the scheduler and the operator read the others
    return HostShare(_amount(members, "cpu_milli"), _amount(members, "memory_bytes"))


def _amount(members: dict[str, Field], name: str) -> int:
    return members[name].whole() if name in members else 0
