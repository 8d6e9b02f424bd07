"""Optimus (Peng et al., EuroSys 2018), as Pollux's simulator plays it: a sketch.

Source: petuum/adaptdl, branch osdi21-artifact at c793c70, simulator (module optimus). Optimus also learns how many steps a job
needs from its loss, and places parameter servers; both are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from emulator_runtime.domain.errors import PolicyError
from scheduler_sims.interface.plan import Allocation
from scheduler_sims.interface.view import ClusterView, JobView
from scheduler_sims.policies.goodput.elastic_rounds import ElasticRounds, RoundMemory
from scheduler_sims.policies.goodput.shapes import (
    Pool,
    Shape,
    elastic_configuration,
    has_room,
    imagined,
    kept,
    pools,
    seated,
    with_shape,
    working,
)


class Optimus(ElasticRounds[RoundMemory]):
    """Each round of `round_s` all jobs get their least GPUs, those with the fewest first; further ones go where they gain most.

    The gain of a GPU is the remaining time that it saves. A job whose number of GPUs stays the same stays where it is. Sketch:
    remaining times come from the estimates, one GPU type only.
    """

    name: ClassVar[str] = "optimus"

    def __init__(self, round_s: float = 60.0) -> None:
        super().__init__(round_s)

    def _first(self) -> RoundMemory:
        return RoundMemory()

    def _begin(self, view: ClusterView, last: RoundMemory, number: int) -> RoundMemory:
        return RoundMemory(number, self._divided(view))

    def _described(self, view: ClusterView, job_id: str, allocation: Allocation) -> str:
        return f"{allocation.gpus} GPUs"

    def _divided(self, view: ClusterView) -> dict[str, Allocation]:
        found = pools(view)
        if len(found) > 1:
            raise PolicyError(
                f"optimus: the cluster has {found[0].gpu_type} and {found[1].gpu_type}; the sketch knows one GPU type"
            )
        if not found:
            return {}
        pool, given = found[0], dict[str, list[Shape]]()
        free = sum(pool.gpus.values())
        for job in sorted(view.jobs.values(), key=lambda job: (self._least(view, job), job.order)):
            shapes = _sizes(view, job, pool)
            if shapes and shapes[0].gpus <= free:
                free -= shapes[0].gpus
                given[job.job_id] = shapes
        while free > 0:
            gains = {j: self._gain(view, view.jobs[j], s) for j, s in given.items() if _next_fits(s, free)}
            best = max(gains, key=gains.__getitem__, default=None)
            if best is None or gains[best] <= 0:
                break
            free -= given[best][1].gpus - given[best][0].gpus
            given[best] = given[best][1:]
        return self._seated(view, {job_id: shapes[0] for job_id, shapes in given.items()})

    def _least(self, view: ClusterView, job: JobView) -> int:
        return elastic_configuration(view, job, "optimus").gpu_range.start

    def _gain(self, view: ClusterView, job: JobView, shapes: list[Shape]) -> float:
        """The remaining time that the next shape saves, for each GPU more."""
        configuration = elastic_configuration(view, job, "optimus")
        now_s, then_s = (view.remaining_with_s(job, imagined(configuration, shape)) for shape in shapes[:2])
        return (now_s - then_s) / (shapes[1].gpus - shapes[0].gpus)

    def _seated(self, view: ClusterView, chosen: Mapping[str, Shape]) -> dict[str, Allocation]:
        keep, wanted, devices = [], {}, working(view)
        for job_id, shape in chosen.items():
            allocation = kept(view.jobs[job_id], devices)
            if allocation and allocation.gpus == shape.gpus:
                keep.append(job_id)
            wanted[job_id] = (with_shape(elastic_configuration(view, view.jobs[job_id], "optimus"), shape), 0)
        return seated(view, wanted, keep)


def _sizes(view: ClusterView, job: JobView, pool: Pool) -> list[Shape]:
    """The numbers of GPUs that the job can have, each on as few nodes as possible."""
    configuration, shapes = elastic_configuration(view, job, "optimus"), []
    for gpus in configuration.gpu_range:
        for nodes in range(-(-gpus // pool.largest), len(pool.gpus) + 1):
            if has_room(view, configuration, shape := Shape(gpus, nodes, pool.gpu_type)):
                shapes.append(shape)
                break
    return shapes


def _next_fits(shapes: list[Shape], free: int) -> bool:
    return len(shapes) > 1 and shapes[1].gpus - shapes[0].gpus <= free
