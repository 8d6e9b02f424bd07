"""spans.csv: which job held which device in which interval. jobs.csv can't express this for preempted jobs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from emulator_runtime.domain.errors import InputError
from scheduler_sims.record import RunRecord, Span
from scheduler_sims.reports.files import read_table, seconds, write_table


@dataclass(frozen=True, slots=True)
class SpanRow:
    """One line of spans.csv: a job of one run held `place` (NODE/INDEX or NODE/cpu). Emulated seconds."""

    policy: str
    cluster: str
    repeat: int
    job_id: str
    place: str
    start_s: float
    end_s: float


SPAN_COLUMNS = tuple(field.name for field in fields(SpanRow))


def write_spans_csv(path: Path, runs: Iterable[RunRecord]) -> None:
    """One row for each policy, cluster, repeat and span; seconds have six decimals. Raises InputError if it can't be written."""
    write_table(path, SPAN_COLUMNS, (_cells(run, span) for run in runs for span in run.spans))


def read_spans_csv(path: Path) -> list[SpanRow]:
    """The rows of a file written by write_spans_csv. Raises InputError naming file and line."""
    return read_table(path, "spans.csv", SPAN_COLUMNS, _row)


def _cells(run: RunRecord, span: Span) -> tuple[str | int, ...]:
    place = f"{span.node}/{'cpu' if span.device is None else span.device}"
    times = (f"{span.start_s:.6f}", f"{span.end_s:.6f}")
    return (run.policy, run.cluster, run.repeat, span.job_id, place, *times)


def _row(place: str, cells: Mapping[str, str]) -> SpanRow:
    try:
        texts = {name: str(cells[name]) for name in ("policy", "cluster", "job_id", "place")}
        times = {name: seconds(cells[name]) for name in ("start_s", "end_s")}
        return SpanRow(**texts, **times, repeat=int(cells["repeat"]))  # type: ignore[arg-type]  # mypy can't see the types
    except (TypeError, ValueError) as error:  # in a short row, the last cells are None
        raise InputError(place, f"is not a row of a spans.csv ({error}); write the file again") from error
