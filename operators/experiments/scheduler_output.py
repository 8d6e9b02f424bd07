"""What a scheduler program prints with --json, line by line: decisions, and complaints about what it can't carry out."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from operators.kube.documents import text_at, whole_at
from operators.kube.timestamps import ns_of


@dataclass(frozen=True, slots=True)
class Decision:
    """One decision, at nanoseconds since 1970: the ids of the jobs it started and stopped. `jobs`: how many jobs it knew."""

    at_ns: int
    started: tuple[str, ...] = ()
    stopped: tuple[str, ...] = ()
    jobs: int = 0


@dataclass(frozen=True, slots=True)
class Complaint:
    """Why the scheduler can't carry out what its policy plans, or why there is no plan.

    `job`: empty where it is about several jobs. `retry` false: it can never work on this cluster as it is. `count`: how often it
    has happened.
    """

    text: str
    kind: str = ""
    job: str = ""
    retry: bool = True
    count: int = 1

    def __str__(self) -> str:
        times = f" ({self.count} times)" if self.count > 1 else ""
        subject = f"job {self.job}: " if self.job and self.job not in self.text else ""
        return f"{subject}{self.text}{times}"


def parsed(line: str) -> Decision | Complaint | None:
    """None: neither of them (the first line, which says that the scheduler is ready; or a line cut off by a kill)."""
    document = _document(line)
    if text_at(document, "complaint"):
        return Complaint(
            text=text_at(document, "complaint"),
            kind=text_at(document, "kind"),
            job=text_at(document, "job"),
            retry=document.get("retry") is not False,
            count=max(1, whole_at(document, "count")),
        )
    at_ns = ns_of(text_at(document, "at"))
    if at_ns is None or "started" not in document:
        return None
    jobs = whole_at(document, "queued") + whole_at(document, "holding")
    return Decision(at_ns, tuple(document.get("started", ())), tuple(document.get("stopped", ())), jobs)


def _document(line: str) -> dict[str, Any]:
    try:
        document = json.loads(line)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}
