"""The columns of a workload that say how a language model is divided over a job's GPUs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from emulator_runtime.domain.errors import InputError
from emulator_runtime.domain.parallelism import Parallelism

COLUMNS = {
    "tensor_parallel": "GPUs, joined by NVLink, over which each layer of a model is divided (default 1), beside gpu_duration_s",
    "pipeline_parallel": "stages that the model's layers are divided into (default 1); replicas share what num_gpus are more",
    "microbatches": "microbatches of a step on all replicas together; from them follows the duration on min_gpus to max_gpus",
}


@dataclass(frozen=True, slots=True)
class GpuRange:
    """GPUs and nodes of a row: as submitted, and the range that a policy may choose from."""

    gpus: int
    nodes: int
    least: int
    most: int
    node_range: range


def parallelism(whole: Callable[..., int], gpu_range: GpuRange, place: str) -> Parallelism:
    """How the model is divided. `whole(column, default, least=)`: a whole number of the row; `place`: the row.

    Raises InputError if the row's GPUs aren't whole replicas, or if a replica has no microbatch.
    """
    tensor, pipeline = (whole(column, 1, least=1) for column in ("tensor_parallel", "pipeline_parallel"))
    divided = Parallelism(tensor, pipeline, whole("microbatches", 0, least=1))
    each = gpu_range.gpus // gpu_range.nodes
    if each % tensor and tensor % each:
        problem = f"{tensor} GPUs share each layer, and the {each} GPUs of a node are no multiple and no part of it"
        raise InputError(f"{place}: tensor_parallel", problem)
    for column, gpus in (("num_gpus", gpu_range.gpus), ("min_gpus", gpu_range.least), ("max_gpus", gpu_range.most)):
        if gpus % divided.gpus:
            problem = (
                f"{gpus} GPUs are no multiple of a replica's {tensor} x {pipeline} (tensor_parallel, pipeline_parallel)"
            )
            raise InputError(f"{place}: {column}", problem)
    for column, gpus in (("min_gpus", gpu_range.least), ("max_gpus", gpu_range.most)):
        if not any(divided.runs_on(gpus, nodes, each) for nodes in gpu_range.node_range):
            problem = f"{gpus} GPUs can't be split over {list(gpu_range.node_range)} nodes with {tensor} for each layer"
            raise InputError(f"{place}: {column}", problem)
    if divided.microbatches and divided.microbatches * divided.gpus < gpu_range.most:
        replicas = gpu_range.most // divided.gpus
        problem = f"{divided.microbatches} are too few for {replicas} replicas of {divided.gpus} GPUs; each needs at least one"
        raise InputError(f"{place}: microbatches", problem)
    return divided
