"""Which experiment and which run a job of a cluster belongs to. Pure.

The label emugpu.dev/experiment is a text that users write on their own EmuJobs, so it is valid within one namespace only: the
label `demo` in namespaces `lab` and `other` names two experiments, `lab.demo` and `other.demo`.

`emugpu compare --on kubernetes` and SchedulingExperiments give each run a namespace, `emugpu-exp-ID-NUMBER`, whose jobs have the
label `ID-NUMBER`. These runs belong to the experiment `ID`: tenants don't create namespaces with that prefix.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from operators.api.model.snapshot import Experiment, Job, Run
from operators.objects.names import RUN_NAMESPACE_PREFIX

_RUN_LABEL = re.compile(r"([a-z0-9]+)-([0-9]{1,9})", re.ASCII)


@dataclass(frozen=True, slots=True)
class Membership:
    """`experiment` and `run` are ids, empty for a job of no experiment. `policy`: its name on pages."""

    experiment: str
    run: str
    policy: str


def membership(namespace: str, label: str, policy: str) -> Membership:
    """`label`: the value of emugpu.dev/experiment, empty: none. `policy`: the policy's title, or the scheduler's name."""
    if not label:
        return Membership("", "", policy)
    match = _RUN_LABEL.fullmatch(label)
    if match is not None and namespace == f"{RUN_NAMESPACE_PREFIX}{label}":
        return Membership(match[1], label, policy)
    experiment = f"{namespace}.{label}"
    return Membership(experiment, f"{experiment}.{policy or 'none'}", policy)


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
