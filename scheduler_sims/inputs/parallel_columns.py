"""The columns of a workload that say how a language model is divided over a job's GPUs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from emulator_runtime.domain.errors import InputError
from emulator_runtime.domain.parallelism import Parallelism

COLUMNS = {
    "tensor_parallel": "GPUs of one node over which each layer of a model is divided (default 1), beside gpu_duration_s",
    "pipeline_parallel": "stages that the model's layers are divided into (default 1); replicas share what num_gpus are more",
    "microbatches": "microbatches of a step on all replicas together; from them follows the duration on min_gpus to max_gpus",
}


@dataclass(frozen=True, slots=True)
class Numbers:
    """GPUs and nodes of a row: as submitted, and the range that a policy may choose from."""

    gpus: int
    nodes: int
    least: int
    most: int


def parallelism(whole: Callable[..., int], numbers: Numbers, place: str) -> Parallelism:
    """How the model is divided. `whole(column, default, least=)`: a whole number of the row; `place`: the row.

    Raises InputError if the row's GPUs aren't whole replicas, or if a replica has no microbatch.
    """
    tensor, pipeline = (whole(column, 1, least=1) for column in ("tensor_parallel", "pipeline_parallel"))
    found = Parallelism(tensor, pipeline, whole("microbatches", 0, least=1))
    each = numbers.gpus // numbers.nodes
    if each % tensor:
        problem = f"{tensor} GPUs of one node share each layer, and the {each} GPUs of a node are no multiple of it"
        raise InputError(f"{place}: tensor_parallel", problem)
    for column, gpus in (("num_gpus", numbers.gpus), ("min_gpus", numbers.least), ("max_gpus", numbers.most)):
        if gpus % found.gpus:
            problem = (
                f"{gpus} GPUs are no multiple of a replica's {tensor} x {pipeline} (tensor_parallel, pipeline_parallel)"
            )
            raise InputError(f"{place}: {column}", problem)
    if found.microbatches and found.microbatches * found.gpus < numbers.most:
        replicas = numbers.most // found.gpus
        problem = (
            f"{found.microbatches} are too few for {replicas} replicas of {found.gpus} GPUs; each needs at least one"
        )
        raise InputError(f"{place}: microbatches", problem)
    return found
