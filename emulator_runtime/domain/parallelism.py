"""How one replica of a language model is divided over GPUs, and how its step time changes with the number of replicas."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Parallelism:
    """Tensor, pipeline and data parallel training (Narayanan et al., SC'21).

    `tensor`: GPUs over which each layer is divided; NVLink must join them, since they exchange data in each layer. `pipeline`:
    stages that the layers are divided into. The GPUs that remain are replicas, and share the `microbatches` of each step (0: not
    known). Example: 64 GPUs with tensor 8 and pipeline 2 are four replicas; of 32 microbatches each has 8.
    """

    tensor: int = 1
    pipeline: int = 1
    microbatches: int = 0

    @property
    def gpus(self) -> int:
        """GPUs of one replica."""
        return self.tensor * self.pipeline

    def runs_on(self, gpus: int, nodes: int, least_per_node: int) -> bool:
        """Whether layers can be divided over `gpus` GPUs, equally many on each of `nodes` nodes.

        A node has whole layers, or an equal part of one if NVLink joins it to other nodes. With fewer GPUs on a node than
        `least_per_node`, no layer is divided over nodes. Example: tensor 8 on 2 nodes of 4 GPUs needs 4 or less.
        """
        each = gpus // nodes
        if gpus % nodes or gpus % self.tensor:
            return False
        return each % self.tensor == 0 or (self.tensor % each == 0 and each >= least_per_node)

    def layers_fit(self, domains: Iterable[str]) -> bool:
        """Whether the GPUs of each layer can be in one NVLink domain. `domains`: that of each GPU of the job."""
        return self.tensor == 1 or all(count % self.tensor == 0 for count in Counter(domains).values())

    def usable_gpus(self, domains: Iterable[str], gpus: int) -> int:
        """How many GPUs of a node a job can use that needs `gpus` there: those of whole layers, or of equal parts of them.
        `domains`: that of each GPU."""
        return whole_multiples(Counter(domains).values(), min(self.tensor, gpus) or 1)

    def nodes_per_layer(self, gpus: int) -> int:
        """Over how many nodes each layer is divided if a job has `gpus` on each."""
        return max(1, self.tensor // gpus) if gpus else 1

    def slots(self, gpus: int) -> int:
        """How long a step takes on so many GPUs, in times of one microbatch in one stage.

        A replica with m microbatches and p stages needs m + p - 1 of them: the pipeline fills and drains (section 2.2.1). The
        replica with most microbatches sets the pace.
        """
        return -(-self.microbatches * self.gpus // gpus) + self.pipeline - 1


DATA_PARALLEL = Parallelism()


def whole_multiples(counts: Iterable[int], unit: int) -> int:
    """The sum of the counts, each rounded down to a multiple of the unit."""
    return sum(count - count % unit for count in counts)
