"""Problems of a job or of the policy: reported when new, then after 10 s, 20 s, 40 s and so on while they continue.

Pure, with the time as an argument; program.py prints the reports, and writes those about a job on its EmuJob.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from emulator_runtime.domain.errors import PolicyError
from emulator_runtime.domain.units import NS_PER_S
from operators.kube.timestamps import rfc3339_micro
from operators.objects.scheduler_notes import SchedulingProblem
from scheduler_sims.loop.checks import PlanRefusedError, PolicyFailedError

FIRST_PAUSE_S = 10
LONGEST_PAUSE_S = 640
"""A complaint that was not repeated for this long has ended: the next one is new."""


class Kind(StrEnum):
    """The values are part of the JSON output and must not change."""

    DOES_NOT_FIT = "does-not-fit"
    """No configuration of the job can run on the cluster, even if it were empty."""
    UNSUPPORTED = "unsupported"
    """The policy places jobs of one node only, and the job has several."""
    UNREADABLE = "unreadable"
    """The EmuJob's specification or status can't be read as a job."""
    PLAN_REFUSED = "plan-refused"
    """The policy's plan can't be carried out because of the job."""
    POLICY_FAILED = "policy-failed"
    """The policy raised an exception or did not return a plan."""
    START_REFUSED = "start-refused"
    """The API server refuses the write that starts the job."""

    @property
    def reason(self) -> str:
        """The reason of the EmuJob's condition `Scheduled`, such as DoesNotFit."""
        return "".join(word.capitalize() for word in self.value.split("-"))


@dataclass(frozen=True, slots=True)
class Complaint:
    """`text` names the job; `job_id` and `uid` (of the EmuJob) are empty if the complaint is about the policy alone.

    `retry`: False if the job can't succeed on the present cluster.
    """

    kind: Kind
    text: str
    job_id: str = ""
    uid: str = ""
    retry: bool = True


@dataclass(frozen=True, slots=True)
class Report:
    """A complaint that is due to be printed. Times: wall clock."""

    complaint: Complaint
    count: int
    first_ns: int
    last_ns: int

    def in_words(self) -> str:
        text, since = self.complaint.text, rfc3339_micro(self.first_ns)[11:19]
        return text if self.count == 1 else f"{text} ({self.count} times since {since} UTC)"

    def as_json(self) -> str:
        """One line: kind, text, job (if any), whether a retry can help, how often and since when."""
        complaint = self.complaint
        about = {"job": complaint.job_id} if complaint.job_id else {}
        document = {
            "at": rfc3339_micro(self.last_ns),
            "complaint": complaint.text,
            "kind": str(complaint.kind),
            **about,
            "retry": complaint.retry,
            "count": self.count,
            "first_at": rfc3339_micro(self.first_ns),
            "last_at": rfc3339_micro(self.last_ns),
        }
        return json.dumps(document, separators=(",", ":"))

    def annotation(self) -> str:
        """The EmuJob's annotation emugpu.dev/scheduling-problem, from which its controller makes the condition `Scheduled`."""
        complaint = self.complaint
        return SchedulingProblem(complaint.kind.reason, complaint.text, rfc3339_micro(self.last_ns)).to_json()


@dataclass(slots=True)
class _Repetition:
    count: int
    first_ns: int
    last_ns: int
    due_ns: int
    pause_ns: int


_STATIC = (Kind.DOES_NOT_FIT, Kind.UNSUPPORTED, Kind.UNREADABLE)
"""Reported by the watcher only when their text changes. The text of others may change each time (how many CPUs are free)."""
_Key = tuple[Kind, str, str]


class ComplaintLog:
    """Counts repetitions of complaints of one kind about one job, and decides when to report them."""

    def __init__(self) -> None:
        self._repetitions: dict[_Key, _Repetition] = {}

    def add(self, complaint: Complaint, now_ns: int) -> Report | None:
        """The report to print now; None if the same complaint was reported recently."""
        self._expire(now_ns)
        key = complaint.kind, complaint.job_id, complaint.text if complaint.kind in _STATIC else ""
        known = self._repetitions.get(key)
        if known is None:
            pause_ns = FIRST_PAUSE_S * NS_PER_S
            self._repetitions[key] = _Repetition(1, now_ns, now_ns, now_ns + pause_ns, pause_ns)
            return Report(complaint, 1, now_ns, now_ns)
        known.count, known.last_ns = known.count + 1, now_ns
        if now_ns < known.due_ns:
            return None
        known.pause_ns = min(2 * known.pause_ns, LONGEST_PAUSE_S * NS_PER_S)
        known.due_ns = now_ns + known.pause_ns
        return Report(complaint, known.count, known.first_ns, now_ns)

    def resolve(self, job_id: str) -> None:
        """The job starts: the next complaint about it is new."""
        for key in [key for key in self._repetitions if key[1] == job_id]:
            del self._repetitions[key]

    def _expire(self, now_ns: int) -> None:
        limit_ns = now_ns - LONGEST_PAUSE_S * NS_PER_S
        for key in [key for key, known in self._repetitions.items() if known.last_ns < limit_ns]:
            del self._repetitions[key]


def complaint_of(error: PolicyError, policy: str, uid_of: Callable[[str], str]) -> Complaint:
    """The complaint about an error of the scheduler loop. `uid_of`: the EmuJob's uid of a job id."""
    if isinstance(error, PlanRefusedError):
        text, job_id = f"policy {policy}: {error}", error.job_id
        return Complaint(Kind.PLAN_REFUSED, text, job_id, uid_of(job_id), retry=not error.never)
    summary = error.summary if isinstance(error, PolicyFailedError) else str(error)
    return Complaint(Kind.POLICY_FAILED, f"policy {policy}: {summary}")
