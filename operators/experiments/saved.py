"""The results of a comparison so far, as bytes: an interrupted comparison continues from them and runs only what is missing.

Times are saved to the microsecond, the precision of reports; so a report made from saved results is the same.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, TypeVar

from emulator_runtime.domain.errors import InputError
from operators.experiments.calibration.calibration import Calibration
from scheduler_sims.record import HostSpan, Interruption, JobRecord, LagAccount, RunRecord, ServiceLevel, Span

FORMAT = 3
_DIGITS = 6

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SavedComparison:
    """`inputs`: a digest of what is compared; another digest means another comparison. `attempts`: how often it was started.

    `meta` is the report's header. `runs`: the complete ones, in order.
    """

    inputs: str = ""
    attempts: int = 0
    calibration: Calibration | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)
    runs: tuple[RunRecord, ...] = ()

    def without_spans(self) -> SavedComparison:
        """Without the spans, the largest part, from which only the Gantt chart and utilisations are made."""
        return replace(self, runs=tuple(replace(run, spans=(), host_spans=()) for run in self.runs))


_ROWS: Mapping[str, Callable[..., Any]] = {
    "jobs": JobRecord,
    "spans": Span,
    "host_spans": HostSpan,
    "interruptions": Interruption,
    "services": ServiceLevel,
}
"""Members of a RunRecord that have a row for each of their objects."""


def packed(saved: SavedComparison) -> bytes:
    """Equal content gives equal bytes."""
    document = {
        "format": FORMAT,
        "inputs": saved.inputs,
        "attempts": saved.attempts,
        "calibration": None if saved.calibration is None else asdict(saved.calibration),
        "meta": dict(saved.meta),
        "runs": [_run_document(run) for run in saved.runs],
    }
    return gzip.compress(json.dumps(_rounded(document), separators=(",", ":")).encode(), mtime=0)


def unpacked(data: bytes, place: str) -> SavedComparison:
    """Raises InputError at `place` for bytes that `packed` did not write."""
    try:
        document = json.loads(gzip.decompress(data))
        if document["format"] != FORMAT:
            raise InputError(
                place, f"was written by another version of emugpu (format {document['format']}, not {FORMAT})"
            )
        calibration = document["calibration"]
        return SavedComparison(
            inputs=str(document["inputs"]),
            attempts=int(document["attempts"]),
            calibration=None if calibration is None else _calibration(calibration),
            meta=dict(document["meta"]),
            runs=tuple(_run(run) for run in document["runs"]),
        )
    except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
        raise InputError(place, f"holds no saved comparison ({type(error).__name__}: {error})") from error


def _calibration(document: Mapping[str, Any]) -> Calibration:
    return Calibration(**{**document, "notes": tuple(document.get("notes", ()))})


def _run_document(run: RunRecord) -> dict[str, Any]:
    """Jobs and spans as rows, not as objects: of thousands of them the member names would take most of the space."""
    document = asdict(replace(run, jobs=(), spans=(), host_spans=(), interruptions=(), services=()))
    for name in _ROWS:
        document[name] = [[getattr(one, f.name) for f in fields(one)] for one in getattr(run, name)]
    return document


def _run(document: Mapping[str, Any]) -> RunRecord:
    return RunRecord(
        **{
            **document,
            "nodes": tuple(document["nodes"]),
            "notes": tuple(document["notes"]),
            **{name: _rows(kind, document.get(name, [])) for name, kind in _ROWS.items()},
            "lag": {kind: LagAccount(**account) for kind, account in document["lag"].items()},
        }
    )


def _rows(kind: Callable[..., T], rows: list[list[Any]]) -> tuple[T, ...]:
    return tuple(kind(*(tuple(cell) if isinstance(cell, list) else cell for cell in row)) for row in rows)


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, _DIGITS)
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    return [_rounded(each) for each in value] if isinstance(value, list | tuple) else value
