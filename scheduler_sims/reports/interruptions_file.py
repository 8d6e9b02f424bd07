"""interruptions.csv: which run of which job ended because a node went away, and what that cost."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path

from scheduler_sims.record import Interruption, RunRecord
from scheduler_sims.reports.files import write_table

COLUMNS = ("policy", "cluster", "repeat", *(field.name for field in fields(Interruption)))


def write_interruptions_csv(path: Path, runs: Iterable[RunRecord]) -> None:
    """One row for each interrupted run; seconds have six decimals. Raises InputError if it can't be written."""
    rows = (
        (
            run.policy,
            run.cluster,
            run.repeat,
            one.job_id,
            one.node,
            f"{one.at_s:.6f}",
            one.kept_steps,
            f"{one.lost_gpu_s:.6f}",
        )
        for run in runs
        for one in run.interruptions
    )
    write_table(path, COLUMNS, rows)
