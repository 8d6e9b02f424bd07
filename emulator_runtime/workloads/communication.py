"""What data parallel training pays for exchanging gradients, since the profiles were measured on one GPU.

No measured table of several GPUs or nodes is published with the profiles (the GPEmu paper, PVLDB 18(6) 2025, mentions
them; its repository has none), so this is a model, and every figure in it has its source here:

- A ring all-reduce sends 2 (n - 1) / n times the gradients over each link (Patarasuk and Yuan, J. Parallel Distrib.
  Comput. 69(2) 2009; NVIDIA's nccl-tests, doc/PERFORMANCE.md, divides by the same factor to get the bus bandwidth).
  Its time is that over the slowest link of the ring; the latency of its 2 (n - 1) messages is left out.
- Within a node the link is the GPU type's peer link, one direction; where it has none, peers go through the host.
- Between nodes each node has one network link, 10 Gbit/s each way unless told otherwise: what one flow between cloud
  instances of one placement group reaches (Amazon EC2 User Guide, "Amazon EC2 instance network bandwidth").
- DistributedDataParallel starts the all-reduce of a bucket of gradients when the backward pass has filled it, 25 MiB by
  default (Li et al., "PyTorch Distributed", PVLDB 13(12) 2020, section 3.2.3). DataParallel exchanges after the backward
  pass.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from emulator_runtime.domain.units import MIB

BUCKET_BYTES = 25 * MIB
DEFAULT_NETWORK_GBPS = 10.0


@dataclass(frozen=True, slots=True)
class Links:
    """What the ring runs over. Bandwidths are bytes per second, one direction; `gpus` counts those of all nodes."""

    gpus: int
    nodes: int
    peer_bytes_per_s: float
    network_bytes_per_s: float

    @property
    def slowest_bytes_per_s(self) -> float:
        """The ring's narrowest link: with several nodes it passes through the network."""
        if self.nodes == 1:
            return self.peer_bytes_per_s
        if self.gpus == self.nodes:  # one GPU each: the ring uses no peer link
            return self.network_bytes_per_s
        return min(self.peer_bytes_per_s, self.network_bytes_per_s)


def all_reduce_s(gradient_bytes: int, links: Links) -> float:
    """Time of one ring all-reduce of all gradients, seconds."""
    if links.gpus == 1:
        return 0.0
    return 2 * (links.gpus - 1) / links.gpus * gradient_bytes / links.slowest_bytes_per_s


def exposed_s(reduce_s: float, backward_s: float, gradient_bytes: int, *, overlap: bool) -> float:
    """By how much an all-reduce of `reduce_s` makes a step longer.

    With `overlap` the backward pass fills its k buckets one after the other in equal times, and they are reduced one
    after the other: either the reduction keeps up and the last bucket's share remains, or the link is busy from the
    first full bucket on.
    """
    if not overlap or not reduce_s:
        return reduce_s
    buckets = max(1, math.ceil(gradient_bytes / BUCKET_BYTES))
    end_s = max(backward_s + reduce_s / buckets, backward_s / buckets + reduce_s)
    return end_s - backward_s
