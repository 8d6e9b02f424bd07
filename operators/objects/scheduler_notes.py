"""What a job-level scheduler writes on an EmuJob: the allocation, and why the job can't be scheduled; one module reads both.

The allocation (emulator_runtime/node/allocation.py) as operators read it, and as a status has it. The problem is an annotation,
too: the EmuJobs' controller, the only writer of a status, makes it the condition `Scheduled`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from emulator_runtime.domain.errors import InputError
from emulator_runtime.domain.json_document import parse
from emulator_runtime.node.allocation import Allocation

ANNOTATION = "emugpu.dev/scheduling-problem"
REASONS = ("DoesNotFit", "Unsupported", "Unreadable", "PlanRefused", "PolicyFailed", "StartRefused")
"""The condition's reasons (docs/schedulers.md lists what each means)."""
LONGEST_MESSAGE = 1024
_FIELDS = ("reason", "message", "at")


def read_allocation(text: str, place: str) -> Allocation | None:
    """The allocation; None where there is none, or one that can't be read (its scheduler's mistake, not the job's)."""
    try:
        found = Allocation.from_json(text, place) if text else None
    except InputError:
        return None
    return found if found is not None and found.configuration and found.nodes else None


def allocation_status(allocation: Allocation, gpus: int, batch_size: int) -> Mapping[str, Any]:
    """The status member; `gpus` of the whole job. `batch_size`: of an elastic job, else 0."""
    return {
        "configuration": allocation.configuration,
        "nodes": list(allocation.nodes),
        "gpus": gpus,
        "cpu": f"{allocation.cpu_milli}m",
        "memory": str(allocation.memory_bytes),
        "devices": list(allocation.devices),
        **({"batchSize": batch_size} if batch_size else {}),
    }


@dataclass(frozen=True, slots=True)
class SchedulingProblem:
    """`at`: when the scheduler noticed it last, RFC 3339."""

    reason: str
    message: str
    at: str

    def to_json(self) -> str:
        document = {"reason": self.reason, "message": self.message[:LONGEST_MESSAGE], "at": self.at}
        return json.dumps(document, separators=(",", ":"))


def read_problem(text: str) -> SchedulingProblem | None:
    """None where the text is empty or not `to_json`'s: everybody who may edit the EmuJob can write the annotation."""
    if not text:
        return None
    try:
        members = parse(text, ANNOTATION).members(_FIELDS)
        reason, message, at = (members[name].text() for name in _FIELDS)
    except InputError:
        return None
    return SchedulingProblem(reason, message[:LONGEST_MESSAGE], at) if reason in REASONS else None
