"""Pollux (Qiao et al., OSDI 2021): GPUs, nodes and batch sizes of elastic jobs, chosen together for the fairest goodput."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from math import inf
from typing import TYPE_CHECKING, Any, ClassVar

from emulator_runtime.domain.errors import InputError, PolicyError
from emulator_runtime.domain.job import Configuration
from emulator_runtime.domain.parallelism import DATA_PARALLEL
from scheduler_sims.interface.plan import Allocation
from scheduler_sims.interface.view import ClusterView, JobView, Phase
from scheduler_sims.policies.goodput.elastic_rounds import ElasticRounds, RoundMemory
from scheduler_sims.policies.goodput.shapes import (
    Pool,
    Shape,
    can_have,
    elastic_configuration,
    held,
    imagined,
    kept,
    most_on_one_gpu,
    pools,
    shape_of,
    working,
)
from scheduler_sims.policies.option_values import checked_seconds
from scheduler_sims.policies.placing import FreeSpace

if TYPE_CHECKING:
    from scheduler_sims.policies.goodput.speeds import Batches, Speeds

MOST_GPUS = 64
"""Pollux's simulator gives no job more."""
_KEPT = 20
"""Plans of the last search that the next one begins with; Pollux keeps all 100."""

_Observed = tuple[int, int, int, float, float]
"""Nodes, GPUs, samples on each GPU, seconds of a step, and of its computation."""
_Seats = tuple[tuple[str, int], ...]
"""Nodes, and how many of their GPUs."""


@dataclass(frozen=True, slots=True)
class Memory(RoundMemory):
    """The state. `observed`: what each job has run with; `fitted`: parameters of its speed; `plans`: best of the last search."""

    observed: Mapping[str, tuple[_Observed, ...]] = field(default_factory=dict)
    fitted: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    plans: tuple[Mapping[str, _Seats], ...] = ()


