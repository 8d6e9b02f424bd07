"""The feed's answers as JSON and back."""

from __future__ import annotations

import json
from dataclasses import asdict, astuple
from typing import Any

from emulator_runtime.domain.errors import ClusterError
from operators.results.events import JobEvent
from operators.results.facts_and_result import JobResult, from_json, to_json
from operators.results.predicted import Prediction
from operators.results_feed.feed import Changes, JobHistory

CHANGES, HISTORY = "/changes", "/history"
"""Paths of the two requests."""


def changes_to_json(changes: Changes) -> bytes:
    results = [(to_json(result), astuple(known) if known else None) for result, known in changes.results]
    members = {"store": changes.store, "version": changes.version, "results": results, "more": changes.more}
    return _json(members | {"gone": changes.gone, "damaged": changes.damaged})


def changes_from_json(body: bytes) -> Changes:
    """Raises ClusterError if the text isn't one of `changes_to_json`."""
    try:
        members = json.loads(body)
        return Changes(
            store=str(members["store"]),
            version=int(members["version"]),
            results=tuple(
                (from_json(text), Prediction(*known) if known else None) for text, known in members["results"]
            ),
            gone=tuple(members["gone"]),
            damaged=tuple(members["damaged"]),
            more=bool(members["more"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise _foreign(error) from error


def history_to_json(history: JobHistory) -> bytes:
    result = None if history.result is None else to_json(history.result)
    return _json({"result": result, "events": [asdict(event) for event in history.events]})


def history_from_json(body: bytes) -> JobHistory:
    """Raises ClusterError if the text isn't one of `history_to_json`."""
    try:
        members = json.loads(body)
        result: JobResult | None = None if members["result"] is None else from_json(members["result"])
        return JobHistory(result, tuple(JobEvent(**event) for event in members["events"]))
    except (ValueError, KeyError, TypeError) as error:
        raise _foreign(error) from error


def _json(members: dict[str, Any]) -> bytes:
    return json.dumps(members, separators=(",", ":")).encode()


def _foreign(error: Exception) -> ClusterError:
    return ClusterError(
        f"the jobs controller answered what this version can't read: {error!r}; run one version of both"
    )
