"""Names by which an EmuJob's objects, its scheduler and the sharing managers find each other, and those of experiments."""

from __future__ import annotations

import hashlib
import re
from typing import Literal, get_args

from emulator_runtime.node.allocation import ALLOCATION_ANNOTATION

CONFIGURATION = "emugpu.dev/configuration"
"""Annotation of the pod template: the name of the configuration to run."""
BATCH_SIZE = "emugpu.dev/batch-size"
"""Annotation of the pod template of an elastic job: the samples of one step of this run."""
ALLOCATION = ALLOCATION_ANNOTATION
"""Annotation of the pod template: what a job-level scheduler gave the job (emulator_runtime/node/allocation.py)."""
EXPERIMENT_LABEL = "emugpu.dev/experiment"
"""Label of an EmuJob: the id of the experiment that it belongs to."""
JOB_ID = "emugpu.dev/job-id"
"""Annotation of an EmuJob: the name that it has in its workload."""
ROW = "emugpu.dev/row"
"""Annotation of an EmuJob: its row in its workload, which orders jobs that are submitted at the same instant."""
BATCH = "emugpu.dev/batch"
"""Annotation of an EmuJob: NAME/NUMBER, the batch that it belongs to and the number of its jobs."""
PREDICTED = "emugpu.dev/predicted"
"""Annotation of an EmuJob: the prediction of its scheduler at its submission (operators/results/predicted.py)."""
POLICY = "emugpu.dev/policy"
"""Annotation of the EmuJobs and the namespace of a run: the policy's title, such as las:threshold_s=300. As a label, the same
with - for each character that a label can't have."""
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
HOLDING: tuple[Phase, ...] = ("Starting", "Running")
"""Phases of an EmuJob in which it holds its nodes and devices."""
ExperimentPhase = Literal["Queued", "Suspended", "Starting", "Running", "Succeeded", "Failed"]
EXPERIMENT_PHASES: tuple[ExperimentPhase, ...] = get_args(ExperimentPhase)
"""Of a SchedulingExperiment; without one it is Pending."""
SchedulerActuator = Literal["jobs", "gated", "binding"]
SCHEDULER_ACTUATORS: tuple[SchedulerActuator, ...] = get_args(SchedulerActuator)
"""How a job-level scheduler starts and stops EmuJobs."""
Actuator = Literal["none", SchedulerActuator]
"""The same, and `none`: no job-level scheduler."""
DEFAULT_SCHEDULER = "default-scheduler"
"""The `schedulerName` of pods that Kubernetes' own scheduler places."""
CONTAINER = "train"
SCHEDULER_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?", re.ASCII)
"""The name of a job-level scheduler: a part of names of Kubernetes' objects."""
SCHEDULER_NAME_FORM = "must be at most 40 small letters, digits and -, as in names of Kubernetes"

# -- experiments and their runs ----------------------------------------------------------------------------------------

RUN_NAMESPACE_PREFIX = "emugpu-exp-"
"""Namespaces of the runs of experiments begin with it; tenants don't create them."""
LONGEST_POLICY = 128
"""Maximum number of characters of a policy's title; the annotation may have any length."""
_RUN_LABEL = re.compile(r"([a-z0-9]+)-([0-9]{1,9})", re.ASCII)


def membership(namespace: str, label: str, policy: str) -> tuple[str, str]:
    """The ids of the experiment and the run that a job belongs to; both empty for a job of no experiment.

    `label`: the value of EXPERIMENT_LABEL, empty: none. Users write it on their own EmuJobs, so it is valid within one namespace
    only: `demo` in namespaces `lab` and `other` names two experiments, `lab.demo` and `other.demo`, with a run for each `policy`
    (see EmuJob.policy). `emugpu compare --on kubernetes` and SchedulingExperiments give each run a namespace of its own,
    `emugpu-exp-ID-NUMBER`, whose jobs have the label `ID-NUMBER`. These runs belong to the experiment `ID`.
    """
    if not label:
        return "", ""
    match = _RUN_LABEL.fullmatch(label)
    if match is not None and namespace == f"{RUN_NAMESPACE_PREFIX}{label}":
        return match[1], label
    experiment = f"{namespace}.{label}"
    return experiment, f"{experiment}.{policy or 'none'}"


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
