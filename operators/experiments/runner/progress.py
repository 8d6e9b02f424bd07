"""The runner's part of a SchedulingExperiment's status. All figures are decimal texts already, as the status shows them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class RunnerProgress:
    """`stage`: Preparing, Calibrating, Predicting, Observing or Done; of `column`, in its `repeat`-th run.

    In this stage `ended` of `jobs` jobs have ended. `done` columns are complete. `problem`: the error that ended this attempt.
    `results`: as in the status. `report`: the ConfigMap's name, and its keys.
    """

    attempt: int = 0
    stage: str = ""
    column: str = ""
    repeat: int = 0
    ended: int = 0
    jobs: int = 0
    done: int = 0
    nodes: int = 0
    gpus: int = 0
    problem: str = ""
    best: str = ""
    error: str = ""
    calibration: Mapping[str, str] = field(default_factory=dict)
    results: tuple[Mapping[str, Any], ...] = ()
    report: Mapping[str, Any] = field(default_factory=dict)


def status_members(progress: RunnerProgress, at: str) -> dict[str, Any]:
    """The members of the status that the runner owns. `at`: the present time, RFC 3339."""
    present = {
        "stage": progress.stage,
        "policy": progress.column,
        "repeat": progress.repeat,
        "problem": progress.problem,
        "at": at,
    }
    counts = {"jobsEnded": progress.ended, "jobs": progress.jobs} if progress.jobs else {}
    members: dict[str, Any] = {
        "progress": {name: value for name, value in present.items() if value} | counts,
        "attempts": progress.attempt,
        "nodes": progress.nodes,
        "gpus": progress.gpus,
        "best": progress.best,
        "error": progress.error,
        "calibration": dict(progress.calibration),
        "results": [dict(each) for each in progress.results],
        "report": dict(progress.report),
    }
    return {"done": progress.done, **{name: value for name, value in members.items() if value}}
