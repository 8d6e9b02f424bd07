"""services.csv: how well each run served the requests of inference services."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path

from scheduler_sims.record import RunRecord, ServiceLevel
from scheduler_sims.reports.files import write_table

COLUMNS = ("policy", "cluster", "repeat", *(field.name for field in fields(ServiceLevel)))


def write_services_csv(path: Path, runs: Iterable[RunRecord]) -> None:
    """One row for each run and service, numbers with six decimals. Raises InputError if it can't be written."""
    rows = (
        (run.policy, run.cluster, run.repeat, one.service, *(f"{value:.6f}" for value in numbers))
        for run in runs
        for one in run.services
        for numbers in [(one.requests, one.in_time, one.promised, one.replica_s, one.wanted_s)]
    )
    write_table(path, COLUMNS, rows)