class Pollux(ElasticRounds[Memory]):
    """A genetic search every `round_s` for the plan with the highest harmonic mean of the jobs' speed-ups in goodput.

    Goodput is throughput times statistical efficiency. The throughput model of a job is fitted to the placements that it has
    run with, and takes others for as good as they could be; a job gets at most twice as many GPUs as it has run with, so that it
    is explored step by step. A job that would be moved counts less, by the time of its restarts (`restart_s` each). A plan has at
    most one job on each node that is spread over several.
    `noise_scale`: gradient noise scale in samples, of all jobs; 0: the batch size stays as submitted. A policy of your own may
    derive from Pollux and say it by job (`noise_scale_of`). A running job keeps its batch size until it is moved.
    `population` plans are searched for `generations`. One GPU type only; `seed` is that of the search.
    """

    name: ClassVar[str] = "pollux"

    def __init__(
        self,
        noise_scale: float = 0.0,
        round_s: float = 60.0,
        restart_s: float = 30.0,
        population: int = 100,
        generations: int = 100,
        seed: int = 0,
    ) -> None:
        super().__init__(round_s)
        self.restart_s = checked_seconds("pollux: restart_s", restart_s)
        for name, value, least in (("population", population, 2), ("generations", generations, 0)):
            if not least <= value <= 10_000:
                raise InputError(f"pollux: {name}", f"must be from {least} to 10000, not {value!r}")
        if not noise_scale >= 0:
            raise InputError("pollux: noise_scale", f"must be >= 0 samples, not {noise_scale!r}")
        self.noise_scale, self.seed = noise_scale, seed
        self.population, self.generations = population, generations
        _arrays("speeds"), _arrays("genetic")

    def noise_scale_of(self, view: ClusterView, job: JobView) -> float:
        """The gradient noise scale of a job at its present state of training, in samples; 0: its batch size stays."""
        return self.noise_scale

    def _first(self) -> Memory:
        return Memory()

    def _described(self, view: ClusterView, job_id: str, allocation: Allocation) -> str:
        batch = allocation.batch_size or view.jobs[job_id].batch_size
        return f"{allocation.gpus} GPUs of {len(allocation.tasks)} nodes, {batch} samples a step"

    def _begin(self, view: ClusterView, last: Memory, number: int) -> Memory:
        pool = _only_pool(view)
        if pool is None:
            return replace(last, round=number, targets={})
        jobs = sorted(view.jobs.values(), key=lambda job: (view.attained_gpu_s(job), job.order))
        observed = {job.job_id: self._observed(view, job, last) for job in jobs}
        fitted = {j: last.fitted.get(j, ()) for j in observed if observed[j] == last.observed.get(j, ())}
        for job_id in observed.keys() - fitted.keys():
            fitted[job_id] = _fitted(observed[job_id])
        candidates = [
            _Candidate(job, _data_parallel(view, job), observed[job.job_id], fitted[job.job_id]) for job in jobs
        ]
        plans = self._searched(view, pool, candidates, last, number)
        targets = self._placed(view, pool, candidates, plans[0])
        return Memory(number, targets, observed, fitted, plans)

    def _observed(self, view: ClusterView, job: JobView, last: Memory) -> tuple[_Observed, ...]:
        """What the job has run with until now."""
        before = last.observed.get(job.job_id, ())
        allocation = held(job)
        if allocation is None or job.phase is not Phase.RUNNING:
            return before
        shape = shape_of(allocation)
        each = -(-(allocation.batch_size or job.batch_size) // shape.gpus)
        if any(known[:3] == (shape.nodes, shape.gpus, each) for known in before):
            return before
        alone = imagined(_data_parallel(view, job), replace(shape, gpus=1, nodes=1), each)
        step_s = 1 / view.estimates.rate(job, allocation)
        compute_s = min(step_s, 1 / view.estimates.rate(job, alone))
        return (*before, (shape.nodes, shape.gpus, each, step_s, compute_s))

    def _searched(
        self, view: ClusterView, pool: Pool, candidates: Sequence[_Candidate], last: Memory, number: int
    ) -> tuple[Mapping[str, _Seats], ...]:
        """The best plans, the very best first."""
        np, genetic = import_module("numpy"), _arrays("genetic")
        names, jobs = list(pool.gpus), [c.job.job_id for c in candidates]
        total = sum(pool.gpus.values())
        ages = [max(0.0, view.now_s - c.job.submit_s) for c in candidates]
        restart = [
            max(0.0, age - c.job.preemptions * self.restart_s) / (age + self.restart_s)
            if age + self.restart_s > 0
            else 1.0
            for age, c in zip(ages, candidates, strict=True)
        ]
        most = [c.most_gpus(total) for c in candidates]
        nodes = [min(c.configuration.max_tasks, len(names)) for c in candidates]
        problem = genetic.Search(
            speedups=np.stack(
                [
                    self._speedups(view, pool, candidate, (max(nodes), max(most)), limits)
                    for candidate, limits in zip(candidates, zip(nodes, most, strict=True), strict=True)
                ]
            ),
            capacity=np.array(list(pool.gpus.values())),
            present=_matrix([_seats(view, c.job) for c in candidates], names),
            most_gpus=np.array(most),
            most_nodes=np.array(nodes),
            restart=np.array(restart),
            scale=len(names) / total,
        )
        first = [_matrix([plan.get(job, ()) for job in jobs], names) for plan in last.plans]
        random = np.random.default_rng([self.seed, number])
        found = genetic.search(
            problem,
            np.stack(first) if first else np.zeros((0, len(jobs), len(names)), dtype=np.int16),
            random,
            self.population,
            self.generations,
        )
        return tuple(
            {job: tuple((names[n], int(row[n])) for n in row.nonzero()[0]) for job, row in zip(jobs, plan, strict=True)}
            for plan in found[:_KEPT]
        )

    def _speedups(
        self, view: ClusterView, pool: Pool, candidate: _Candidate, size: tuple[int, int], limits: tuple[int, int]
    ) -> Any:
        """Goodput by nodes and GPUs relative to that of an equal part of the cluster; 0 where the job can't run.

        `size`: the most nodes and GPUs of the table; `limits`: of this job.
        """
        np = import_module("numpy")
        table, (most_nodes, most_gpus) = np.zeros((size[0] + 1, size[1] + 1)), limits
        fair = max(1, -(-sum(pool.gpus.values()) // len(view.jobs)))
        shapes = [
            shape
            for nodes in range(1, most_nodes + 1)
            for gpus in range(nodes, min(most_gpus, nodes * pool.largest) + 1)
            if can_have(candidate.configuration, shape := Shape(gpus, nodes, pool.gpu_type))
        ]
        if not shapes:
            return table
        nodes, gpus = (np.array([getattr(s, name) for s in shapes], dtype=float) for name in ("nodes", "gpus"))
        if candidate.speeds is None:
            table[nodes.astype(int), gpus.astype(int)] = gpus / fair
            return table
        speeds = _arrays("speeds")
        batches, noise = self._batches(view, candidate)
        goodput = speeds.best(candidate.speeds, batches, noise, nodes, gpus).goodput
        within = min(fair, batches.most // batches.least_each)
        base = speeds.best(candidate.speeds, batches, noise, np.ones(1), np.full(1, float(within))).goodput[0]
        known = (
            base > 0 and goodput.any()
        )  # not for a job with fewer samples in a step than GPUs, such as one without a model
        table[nodes.astype(int), gpus.astype(int)] = goodput / base if known else gpus / fair
        return table

    def _batches(self, view: ClusterView, candidate: _Candidate) -> tuple[Batches, float]:
        """The batch sizes that the job may have, and its noise scale."""
        job, configuration = candidate.job, candidate.configuration
        noise, each = self.noise_scale_of(view, job), most_on_one_gpu(configuration, job)
        most = each * (configuration.gpu_range.stop - 1) if noise > 0 else job.batch_size
        batches: Batches = _arrays("speeds").Batches(job.batch_size, max(most, job.batch_size), 1, each)
        return batches, noise or inf

    def _placed(
        self, view: ClusterView, pool: Pool, candidates: Sequence[_Candidate], plan: Mapping[str, _Seats]
    ) -> dict[str, Allocation]:
        """The plan on devices. Jobs whose nodes and GPUs stay the same stay on theirs."""
        space, placed, rest = FreeSpace.empty(view), dict[str, Allocation](), list[_Candidate]()
        devices = working(view)
        for candidate in candidates:
            job, allocation = candidate.job, kept(candidate.job, devices)
            if allocation and _seats(view, job) == plan[job.job_id]:
                space.take(allocation)
                placed[job.job_id] = allocation
            elif plan[job.job_id]:
                rest.append(candidate)
        for candidate in rest:
            seats = plan[candidate.job.job_id]
            shape = Shape(sum(gpus for _, gpus in seats), len(seats), pool.gpu_type)
            if not can_have(candidate.configuration, shape):
                continue
            one = replace(candidate.configuration.with_gpus(shape.gpus, shape.nodes), min_tasks=1, max_tasks=1)
            parts = [space.place(one, node=name) for name, _ in seats]
            found = [part for part in parts if part is not None]
            if len(found) < len(seats):
                for part in found:
                    space.release(part)
                continue
            tasks = tuple(task for part in found for task in part.tasks)
            batch_size = self._batch_size(view, candidate, shape)
            placed[candidate.job.job_id] = Allocation(one.name, tasks, batch_size)
        return placed

    def _batch_size(self, view: ClusterView, candidate: _Candidate, shape: Shape) -> int:
        """The batch size with the best goodput on a shape; 0: as submitted."""
        if candidate.speeds is None or not self.noise_scale_of(view, candidate.job):
            return 0
        np = import_module("numpy")
        batches, noise = self._batches(view, candidate)
        best = _arrays("speeds").best(
            candidate.speeds, batches, noise, np.full(1, float(shape.nodes)), np.full(1, float(shape.gpus))
        )
        return int(best.each[0]) * shape.gpus if best.goodput[0] > 0 else 0


@dataclass(frozen=True)
class _Candidate:
    """A job with what is known of its speed."""

    job: JobView
    configuration: Configuration
    observed: tuple[_Observed, ...]
    fitted: tuple[float, ...]

    @property
    def speeds(self) -> Speeds | None:
        """The fitted model; None before the job has run."""
        if not self.fitted:
            return None
        speeds: Speeds = _arrays("speeds").Speeds(*self.fitted)
        return speeds

    def most_gpus(self, total: int) -> int:
        """Twice as many as it has run with, at least as many as it needs."""
        explored = max(2 * max((known[1] for known in self.observed), default=0), 1)
        numbers = self.configuration.gpu_range
        return min(max(explored, numbers.start), MOST_GPUS, numbers.stop - 1, total)


def _data_parallel(view: ClusterView, job: JobView) -> Configuration:
    """Its configuration on GPUs. Raises PolicyError for a model that is divided over GPUs."""
    configuration = elastic_configuration(view, job, "pollux")
    if configuration.parallelism != DATA_PARALLEL:
        raise PolicyError(
            f"pollux: the model of job {job.job_id!r} is divided over GPUs (tensor_parallel, pipeline_parallel, microbatches), "
            "and Pollux's speeds are of data parallel jobs with a batch size; use sia or optimus"
        )
    return configuration


def _only_pool(view: ClusterView) -> Pool | None:
    """The nodes with healthy GPUs. Raises PolicyError where their types differ."""
    found = pools(view)
    if len(found) > 1:
        raise PolicyError(
            f"pollux: the cluster has {found[0].gpu_type} and {found[1].gpu_type}; Pollux knows one GPU type, use sia"
        )
    return found[0] if found else None


def _seats(view: ClusterView, job: JobView) -> _Seats:
    """Where the job is, in the order of the view's nodes."""
    allocation = held(job)
    counts = {task.node: len(task.shares) for task in allocation.tasks} if allocation else {}
    return tuple((name, counts[name]) for name in view.nodes if name in counts)


def _matrix(rows: Sequence[_Seats], names: Sequence[str]) -> Any:
    np = import_module("numpy")
    matrix, index = np.zeros((len(rows), len(names)), dtype=np.int16), {name: n for n, name in enumerate(names)}
    for number, row in enumerate(rows):
        for name, gpus in row:
            if name in index:
                matrix[number, index[name]] = gpus
    return matrix


def _fitted(observed: tuple[_Observed, ...]) -> tuple[float, ...]:
    if not observed:
        return ()
    speeds = _arrays("speeds")
    found: Speeds = speeds.fit([speeds.Observation(*known) for known in observed])
    return (
        *(found.compute_s, found.compute_s_per_sample, found.between_s, found.between_s_per_gpu),
        *(found.within_s, found.within_s_per_gpu, found.overlap),
    )


def _arrays(name: str) -> Any:
    """A module of this room that needs NumPy and SciPy, which are loaded only for a policy that is used."""
    try:
        return import_module(f"scheduler_sims.policies.goodput.{name}")
    except ImportError as error:
        raise PolicyError("pollux needs NumPy and SciPy: pip install 'emugpu[scheduler]'") from error
