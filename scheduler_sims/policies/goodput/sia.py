"""Sia (Jayaram Subramanya et al., SOSP 2023): elastic jobs on several GPU types, one integer program for each round."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from itertools import product
from math import inf
from typing import Any, ClassVar

from emulator_runtime.domain.errors import InputError, PolicyError
from emulator_runtime.domain.job import Configuration
from scheduler_sims.interface.plan import Allocation
from scheduler_sims.interface.view import ClusterView, JobView, Phase
from scheduler_sims.policies.goodput.elastic_rounds import ElasticRounds, RoundMemory
from scheduler_sims.policies.goodput.shapes import (
    Pool,
    Shape,
    can_have,
    elastic_configuration,
    has_room,
    imagined,
    kept,
    most_on_one_gpu,
    pools,
    seated,
    shape_of,
    with_shape,
    working,
)
from scheduler_sims.policies.option_values import checked_seconds
from scheduler_sims.policies.placing import FreeSpace

MOST_GPUS = 64
_MOST_COST = 3000.0
_BATCHES = 8
"""Batch sizes that are tried on a shape: the submitted one times powers of 2."""

_Goodput = tuple[float, int]
"""Samples of the submitted batch size per second, and the batch size (0: as submitted)."""


@dataclass(frozen=True, slots=True)
class Memory(RoundMemory):
    """The state. `most_gpus`: that each job has run with; `goodput`: by job and shape, in the order of `shapes`."""

    most_gpus: Mapping[str, int] = field(default_factory=dict)
    shapes: tuple[Shape, ...] = ()
    goodput: Mapping[str, tuple[_Goodput, ...]] = field(default_factory=dict)


class Sia(ElasticRounds[Memory]):
    """Each round of `round_s` every job gets one configuration of GPU type and number, or waits.

    Configurations are 1, 2, 4, ... GPUs of one node, and whole nodes; for a job that can have none of these, what it was
    submitted with. A job's goodput with each of them, relative to its slowest one, to the power `power`, is a cost, plus
    `penalty` for each waiting job; a configuration other than the present one counts less, by the time of restarts (`restart_s`
    each). A job gets at most twice as many GPUs as it has run with. A job that isn't elastic may get another GPU type.
    `noise_scale`: gradient noise scale in samples, of all jobs; 0: batch sizes stay as submitted; a policy of your own may derive
    from Sia and say it by job (`noise_scale_of`). Sia learns speeds by running; here they come from the estimates (`fidelity`: of
    the paper's program, not of its estimators).
    """

    name: ClassVar[str] = "sia"

    def __init__(
        self,
        noise_scale: float = 0.0,
        round_s: float = 60.0,
        restart_s: float = 30.0,
        power: float = -0.5,
        penalty: float = 1.1,
    ) -> None:
        super().__init__(round_s)
        self.restart_s = checked_seconds("sia: restart_s", restart_s)
        if not -10 <= power < 0:
            raise InputError("sia: power", f"must be below 0, at least -10, not {power!r}")
        if not penalty >= 0 or not noise_scale >= 0:
            raise InputError("sia: penalty, noise_scale", f"must be >= 0, not {penalty!r} and {noise_scale!r}")
        self.noise_scale, self.power, self.penalty = noise_scale, power, penalty
        _program()

    def noise_scale_of(self, view: ClusterView, job: JobView) -> float:
        """The gradient noise scale of a job at its present state of training, in samples; 0: its batch size stays."""
        return self.noise_scale

    def _first(self) -> Memory:
        return Memory()

    def _described(self, view: ClusterView, job_id: str, allocation: Allocation) -> str:
        return f"{allocation.gpus} x {allocation.gpu_type} on {len(allocation.tasks)} nodes"

    def _begin(self, view: ClusterView, last: Memory, number: int) -> Memory:
        found = pools(view)
        jobs = list(view.jobs.values())
        common = [shape for pool in found for shape in _shapes(pool)]
        able = _able(view, found, common)
        shapes = tuple(dict.fromkeys((*common, *(shape for own in able.values() for shape in own))))
        known = last.goodput if shapes == last.shapes and not self._by_job() else {}
        goodput = {job.job_id: known.get(job.job_id) or self._goodputs(view, job, shapes, able) for job in jobs}
        most = {job.job_id: _most(job, last.most_gpus.get(job.job_id, 0)) for job in jobs}
        choices, chosen = self._choices(view, jobs, shapes, goodput, most), {}
        program = _program()
        if choices:
            costs = [each.cost for each in choices]
            kinds = [pool.gpu_type for pool in found]
            picked = program.choose(
                [
                    program.Choice(each.row, cost, kinds.index(each.shape.gpu_type), each.shape.gpus)
                    for each, cost in zip(choices, costs, strict=True)
                ],
                len(jobs),
                [sum(pool.gpus.values()) for pool in found],
                self.penalty,
            )
            chosen = {jobs[choices[index].row].job_id: choices[index] for index in picked}
        targets = self._seated(view, chosen, shapes, goodput)
        return Memory(number, targets, most, shapes, goodput)

    def _by_job(self) -> bool:
        """Whether noise scales may change while jobs train."""
        return type(self).noise_scale_of is not Sia.noise_scale_of

    def _goodputs(
        self,
        view: ClusterView,
        job: JobView,
        shapes: Sequence[Shape],
        able: Mapping[Configuration, Sequence[Shape]],
    ) -> tuple[_Goodput, ...]:
        """The job's goodput with each shape, 0 where it can't run, at the best batch size. `able`: what each configuration can
        have."""
        configuration, noise = elastic_configuration(view, job, "sia"), self.noise_scale_of(view, job)
        each_most, result = most_on_one_gpu(configuration, job), []
        for shape in shapes:
            if shape not in able[configuration]:
                result.append((0.0, 0))
                continue
            sizes = [0]
            if noise > 0 and not configuration.parallelism.microbatches:
                larger = (job.batch_size << doubled for doubled in range(1, _BATCHES))
                sizes += [size for size in larger if size <= each_most * shape.gpus]
            options = []
            for size in sizes:
                samples = size or job.batch_size
                rate = view.estimates.rate(job, imagined(configuration, shape, size)) * samples
                options.append((rate * (noise + job.batch_size) / (noise + samples) if noise else rate, size))
            result.append(max(options, key=lambda option: option[0]))
        return tuple(result)

    def _choices(
        self,
        view: ClusterView,
        jobs: Sequence[JobView],
        shapes: Sequence[Shape],
        goodput: Mapping[str, Sequence[_Goodput]],
        most: Mapping[str, int],
    ) -> list[_Choice]:
        choices, devices = [], working(view)
        for row, job in enumerate(jobs):
            speeds = goodput[job.job_id]
            able = [i for i, shape in enumerate(shapes) if speeds[i][0] > 0]
            if not able:
                continue
            smallest = min(able, key=lambda i: (speeds[i][0], i))
            limit = max(min(2 * most[job.job_id], MOST_GPUS), min(shapes[i].gpus for i in able))
            allocation = kept(job, devices)
            present = shape_of(allocation) if allocation else None
            age_s = max(0.0, view.now_s - job.submit_s)
            moved = max(age_s - job.preemptions * self.restart_s, 0.0) / (age_s + self.restart_s or 1.0)
            moved = 1.0 if age_s < self.restart_s else moved
            scale = shapes[smallest].gpus / speeds[smallest][0]
            for i in able:
                if shapes[i].gpus > limit:
                    continue
                value = speeds[i][0] * scale * (1.0 if shapes[i] == present or present is None else moved)
                cost = min(round(value**self.power, 2), _MOST_COST) if value > 0 else inf
                if cost < inf:
                    choices.append(_Choice(row, shapes[i], cost, i))
        return choices

    def _seated(
        self,
        view: ClusterView,
        chosen: Mapping[str, _Choice],
        shapes: Sequence[Shape],
        goodput: Mapping[str, Sequence[_Goodput]],
    ) -> dict[str, Allocation]:
        keep, wanted, devices = [], {}, working(view)
        for job_id, choice in chosen.items():
            job = view.jobs[job_id]
            allocation = kept(job, devices)
            if allocation and shape_of(allocation) == choice.shape:
                keep.append(job_id)
            batch_size = goodput[job_id][choice.index][1]
            wanted[job_id] = (with_shape(elastic_configuration(view, job, "sia"), choice.shape), batch_size)
        placed = seated(view, wanted, keep)
        if len(placed) < len(chosen):
            self._seat_rest(view, placed, chosen, shapes, goodput)
        return placed

    def _seat_rest(
        self,
        view: ClusterView,
        placed: dict[str, Allocation],
        chosen: Mapping[str, _Choice],
        shapes: Sequence[Shape],
        goodput: Mapping[str, Sequence[_Goodput]],
    ) -> None:
        """The program counts the GPUs of a type, not those of nodes: a job without room for its choice keeps what it has, or gets
        the best of its smaller shapes for which there is room."""
        space, devices = FreeSpace.empty(view), working(view)
        for allocation in placed.values():
            space.take(allocation)
        for job_id, choice in chosen.items():
            if job_id in placed:
                continue
            job, speeds = view.jobs[job_id], goodput[job_id]
            held = kept(job, devices)
            if held is not None and space.takes(held):
                placed[job_id] = held
                continue
            smaller = [i for i, shape in enumerate(shapes) if speeds[i][0] > 0 and shape.gpus < choice.shape.gpus]
            for i in sorted(smaller, key=lambda i: (-speeds[i][0], i)):
                found = space.place(with_shape(elastic_configuration(view, job, "sia"), shapes[i]))
                if found is not None:
                    placed[job_id] = replace(found, batch_size=speeds[i][1])
                    break


@dataclass(frozen=True, slots=True)
class _Choice:
    row: int
    shape: Shape
    cost: float
    index: int


def _shapes(pool: Pool) -> list[Shape]:
    """1, 2, 4, ... GPUs of one node, then two and more whole nodes."""
    shapes, gpus = [], 1
    while gpus <= pool.largest:
        shapes.append(Shape(gpus, 1, pool.gpu_type))
        gpus *= 2
    whole = sum(count == pool.largest for count in pool.gpus.values())
    return shapes + [Shape(nodes * pool.largest, nodes, pool.gpu_type) for nodes in range(2, whole + 1)]


def _able(view: ClusterView, found: Sequence[Pool], common: Sequence[Shape]) -> Mapping[Configuration, Sequence[Shape]]:
    """The shapes that each configuration can have: of the common ones; if none of them, what it was submitted with, or the most
    GPUs for which there is room in the empty cluster, on each GPU type."""
    able: dict[Configuration, Sequence[Shape]] = {}
    space: FreeSpace | None = None
    for one in dict.fromkeys(elastic_configuration(view, job, "sia") for job in view.jobs.values()):
        able[one] = [shape for shape in common if has_room(view, one, shape)]
        if not able[one]:
            space = space or FreeSpace.empty(view)
            numbers = [(one.total_gpus, one.min_tasks), *product(reversed(one.gpu_range), one.task_range)]
            able[one] = [shape for pool in found if (shape := _first_with_room(space, one, numbers, pool.gpu_type))]
    return able


def _first_with_room(
    space: FreeSpace, configuration: Configuration, numbers: Iterable[tuple[int, int]], gpu_type: str
) -> Shape | None:
    shapes = (Shape(gpus, nodes, gpu_type) for gpus, nodes in numbers)
    able = (shape for shape in shapes if can_have(configuration, shape))
    return next((shape for shape in able if space.fits_after(with_shape(configuration, shape), [])), None)


def _most(job: JobView, before: int) -> int:
    """The most GPUs that the job has run with."""
    return max(before, job.allocation.gpus if job.allocation and job.phase is Phase.RUNNING else 0)


def _program() -> Any:
    """The integer program; HiGHS is loaded only for a policy that is used."""
    try:
        return import_module("scheduler_sims.policies.goodput.programs")
    except ImportError as error:
        raise PolicyError("sia needs NumPy and highspy: pip install 'emugpu[scheduler]'") from error
