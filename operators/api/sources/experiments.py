"""The experiments that a cluster's jobs belong to, with their runs. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from operators.api.model.snapshot import Experiment, Job, Run


def experiments_of(jobs: Iterable[Job]) -> list[Experiment]:
    """The experiments of these jobs with their runs, in order of the first submission."""
    runs: dict[str, dict[str, Run]] = {}
    counts: dict[str, int] = {}
    namespaces: dict[str, str] = {}
    for job in jobs:
        if job.experiment:
            own = runs.setdefault(job.experiment, {})
            own.setdefault(job.run, Run(job.run, job.experiment, job.policy, "kubernetes"))
            counts[job.experiment] = counts.get(job.experiment, 0) + 1
            namespaces[job.experiment] = job.namespace
    return [
        Experiment(
            id=experiment,
            runs=_numbered(own.values()),
            meta={"jobs": str(counts[experiment])},
            namespace=namespaces[experiment] if "." in experiment else "",
        )
        for experiment, own in runs.items()
    ]


def _numbered(runs: Iterable[Run]) -> tuple[Run, ...]:
    """Numbers the runs of one policy from 1 on if there are several; a single run has 0."""
    every = list(runs)
    found: list[Run] = []
    for run in every:
        same = [other for other in every if other.policy == run.policy]
        found.append(replace(run, repeat=same.index(run) + 1) if len(same) > 1 else run)
    return tuple(found)
