"""Names by which an EmuJob's objects, its scheduler and the sharing managers find each other, and those of an experiment."""

from __future__ import annotations

import hashlib
import re
from typing import Literal, get_args

from emulator_runtime.node.host_share import ALLOCATION_ANNOTATION

CONFIGURATION = "emugpu.dev/configuration"
"""Annotation of the pod template: the name of the configuration to run."""
ALLOCATION = ALLOCATION_ANNOTATION
"""Annotation of the pod template: what a job-level scheduler gave the job (allocation.py)."""
EXPERIMENT_LABEL = "emugpu.dev/experiment"
"""Label of an EmuJob: the id of the experiment that it belongs to."""
JOB_ID = "emugpu.dev/job-id"
"""Annotation of an EmuJob: the name that it has in its workload."""
PREDICTED = "emugpu.dev/predicted"
"""Annotation of an EmuJob: the prediction of its scheduler at its submission (operators/results/predicted.py)."""
POLICY = "emugpu.dev/policy"
"""Annotation of the EmuJobs and the namespace of a run: the policy's title, such as las:threshold_s=300. As a label, the same
with - for each character that a label can't have."""
RUN_NAMESPACE_PREFIX = "emugpu-exp-"
"""Namespaces of the runs of experiments begin with it; tenants don't create them."""
REPEAT = "emugpu.dev/repeat"
"""Annotation of the EmuJobs and the namespace of a run: the number of the observed run of the policy, from 1 on."""
GATE = "emugpu.dev/scheduler"
"""The scheduling gate that a job-level scheduler opens, with actuator `gated`."""
Phase = Literal["Pending", "Queued", "Starting", "Running", "Preempted", "Succeeded", "Failed", "Rejected"]
PHASES: tuple[Phase, ...] = get_args(Phase)
"""Of an EmuJob."""
FINAL: tuple[Literal["Succeeded", "Failed"], ...] = ("Succeeded", "Failed")
"""Phases that an EmuJob, an experiment or a pod never leaves."""
ENDED: tuple[Phase, ...] = (*FINAL, "Rejected")
"""Phases of an EmuJob in which nothing more happens, unless its specification is changed."""
SchedulerActuator = Literal["jobs", "gated", "binding"]
SCHEDULER_ACTUATORS: tuple[SchedulerActuator, ...] = get_args(SchedulerActuator)
"""How a job-level scheduler starts and stops EmuJobs."""
Actuator = Literal["none", "jobs", "gated", "binding"]
ACTUATORS: tuple[Actuator, ...] = get_args(Actuator)
"""The same, and `none`: no job-level scheduler."""
DEFAULT_SCHEDULER = "default-scheduler"
"""The `schedulerName` of pods that Kubernetes' own scheduler places."""
CONTAINER = "train"
SCHEDULER_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?", re.ASCII)
"""The name of a job-level scheduler: a part of names of Kubernetes' objects."""
SCHEDULER_NAME_FORM = "must be at most 40 small letters, digits and -, as in names of Kubernetes"

# -- SchedulingExperiments ---------------------------------------------------------------------------------------------

EXPERIMENT_FINALIZER = "emugpu.dev/experiment"
"""Finalizer of an experiment that has started: its deletion waits until its runner and the namespaces of its runs are gone."""
EXPERIMENT_UID_LABEL = "emugpu.dev/scheduling-experiment-uid"
"""Label of the runner's Job, its pods, and the runs' namespaces: the experiment's uid."""
EXPERIMENT_OWNER = "emugpu.dev/scheduling-experiment"
"""Annotation of the runner's Job, its pods, and the runs' namespaces: the experiment's NAMESPACE/NAME, for people."""
REPORT_KEYS = ("summary.json", "jobs.csv.gz", "runs.json.gz")
"""Keys of the report's ConfigMap; the other files can be made from the last one."""


def experiment_id(uid: str) -> str:
    """Part of the names of the runs' namespaces and schedulers: the same in all attempts."""
    return hashlib.sha256(uid.encode()).hexdigest()[:8]


def runner_name(name: str, uid: str) -> str:
    """The runner's Job, in the operator's namespace, unique among experiments of all namespaces."""
    return f"experiment-{name[:30].strip('-')}-{experiment_id(uid)}"


def report_name(name: str) -> str:
    """The ConfigMap of the report, beside the experiment."""
    return f"{name}-report"
