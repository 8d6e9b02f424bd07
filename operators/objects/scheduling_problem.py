"""The annotation by which a job-level scheduler says why an EmuJob can't be scheduled; one module writes and reads it.

The scheduler patches the annotation; the EmuJobs' controller, the only writer of a status, makes it the condition `Scheduled`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from emulator_runtime.domain.errors import InputError
from emulator_runtime.domain.json_document import parse

ANNOTATION = "emugpu.dev/scheduling-problem"
REASONS = ("DoesNotFit", "Unsupported", "Unreadable", "PlanRefused", "PolicyFailed", "StartRefused")
"""The condition's reasons (docs/schedulers.md lists what each means)."""
LONGEST_MESSAGE = 1024
_FIELDS = ("reason", "message", "at")


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
