"""Runs one policy on one cluster, from input files to a RunRecord. A comparison is a list of such runs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emulator_runtime.domain.errors import InputError, PolicyError
from emulator_runtime.domain.units import MAX_SECONDS, to_s
from emulator_runtime.timing.host import monotonic_ns
from scheduler_sims.clusters.base import Cluster
from scheduler_sims.clusters.simulated import SimulatedCluster
from scheduler_sims.inputs.cluster_file import ClusterSpec, load_cluster
from scheduler_sims.inputs.fit import Remedy, check_fits
from scheduler_sims.inputs.truth import WorkloadTruth
from scheduler_sims.inputs.workload import Workload, load_workload
from scheduler_sims.interface.costs import SLOTS
from scheduler_sims.interface.estimates import Estimates, parse_estimates
from scheduler_sims.loop.scheduler_loop import SchedulerLoop
from scheduler_sims.loop.strategies import Explain, Listeners, Progress
from scheduler_sims.policies.resolve import resolve_policy
from scheduler_sims.record import RunRecord
from scheduler_sims.services.service import Service
from scheduler_sims.services.service_levels import service_levels
from scheduler_sims.services.services_file import load_services, with_replicas

if TYPE_CHECKING:
    from scheduler_sims.clusters.local import LocalOptions


@dataclass(frozen=True)
class Experiment:
    """A workload on a cluster, validated, with the estimates that policies get."""

    workload: Workload
    spec: ClusterSpec
    truth: WorkloadTruth
    estimates: Estimates
    known: tuple[str, int] = ("oracle", 0)
    """The value of `--estimates`, and the seed of the errors."""
    as_pods: bool = False
    """Whether it is observed with jobs as pods run them, see `in_pods`."""
    services: tuple[Service, ...] = ()
    """Whose replicas are among the jobs."""

    @classmethod
    def load(
        cls,
        workload_path: Path,
        cluster: Path | ClusterSpec,
        *,
        estimates: str = "oracle",
        seed: int = 0,
        profiles: Path | None = None,
        stretch: float = 1.0,
        remedy: Remedy | None = None,
    ) -> Experiment:
        """Reads and validates both files; `cluster` may also be a ClusterSpec. `stretch` multiplies submit times and durations.

        Raises InputError that names the place, also for a job larger than the cluster; there `remedy` says what to change.
        """
        workload = load_workload(workload_path, profiles).stretched(stretch)
        spec = cluster if isinstance(cluster, ClusterSpec) else load_cluster(cluster, workload.profiles.catalogue)
        check_fits(workload, spec, str(workload_path), remedy)
        return cls.of(workload, spec, (estimates, seed))

    @classmethod
    def of(cls, workload: Workload, spec: ClusterSpec, known: tuple[str, int]) -> Experiment:
        """The experiment of a workload that fits the cluster. `known`: estimates and seed.

        Raises InputError for unknown estimates.
        """
        truth = WorkloadTruth(workload, spec)
        return cls(workload, spec, truth, parse_estimates(known[0], truth, known[1]), known)

    def serving(self, services_path: Path, stretch: float = 1.0) -> Experiment:
        """The same experiment with the replicas of the inference services in a file among the jobs. Raises InputError."""
        services = load_services(services_path, self.workload.profiles.catalogue)
        services = tuple(each.stretched(stretch) for each in services)
        if (latest_s := max(each.until_s for each in services)) > MAX_SECONDS:
            raise InputError("--stretch", f"{stretch:g} takes services to {latest_s:g} s, beyond {MAX_SECONDS:g} s")
        workload = with_replicas(self.workload, services, self.spec, str(services_path))
        return replace(self.of(workload, self.spec, self.known), services=services)

    def in_pods(self) -> Experiment:
        """The same experiment with jobs as pods run them: their GPUs exchange gradients, and only elastic jobs may change their
        batch size."""
        return replace(self.of(self.workload.exchanging(), self.spec, self.known), as_pods=True, services=self.services)

    def on(self, spec: ClusterSpec) -> Experiment:
        """The same experiment on a cluster that differs only in node names and costs."""
        return replace(self.of(self.workload, spec, self.known), as_pods=self.as_pods, services=self.services)

    def described(self, workload: str, cluster: str, clock: str, stretch: float) -> dict[str, Any]:
        """The inputs, for a report's header and the summary; `workload` and `cluster` are display names."""
        return {
            "workload": workload,
            "jobs": sum(job.until_s is None for job in self.workload.jobs),
            "cluster": cluster,
            "nodes": len(self.spec.nodes),
            "gpus": self.spec.gpus,
            "clock": clock,
            **({"stretch": stretch} if stretch != 1 else {}),
            "estimates": self.known[0],
            "seed": self.known[1],
            **({"failures": str(self.spec.failures)} if self.spec.failures else {}),
            **({"services": self._services_described()} if self.services else {}),
            "costs": {
                name: f"{value:g}{'' if name in SLOTS else ' s'}"
                for name, value in asdict(self.spec.costs).items()
                if value
            }
            or "none",
        }

    def _services_described(self) -> str:
        replicas = sum(job.until_s is not None for job in self.workload.jobs)
        return f"{', '.join(each.name for each in self.services)}: {replicas} replicas over time"

    def check_policies(self, texts: Sequence[str]) -> dict[str, str]:
        """Display names of `--policy` values: their names, or the whole value if two classes have the same name.

        Raises InputError or PolicyError for a policy that can't be used with this experiment or is given twice.
        """
        names: dict[str, str] = {}
        for text in texts:
            if texts.count(text) > 1:
                raise InputError("--policy", f"{text} is named twice; options (name:key=value) make it another policy")
            with redirect_stdout(sys.stderr):
                name, policy = resolve_policy(text)
            if policy.needs_estimates and not self.estimates.available:
                raise PolicyError(f"policy {name} needs estimates of run times: use --estimates oracle or error:0.2")
            names[text] = name
        taken = list(names.values())
        return {text: text if taken.count(name) > 1 else name for text, name in names.items()}

    def simulate(self, policy: str, *, progress: Progress | None = None, explain: Explain | None = None) -> RunRecord:
        """The predicted run of a `--policy` value."""
        cluster = SimulatedCluster(self.truth, self.spec.costs, any_batch=not self.as_pods)
        record = self._run(policy, lambda: cluster, 0, progress, explain)
        if self.spec.failures is None:
            return record
        replicas = {job.job_id for job in self.workload.jobs if job.until_s is not None}  # they lose no training
        interruptions = tuple(one for one in cluster.interruptions if one.job_id not in replicas)
        jobs, lost_gpu_s = {one.job_id for one in interruptions}, sum(one.lost_gpu_s for one in interruptions)
        note = (
            f"nodes went away: runs interrupted: {len(interruptions)}, jobs: {len(jobs)}, GPU-hours lost since their "
            f"checkpoints: {lost_gpu_s / 3600:.3f}"
        )
        return replace(record, interruptions=interruptions, notes=(*record.notes, note))

    def observe(
        self,
        policy: str,
        options: LocalOptions,
        *,
        repeat: int = 1,
        progress: Progress | None = None,
        explain: Explain | None = None,
        notify: Callable[[str], None] | None = None,
    ) -> RunRecord:
        """The observed run: real processes on this machine."""
        from scheduler_sims.clusters.local import LocalCluster  # a simulation needn't wait for it

        return self._run(policy, lambda: LocalCluster(self.spec, options, notify=notify), repeat, progress, explain)

    def _run(
        self,
        text: str,
        make_cluster: Callable[[], Cluster],
        repeat: int,
        progress: Progress | None,
        explain: Explain | None,
    ) -> RunRecord:
        started_ns = monotonic_ns()
        with redirect_stdout(sys.stderr):  # output of a policy must not mix with emugpu's own
            name, policy = resolve_policy(text)  # a fresh object for each run
        cluster = make_cluster()
        try:
            listeners = Listeners(progress or (lambda _ended, _now_s: None), explain)
            loop = SchedulerLoop(cluster, self.spec, policy, self.estimates, self.workload.jobs, listeners=listeners)
            with redirect_stdout(sys.stderr):
                loop.run()
            lag, notes = {**cluster.lag(), **loop.lag()}, cluster.notes()
        except PolicyError as error:
            raise PolicyError(f"policy {name}: {error}") from error
        finally:
            cluster.close()
        record = RunRecord(
            policy=name,
            cluster=cluster.name,
            repeat=repeat,
            gpus=self.spec.gpus,
            nodes=tuple(node.name for node in self.spec.nodes),
            jobs=loop.books.records(),
            spans=tuple(loop.books.spans),
            wall_s=(monotonic_ns() - started_ns) / 1e9,
            decisions=loop.decisions,
            lag=lag,
            notes=notes,
            cpu_milli=sum(node.cpu_milli for node in self.spec.nodes),
            host_spans=tuple(loop.books.host_spans),
            policy_s=to_s(loop.policy_ns),
        )
        levels = service_levels(record, self.services, self.spec.costs)
        missed = (f"{cluster.name}: {level}" for level in levels if level.in_time < level.promised)
        return replace(record, services=levels, notes=(*notes, *missed))
