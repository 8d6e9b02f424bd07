"""What jobs really cost on a given cluster. Clusters use it; policies see it only through Estimates."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from math import inf

from emulator_runtime.domain.job import Configuration, JobSpec
from emulator_runtime.domain.sensitivity import HostShare
from emulator_runtime.domain.step import StepTimes
from emulator_runtime.domain.units import to_s
from emulator_runtime.profiles.table import ProfileTable
from emulator_runtime.workloads.step_costs.work import Spread, step_times
from scheduler_sims.inputs.cluster_file import ClusterSpec
from scheduler_sims.inputs.workload import Workload
from scheduler_sims.interface.plan import Allocation

_Times = Callable[[str, str, str | None, HostShare, Spread], StepTimes]


class WorkloadTruth:
    """Step times of a workload's jobs on a cluster's GPU types."""

    def __init__(self, workload: Workload, cluster: ClusterSpec) -> None:
        self._jobs: Mapping[str, JobSpec] = workload.by_id
        self._profiles = workload.profiles
        self.cluster = cluster
        self._times: _Times = lru_cache(maxsize=None)(self._compute)

    def step_times(self, job: JobSpec, allocation: Allocation) -> StepTimes:
        """The steps of `job` with `allocation`, on devices that nobody else uses. A gang goes as fast as its slowest task."""
        spread = Spread(len(allocation.tasks[0].shares), len(allocation.tasks))
        each = [
            self._times(job.job_id, allocation.configuration, gpu_type, host, spread)
            for gpu_type, host in dict.fromkeys((task.gpu_type, task.host) for task in allocation.tasks)
        ]
        return each[0] if len(each) == 1 else max(each, key=lambda times: times.end_ns(0, times.steps))

    def rate(self, job_id: str, allocation: Allocation) -> float:
        """Steps per second with `allocation`, over the whole job."""
        times = self.step_times(self._jobs[job_id], allocation)
        return times.steps / to_s(times.end_ns(0, times.steps))

    def duration_s(self, job_id: str, configuration: str, gpu_type: str | None) -> float:
        """Isolated run time of the whole job with the least CPUs and memory that it runs with.

        `gpu_type` None means its fastest allowed type in the cluster. Infinite where the cluster has no type that the
        configuration allows.
        """
        wanted = self._jobs[job_id].configuration(configuration)
        least = HostShare(wanted.cpu_milli, wanted.memory_bytes)
        types, spread = [gpu_type] if gpu_type else self._types_for(wanted), Spread(wanted.gpus, wanted.min_tasks)
        all_times = (self._times(job_id, configuration, each, least, spread) for each in types)
        return min((to_s(times.end_ns(0, times.steps)) for times in all_times), default=inf)

    def _types_for(self, configuration: Configuration) -> list[str | None]:
        if not configuration.on_gpu:
            return [None]
        return [gpu_type for gpu_type in self.cluster.gpu_types if configuration.allows(gpu_type)]

    def _compute(
        self, job_id: str, configuration: str, gpu_type: str | None, host: HostShare, spread: Spread
    ) -> StepTimes:
        job = self._jobs[job_id]
        return step_times(job.work[configuration], job.steps, gpu_type, host, self._profiles, spread=spread)


class OpenTruth(WorkloadTruth):
    """Step times of jobs that come and go, on GPU types that may change. One thread may tell while another one asks."""

    def __init__(self, profiles: ProfileTable) -> None:
        self._known: dict[str, JobSpec] = {}
        self._jobs = self._known
        self._profiles = profiles
        self.cluster = ClusterSpec(())
        self._found: dict[str, dict[tuple[str, str | None, HostShare, Spread], StepTimes]] = {}
        self._times = self._remembered

    def add(self, job: JobSpec) -> None:
        self._found[job.job_id] = {}
        self._known[job.job_id] = job

    def forget(self, job: JobSpec) -> None:
        """Unless another one of its name has been added since."""
        if self._known.get(job.job_id) is job:
            del self._known[job.job_id], self._found[job.job_id]

    def renew(self, cluster: ClusterSpec) -> None:
        """These are the nodes from now on."""
        self.cluster = cluster

    def _remembered(
        self, job_id: str, configuration: str, gpu_type: str | None, host: HostShare, spread: Spread
    ) -> StepTimes:
        found, key = self._found[job_id], (configuration, gpu_type, host, spread)
        if key not in found:
            found[key] = self._compute(job_id, configuration, gpu_type, host, spread)
        return found[key]
