"""The files of a sweep: results.csv with a row for each point, summary.json with the statistics, timing.csv.

Results and summary have the same bytes for the same sweep, however many processes evaluated it. Times of this machine are in
timing.csv only.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from emugpu.sweep.evaluation import Outcome
from emugpu.sweep.plan import Point, Sweep
from emugpu.sweep.statistics import Line
from scheduler_sims.inputs.table_file import write_parquet_beside
from scheduler_sims.reports.files import write_atomically, write_table

RESULTS, SUMMARY, TIMING, REPORT, JOURNAL = "results.csv", "summary.json", "timing.csv", "report.html", "points.jsonl"
_POINT: Mapping[str, type] = {"load": float, "estimates": str, "policy": str, "seed": int}


def write_results(out: Path, sweep: Sweep, outcomes: Mapping[Point, Outcome], *, parquet: bool) -> None:
    """Both tables, as Parquet, too, if `parquet`. Raises InputError if they can't be written."""
    done = [(point, outcomes[point]) for point in sweep.points() if point in outcomes and not outcomes[point].error]
    names = list(done[0][1].figures) if done else []
    rows = ((*_cells(point), *(_number(one.figures[name]) for name in names)) for point, one in done)
    write_table(out / RESULTS, (*_POINT, *names), rows)
    timing = ((*_cells(point), *(f"{value:.6f}" for value in (one.policy_s, one.wall_s))) for point, one in done)
    write_table(out / TIMING, (*_POINT, "policy_s", "wall_s"), timing)
    for name in (RESULTS, TIMING) if parquet else ():
        write_parquet_beside(out / name, lambda column: _POINT.get(column, float))


def summary(sweep: Sweep, found: Sequence[Line], outcomes: Mapping[Point, Outcome]) -> dict[str, Any]:
    """JSON values: inputs, baseline, a line for each condition and policy, failed points."""
    failed = [(point, outcomes[point].error) for point in sweep.points() if point in outcomes and outcomes[point].error]
    return {
        "inputs": sweep.inputs.subject(),
        "seeds": list(sweep.seeds),
        "baseline": sweep.policies[0],
        "lines": [line.as_dict() for line in found],
        "missing": sum(point not in outcomes for point in sweep.points()),
        "failed": [dict(zip(_POINT, _cells(point), strict=True)) | {"error": error} for point, error in failed],
    }


def write_summary(out: Path, values: Mapping[str, Any]) -> None:
    """Raises InputError if it can't be written."""
    write_atomically(out / SUMMARY, json.dumps(values, indent=2, allow_nan=False) + "\n")


def _cells(point: Point) -> tuple[str, ...]:
    return (f"{point.load:g}" if point.load else "", point.estimates, point.policy, str(point.seed))


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.9g}"
