"""Predicts a job's JCT with the simulator, from the cluster's present state.

The simulated policy decides from now on, and no job arrives after this one. The policy starts without the state that the running
policy has accumulated; only the jobs' progress is taken over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from emulator_runtime.domain.errors import InputError
from emulator_runtime.domain.job import JobSpec
from emulator_runtime.profiles.table import ProfileTable
from operators.results.predicted import Prediction
from operators.scheduling.predict.resumed_loop import ResumedLoop
from scheduler_sims.clusters.open import PresentJob
from scheduler_sims.inputs.cluster_file import ClusterSpec
from scheduler_sims.inputs.fit import check_fits
from scheduler_sims.inputs.truth import WorkloadTruth
from scheduler_sims.inputs.workload import Workload
from scheduler_sims.interface.estimates import parse_estimates
from scheduler_sims.policies.resolve import resolve_policy

_ESTIMATES = "oracle"


def predict_job(
    job: JobSpec,
    present: Sequence[PresentJob],
    cluster: ClusterSpec,
    policy: str,
    profiles: ProfileTable,
    *,
    at_ns: int,
    give_up: Callable[[], bool] = lambda: False,
) -> Prediction:
    """The JCT of `job` under a `--policy` value, if nothing else is ever submitted; all times are relative to `at_ns`.

    `give_up` is called between decisions: with a thousand jobs some policies take minutes. Raises InputError for a job that
    fits on no node, PolicyError if the policy fails or `give_up` returns True.
    """
    waiting = [other for other in present if other.allocation is not None or _fits(other.spec, cluster, profiles)]
    jobs = _numbered([*(other.spec for other in waiting), job])
    awaited = jobs[job.job_id]
    check_fits(Workload("submission", (awaited,), profiles), cluster, "submission")
    truth = WorkloadTruth(Workload("present", tuple(jobs.values()), profiles), cluster)
    name, chosen = resolve_policy(policy)
    estimates = parse_estimates(_ESTIMATES, truth, 0)
    others = [replace(other, spec=jobs[other.spec.job_id]) for other in waiting]
    loop = ResumedLoop(cluster, truth, chosen, estimates, others, awaited, give_up=give_up)
    return Prediction(loop.completion_s() - awaited.submit_s, name, at_ns)


def _numbered(specs: Sequence[JobSpec]) -> dict[str, JobSpec]:
    """Numbers rows by submission time, then job id, so that the result doesn't depend on the order of a list.

    Raises InputError if two jobs have the same id.
    """
    ordered = sorted(specs, key=lambda spec: (spec.submit_s, spec.job_id))
    numbered = {spec.job_id: replace(spec, row=row) for row, spec in enumerate(ordered)}
    if len(numbered) < len(ordered):
        raise InputError(
            "submission", "two jobs have the same id: the predicted job must not be among the present ones"
        )
    return numbered


def _fits(spec: JobSpec, cluster: ClusterSpec, profiles: ProfileTable) -> bool:
    """Whether the job could run on the empty cluster. A job that can't is left out: it would delay no other job."""
    try:
        check_fits(Workload("present", (spec,), profiles), cluster, "present")
    except InputError:
        return False
    return True
