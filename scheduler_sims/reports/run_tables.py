"""Tables beside jobs.csv that only some runs have: interruptions.csv (runs of jobs that ended because a node went away, and what
that cost) and services.csv (how well inference services were served)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple, fields
from pathlib import Path

from scheduler_sims.record import Interruption, RunRecord, ServiceLevel
from scheduler_sims.reports.files import write_table

_RUN = ("policy", "cluster", "repeat")
INTERRUPTION_COLUMNS, SERVICE_COLUMNS = (
    (*_RUN, *(field.name for field in fields(kind))) for kind in (Interruption, ServiceLevel)
)


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
    write_table(path, INTERRUPTION_COLUMNS, rows)


def write_services_csv(path: Path, runs: Iterable[RunRecord]) -> None:
    """One row for each run and service, numbers with six decimals. Raises InputError if it can't be written."""
    rows = (
        (run.policy, run.cluster, run.repeat, service, *(f"{number:.6f}" for number in numbers))
        for run in runs
        for service, *numbers in map(astuple, run.services)
    )
    write_table(path, SERVICE_COLUMNS, rows)
