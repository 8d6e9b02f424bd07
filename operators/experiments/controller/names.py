"""The words by which a SchedulingExperiment, its runner and what the runner makes find each other."""

from __future__ import annotations

import hashlib

FIELD_MANAGER = "emugpu-experiments"
"""Under this name the controller owns fields (Kubernetes API concepts, server-side apply)."""
RUNNER_MANAGER = "emugpu-experiment-runner"

KIND = "SchedulingExperiment"
FINALIZER = "emugpu.dev/experiment"
"""On an experiment that has begun: deleted, it stays until its runner and the namespaces of its runs are gone."""
UID_LABEL = "emugpu.dev/scheduling-experiment-uid"
"""On the runner's Job, its pods, and the namespaces of the runs: whose they are."""
OWNER = "emugpu.dev/scheduling-experiment"
"""Annotation of the same: NAMESPACE/NAME, for people."""
PROGRESS = "emugpu.dev/experiment-progress"
"""Annotation of an experiment: what its runner tells (telling.py)."""
REPORT_KEYS = ("summary.json", "jobs.csv.gz", "runs.json.gz")
"""What is in the ConfigMap of the report; the last one is what all others are made from."""


def experiment_id(uid: str) -> str:
    """By which the namespaces of the runs and the schedulers are called: the same in all attempts."""
    return hashlib.sha256(uid.encode()).hexdigest()[:8]


def runner_name(name: str, uid: str) -> str:
    """The runner's Job, in the namespace of the operator: names of several namespaces meet there."""
    return f"experiment-{name[:30].strip('-')}-{experiment_id(uid)}"


def report_name(name: str) -> str:
    """The ConfigMap of the report, beside the experiment."""
    return f"{name}-report"
