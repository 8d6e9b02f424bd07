"""What jobs really cost on a given cluster. Clusters use it; policies see it only through Estimates."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

from emulator_runtime.domain.job import Configuration, JobSpec
from emulator_runtime.domain.sensitivity import HostShare
from emulator_runtime.domain.step import StepTimes
from emulator_runtime.domain.units import NS_PER_S, to_s
from emulator_runtime.profiles.table import ProfileTable
from emulator_runtime.workloads.step_costs.work import Spread, step_times
from scheduler_sims.inputs.cluster_file import ClusterSpec
from scheduler_sims.inputs.workload import Workload
from scheduler_sims.interface.estimates import StepStages
from scheduler_sims.interface.plan import Allocation

_Case = tuple[str, str | None, int, int, Spread, int]
"""Configuration, GPU type, thousandths of CPUs and memory in bytes of each task, spread, and batch size (0: as submitted)."""


class Truth:
    """Step times of jobs on a cluster's GPU types; each is computed once."""

    def __init__(self, jobs: Mapping[str, JobSpec], profiles: ProfileTable, cluster: ClusterSpec) -> None:
        self._jobs, self._profiles, self.cluster = dict(jobs), profiles, cluster
        self._known: dict[str, dict[_Case, StepTimes]] = {job_id: {} for job_id in jobs}
        self._durations: dict[tuple[str, str, str | None], float] = {}

    def step_times(self, job: JobSpec, allocation: Allocation, steps: int = 0) -> StepTimes:
        """The steps of `job` with `allocation`, on devices that nobody else uses. A gang goes as fast as its slowest task.

        `steps`: how many the job has at its end (RunSamples), where another batch size makes them other than those submitted.
        """
        tasks = allocation.tasks
        name, spread, batch_size = (
            allocation.configuration,
            self.cluster.nvlink.spread(allocation),
            allocation.batch_size,
        )
        cases = [(name, t.gpu_type, t.cpu_milli, t.memory_bytes, spread, batch_size) for t in tasks]
        each = [self._times(job.job_id, case) for case in (cases if len(cases) == 1 else dict.fromkeys(cases))]
        times = each[0] if len(each) == 1 else max(each, key=lambda times: times.end_ns(0, times.steps))
        return times if steps in (0, times.steps) else times.with_steps(steps)

    def rate(self, job_id: str, allocation: Allocation) -> float:
        """Steps per second with `allocation`, over the whole job as submitted."""
        times = self.step_times(self._jobs[job_id], allocation)
        return times.steps / to_s(times.end_ns(0, times.steps))

    def duration_s(self, job_id: str, configuration: str, gpu_type: str | None) -> float:
        """Isolated run time of the whole job with the least CPUs and memory that it runs with.

        `gpu_type` None means its fastest allowed type in the cluster. Infinite where the cluster has no type that the
        configuration allows.
        """
        durations, key = self._durations, (job_id, configuration, gpu_type)
        if key not in durations:
            durations[key] = self._duration_s(job_id, configuration, gpu_type)
        return durations[key]

    def _duration_s(self, job_id: str, configuration: str, gpu_type: str | None) -> float:
        wanted = self._jobs[job_id].configuration(configuration)
        types = [gpu_type] if gpu_type else self._types_for(wanted)
        all_times = (self._times(job_id, self._least(wanted, each)) for each in types)
        return min((to_s(times.end_ns(0, times.steps)) for times in all_times), default=inf)

    def stages(self, job_id: str, configuration: str) -> StepStages:
        """One step with the least CPUs and memory, on the fastest allowed type of the cluster; its first step stands for all."""
        wanted = self._jobs[job_id].configuration(configuration)
        types = self._types_for(wanted) or [None]
        times = min(
            (self._times(job_id, self._least(wanted, each)) for each in types),
            key=lambda times: times.end_ns(0, times.steps),
        )
        cpu_ns = times.input_ns + times.host_ns + times.stages.transfer_ns
        step_ns = times.end_ns(0, times.steps) / times.steps
        of_stages = (times.stages.fetch_ns, cpu_ns, times.total_device_ns / times.steps, times.stages.exchange_ns)
        return StepStages(step_ns / NS_PER_S, *(ns / NS_PER_S for ns in of_stages))

    def _types_for(self, configuration: Configuration) -> list[str | None]:
        if not configuration.on_gpu:
            return [None]
        return [gpu_type for gpu_type in self.cluster.gpu_types if configuration.allows(gpu_type)]

    def _times(self, job_id: str, case: _Case) -> StepTimes:
        known = self._known[job_id]
        if case not in known:
            job, (configuration, gpu_type, cpu_milli, memory_bytes, spread, batch_size) = self._jobs[job_id], case
            work = job.work_on(configuration, spread.gpus * spread.nodes, batch_size)
            host = HostShare(cpu_milli, memory_bytes)
            known[case] = step_times(work, job.steps, gpu_type, host, self._profiles, spread=spread)
        return known[case]

    def _least(self, configuration: Configuration, gpu_type: str | None) -> _Case:
        """A configuration with the least CPUs and memory that it runs with, on GPUs that NVLink joins as well as it can."""
        c = configuration
        spread = self.cluster.nvlink.best_spread(c.gpus, c.min_tasks, gpu_type)
        return (c.name, gpu_type, c.cpu_milli, c.memory_bytes, spread, 0)


class WorkloadTruth(Truth):
    """Step times of a workload's jobs."""

    def __init__(self, workload: Workload, cluster: ClusterSpec) -> None:
        super().__init__(workload.by_id, workload.profiles, cluster)


class OpenTruth(Truth):
    """Step times of jobs that come and go, on GPU types that may change. One thread may call `add`, `forget` and `renew` while
    another thread asks for step times."""

    def __init__(self, profiles: ProfileTable) -> None:
        super().__init__({}, profiles, ClusterSpec(()))

    def add(self, job: JobSpec) -> None:
        self._known[job.job_id] = {}
        self._jobs[job.job_id] = job
        self._durations = {}

    def forget(self, job: JobSpec) -> None:
        """Unless another one of its name has been added since."""
        if self._jobs.get(job.job_id) is job:
            del self._jobs[job.job_id], self._known[job.job_id]
            self._durations = {}

    def renew(self, cluster: ClusterSpec) -> None:
        """These are the nodes from now on."""
        self.cluster = cluster
        self._durations = {}
