"""A result as JSON and back, for those whose events have been deleted."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from emulator_runtime.domain.errors import ClusterError
from operators.results.job import CrossCheck, JobFacts, JobResult
from operators.results.runs import Run


def to_json(result: JobResult) -> str:
    return json.dumps(asdict(result), separators=(",", ":"))


def from_json(text: str) -> JobResult:
    """What `to_json` wrote. Raises ClusterError where it is damaged."""
    try:
        members = json.loads(text)
        runs = tuple(_run(run) for run in members.pop("runs"))
        facts, check = JobFacts(**members.pop("facts")), CrossCheck(**members.pop("check"))
        return JobResult(facts=facts, check=check, runs=runs, notes=tuple(members.pop("notes")), **members)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ClusterError(f"the archived result of a job is damaged: {error!r}") from error


def _run(members: Mapping[str, Any]) -> Run:
    return Run(**{**members, "devices": tuple(members["devices"])})
