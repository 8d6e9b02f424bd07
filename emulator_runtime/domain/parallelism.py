"""How one replica of a language model is divided over GPUs, and how its step time changes with the number of replicas."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Parallelism:
    """Tensor, pipeline and data parallel training (Narayanan et al., SC'21).

    `tensor`: GPUs over which each layer is divided; they are on one node, whose links they need in each layer. `pipeline`: stages
    that the layers are divided into. The GPUs that remain are replicas, and share the `microbatches` of each step (0: not known).
    Example: 64 GPUs with tensor 8 and pipeline 2 are four replicas; of 32 microbatches each has 8.
    """

    tensor: int = 1
    pipeline: int = 1
    microbatches: int = 0

    @property
    def gpus(self) -> int:
        """GPUs of one replica."""
        return self.tensor * self.pipeline

    def slots(self, gpus: int) -> int:
        """How long a step takes on so many GPUs, in times of one microbatch in one stage.

        A replica with m microbatches and p stages needs m + p - 1 of them: the pipeline fills and drains (section 2.2.1). The
        replica with most microbatches sets the pace.
        """
        return -(-self.microbatches * self.gpus // gpus) + self.pipeline - 1


DATA_PARALLEL = Parallelism()
