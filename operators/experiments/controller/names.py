"""Names that connect a SchedulingExperiment, its runner and the objects that the runner creates."""

from __future__ import annotations

import hashlib

FIELD_MANAGER = "emugpu-experiments"
"""Field manager of the controller (server-side apply)."""
RUNNER_MANAGER = "emugpu-experiment-runner"

KIND = "SchedulingExperiment"
FINALIZER = "emugpu.dev/experiment"
"""Finalizer of an experiment that has started: its deletion waits until its runner and the namespaces of its runs are gone."""
UID_LABEL = "emugpu.dev/scheduling-experiment-uid"
"""Label of the runner's Job, its pods, and the runs' namespaces: the experiment's uid."""
OWNER = "emugpu.dev/scheduling-experiment"
"""Annotation of the same: the experiment's NAMESPACE/NAME, for people."""
PROGRESS = "emugpu.dev/experiment-progress"
"""Annotation of an experiment: the progress of its runner (progress.py)."""
REPORT_KEYS = ("summary.json", "jobs.csv.gz", "runs.json.gz")
"""Keys of the report's ConfigMap; the others can be made from the last one."""


def experiment_id(uid: str) -> str:
    """Part of the names of the runs' namespaces and schedulers: the same in all attempts."""
    return hashlib.sha256(uid.encode()).hexdigest()[:8]


def runner_name(name: str, uid: str) -> str:
    """The runner's Job, in the operator's namespace, unique among experiments of all namespaces."""
    return f"experiment-{name[:30].strip('-')}-{experiment_id(uid)}"


def report_name(name: str) -> str:
    """The ConfigMap of the report, beside the experiment."""
    return f"{name}-report"
