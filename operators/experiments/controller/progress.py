"""The progress of a runner: it writes it as an annotation of its experiment, and the controller makes the status from it.

All figures are decimal texts already, as the status shows them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from operators.kube.documents import object_at, objects_in, text_at, texts_of, whole_at

DONE = "Done"


@dataclass(frozen=True, slots=True)
class RunnerProgress:
    """`stage`: Preparing, Calibrating, Predicting, Observing or Done; of `column`, in its `repeat`-th run.

    In this stage `ended` of `jobs` jobs have ended. `done` of `columns` are complete. `at`: when this was written (RFC 3339).
    `problem`: the error that ended this attempt. `results`: as in the status. `report`: the ConfigMap's name, and its keys.
    """

    attempt: int = 0
    at: str = ""
    stage: str = ""
    column: str = ""
    repeat: int = 0
    ended: int = 0
    jobs: int = 0
    done: int = 0
    columns: int = 0
    nodes: int = 0
    gpus: int = 0
    problem: str = ""
    best: str = ""
    error: str = ""
    calibration: Mapping[str, str] = field(default_factory=dict)
    results: tuple[Mapping[str, Any], ...] = ()
    report: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_done(self) -> bool:
        return self.stage == DONE


def progress_text(progress: RunnerProgress) -> str:
    """The annotation."""
    members = {name: getattr(progress, name) for name in RunnerProgress.__slots__}
    return json.dumps({name: value for name, value in members.items() if value}, separators=(",", ":"))


def progress_of(text: str) -> RunnerProgress:
    """From an annotation; missing or malformed members are ignored."""
    try:
        document = json.loads(text) if text else {}
    except ValueError:
        document = {}
    if not isinstance(document, dict):
        return RunnerProgress()
    texts = ("at", "stage", "column", "problem", "best", "error")
    counts = ("attempt", "repeat", "ended", "jobs", "done", "columns", "nodes", "gpus")
    members: dict[str, Any] = {name: text_at(document, name) for name in texts}
    members |= {name: whole_at(document, name) for name in counts}
    return RunnerProgress(
        **members,
        calibration=texts_of(document, "calibration"),
        results=tuple(objects_in(document, "results")),
        report=object_at(document, "report"),
    )
