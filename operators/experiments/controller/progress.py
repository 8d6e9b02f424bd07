"""What a runner tells of itself: an annotation of its experiment, which the controller makes the status from.

All figures are texts of decimal numbers already, as the status shows them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from operators.kube.documents import object_at, objects_in, text_at, texts_of, whole_at

DONE = "Done"


@dataclass(frozen=True, slots=True)
class Told:
    """`stage`: Preparing, Calibrating, Predicting, Observing or Done; of `column`, the `repeat`-th time.

    `ended` of `jobs` have ended in it. `done` of `columns` are complete. `at`: when this was told (RFC 3339).
    `problem`: what ended this attempt; `results`: as in the status. `report`: name of the ConfigMap, and what is in it.
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


def told_text(told: Told) -> str:
    """The annotation."""
    members = {name: getattr(told, name) for name in Told.__slots__}
    return json.dumps({name: value for name, value in members.items() if value}, separators=(",", ":"))


def told_of(text: str) -> Told:
    """What an annotation tells; what is missing or odd in it isn't there."""
    try:
        document = json.loads(text) if text else {}
    except ValueError:
        document = {}
    if not isinstance(document, dict):
        return Told()
    texts = ("at", "stage", "column", "problem", "best", "error")
    counts = ("attempt", "repeat", "ended", "jobs", "done", "columns", "nodes", "gpus")
    members: dict[str, Any] = {name: text_at(document, name) for name in texts}
    members |= {name: whole_at(document, name) for name in counts}
    return Told(
        **members,
        calibration=texts_of(document, "calibration"),
        results=tuple(objects_in(document, "results")),
        report=object_at(document, "report"),
    )
