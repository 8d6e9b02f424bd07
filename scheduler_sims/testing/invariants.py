"""The invariants that any policy must keep, on simulated clusters with random workloads. One call checks them:

    def test_my_policy() -> None:
        check_policy(MyPolicy)

Every job that fits ends; it does the steps that were asked for, each once; no device has two jobs at a time; a start and a stop
cost what the cluster's costs say, and nothing else is lost; the same seed gives the same run, also if jobs are listed and changes
are handed over in another order.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from random import Random

from emulator_runtime.domain.gpu import Device
from emulator_runtime.domain.job import Configuration, JobSpec, TimedWork
from emulator_runtime.domain.parallelism import Parallelism
from emulator_runtime.domain.units import GIB, to_s
from emulator_runtime.profiles.table import ProfileTable
from scheduler_sims.clusters.base import Event, Happening, Start
from scheduler_sims.clusters.simulated import SimulatedCluster
from scheduler_sims.inputs.cluster_file import ClusterSpec, NodeSpec, nvlink_domains
from scheduler_sims.inputs.truth import WorkloadTruth
from scheduler_sims.inputs.workload import Workload
from scheduler_sims.interface.costs import ClusterCosts
from scheduler_sims.interface.estimates import parse_estimates
from scheduler_sims.interface.plan import Plan
from scheduler_sims.interface.policy import Policy
from scheduler_sims.interface.view import ClusterView
from scheduler_sims.loop.scheduler_loop import SchedulerLoop
from scheduler_sims.record import JobRecord, Span

_COSTS = ClusterCosts(decide_s=0.1, start_s=2.0, restore_s=1.0, warm_up_s=0.5, checkpoint_s=0.7, stop_s=0.3)
_STEP_S = 0.5
_SLACK_S = 1e-6


@dataclass(frozen=True, slots=True)
class Terms:
    """The clusters and workloads of the check. `gpus`: numbers of GPUs that jobs ask for; `gangs`: some of them on two nodes.

    `nodes`: GPUs of each node. `memory_gib`: of its devices, in turn; with several, jobs of one GPU ask for what some devices
    have. `sharing`: how jobs share devices. `nvlink_domain`: so many devices of a node are joined by NVLink, and each layer of
    the jobs with several GPUs on a node is divided over two (0: all of a node are joined, and layers are whole).
    """

    jobs: int = 20
    gpus: tuple[int, ...] = (1, 1, 2, 4)
    gangs: bool = True
    nodes: tuple[int, ...] = (4, 4, 2)
    memory_gib: tuple[int, ...] = (16,)
    sharing: str = "exclusive"
    nvlink_domain: int = 0


@dataclass
class _Run:
    """What one run left behind: the loop, its starts, and the ends of runs by job."""

    specs: Sequence[JobSpec]
    loop: SchedulerLoop
    starts: list[Start]
    ends: list[Event]

    @property
    def records(self) -> tuple[JobRecord, ...]:
        return self.loop.books.records()

    @property
    def output(self) -> tuple[tuple[JobRecord, ...], tuple[Span, ...]]:
        return self.records, tuple(self.loop.books.spans)


def check_policy(make: Callable[[], Policy], *, seeds: Sequence[int] = range(3), terms: Terms | None = None) -> None:
    """Raises AssertionError that names the seed and the job if the policy that `make` returns breaks an invariant.

    Errors of the policy itself come through: PolicyError for plans that can't be carried out.
    """
    terms = terms or Terms()
    if getattr(make(), "one_node", False):
        terms = replace(terms, gangs=False)
    for seed in seeds:
        run = _play(make(), terms, seed)
        problems = [*_unfinished(run), *_wrong_steps(run)]
        if terms.sharing == "exclusive":
            problems += [*_shared_devices(run), *_wrong_costs(run)]
        if _play(make(), terms, seed).output != run.output:
            problems.append("another run with the same seed has another result")
        if _play(_Reordering(make()), terms, seed, shuffled=True).output != run.output:
            problems.append("the result depends on the order in which jobs are listed or changes are handed over")
        assert not problems, f"seed {seed}: " + "; ".join(problems)


def _unfinished(run: _Run) -> Iterator[str]:
    statuses = {record.job_id: record.status for record in run.records}
    for spec in run.specs:
        if statuses.get(spec.job_id) != "finished":
            yield f"{spec.job_id} has not finished: {statuses.get(spec.job_id, 'it is still there')}"


def _wrong_steps(run: _Run) -> Iterator[str]:
    """Each run goes on where the last one stopped, and the last one ends with all steps."""
    done: Counter[str] = Counter()
    asked = {spec.job_id: spec.steps for spec in run.specs}
    history = sorted(
        [(start.at_ns, 1, start.job.job_id, start.steps_done) for start in run.starts]
        + [(event.at_ns, 0, event.job_id, event.steps_done) for event in run.ends]
    )
    for _, begins, job_id, steps in history:
        if begins and steps != done[job_id]:
            yield f"{job_id} went on from step {steps}, not from {done[job_id]}"
        done[job_id] = steps
    for job_id, steps in asked.items():
        if done[job_id] != steps:
            yield f"{job_id} has done {done[job_id]} of {steps} steps"


def _shared_devices(run: _Run) -> Iterator[str]:
    by_device: dict[tuple[str, int | None], list[Span]] = {}
    for span in run.loop.books.spans:
        if span.device is not None:
            by_device.setdefault((span.node, span.device), []).append(span)
    for (node, index), spans in by_device.items():
        for one, two in pairwise(sorted(spans, key=lambda span: span.start_s)):
            if two.start_s < one.end_s - _SLACK_S:
                yield f"{one.job_id} and {two.job_id} have device {index} of {node} at {two.start_s:g} s"


def _wrong_costs(run: _Run) -> Iterator[str]:
    """Of each job, the time for which it held devices: that of its steps, of its starts and of its stops."""
    held_s: defaultdict[str, float] = defaultdict(float)
    for job_id, start_s, end_s in {(span.job_id, span.start_s, span.end_s) for span in run.loop.books.spans}:
        held_s[job_id] += end_s - start_s
    costs: defaultdict[str, float] = defaultdict(float)
    for start in run.starts:
        costs[start.job.job_id] += _COSTS.begin_s(resumed=start.steps_done > 0)
    for event in run.ends:
        if event.what is Happening.STOPPED:
            costs[event.job_id] += _COSTS.release_s()
    for spec in run.specs:
        due_s = spec.steps * _STEP_S + costs[spec.job_id]
        if abs(held_s[spec.job_id] - due_s) > _SLACK_S:
            yield f"{spec.job_id} held devices for {held_s[spec.job_id]:g} s; its steps, starts and stops take {due_s:g} s"


class _Cluster(SimulatedCluster):
    """A simulated cluster that remembers starts, and ends of runs."""

    def __init__(self, truth: WorkloadTruth, costs: ClusterCosts) -> None:
        super().__init__(truth, costs)
        self.starts: list[Start] = []
        self.ends: list[Event] = []

    def start(self, start: Start) -> None:
        super().start(start)
        self.starts.append(start)

    def wait(self, until_ns: int | None) -> list[Event]:
        events = super().wait(until_ns)
        self.ends += [event for event in events if event.what in (Happening.STOPPED, Happening.FINISHED)]
        return events


class _Reversed(frozenset[str]):
    """A set that is iterated in reverse order of its names."""

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(frozenset(super().__iter__()), reverse=True))


@dataclass
class _Reordering:
    """The policy, with changes in another order."""

    policy: Policy
    needs_estimates: bool = field(init=False)
    preemptive: bool = field(init=False)

    def __post_init__(self) -> None:
        self.needs_estimates, self.preemptive = self.policy.needs_estimates, self.policy.preemptive
        self.rounds = getattr(self.policy, "rounds", None)

    def plan(self, view: ClusterView) -> Plan:
        return self.policy.plan(replace(view, changes=_Reversed(view.changes), triggers=_Reversed(view.triggers)))


def _play(policy: Policy, terms: Terms, seed: int, *, shuffled: bool = False) -> _Run:
    cluster, specs = _nodes(terms), _jobs(terms, seed)
    truth = WorkloadTruth(Workload("invariants", specs, ProfileTable.bundled()), cluster)
    simulated = _Cluster(truth, cluster.costs)
    listed = list(specs)
    if shuffled:
        Random(f"{seed}/order").shuffle(listed)
    loop = SchedulerLoop(simulated, cluster, policy, parse_estimates("oracle", truth, seed), listed)
    loop.run()
    return _Run(specs, loop, simulated.starts, simulated.ends)


def _nodes(terms: Terms) -> ClusterSpec:
    memories = terms.memory_gib * max(terms.nodes)
    nodes = [
        NodeSpec(
            f"node-{number}",
            gpus * 4_000,
            gpus * 32 * GIB,
            tuple(Device(f"node-{number}", i, "Tesla-T4", memories[i] * GIB) for i in range(gpus)),
            sharing=terms.sharing,
            nvlink=nvlink_domains(f"node-{number}", gpus, min(gpus, terms.nvlink_domain), ""),
        )
        for number, gpus in enumerate(terms.nodes)
    ]
    return ClusterSpec(tuple(nodes), _COSTS)


def _jobs(terms: Terms, seed: int) -> tuple[JobSpec, ...]:
    """Jobs of whole steps; several are submitted at the same instant, and some ends fall on others."""
    random = Random(f"{seed}/invariants")
    jobs, at_s = [], 0.0
    for row in range(terms.jobs):
        at_s += random.choice([0.0, 0.0, 5.0, random.uniform(0, 40)])
        gpus = random.choice(terms.gpus)
        tasks = 2 if terms.gangs and gpus > 1 and random.random() < 0.4 else 1
        steps = random.choice([20, 40, round(8 * 100 ** random.random())])
        memory = 0
        if len(terms.memory_gib) > 1:
            memory = random.choice(terms.memory_gib) if gpus == 1 else min(terms.memory_gib)
        wanted = Configuration(
            *("gpu", gpus // tasks, 1000 * gpus // tasks),
            device_memory_bytes=memory * GIB * 9 // 10,  # a context takes some of it
            min_tasks=tasks,
            max_tasks=tasks,
            parallelism=Parallelism(2 if terms.nvlink_domain and gpus // tasks > 1 else 1),
        )
        work = {"gpu": TimedWork(steps * _STEP_S)}
        jobs.append(JobSpec(f"job-{row}", random.choice("ab"), to_s(round(at_s * 1e9)), steps, (wanted,), work, row))
    return tuple(jobs)
