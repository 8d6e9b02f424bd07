"""The time that data parallel training spends on exchanging gradients. The profiles don't include it (they are of one GPU).

No measurements for several GPUs or nodes are published with the profiles (the GPEmu paper, PVLDB 18(6) 2025, mentions some;
its repository has none), so this is a model. The sources of its assumptions:

- A ring all-reduce sends 2 (n - 1) / n times the gradients over each link (Patarasuk and Yuan, J. Parallel Distrib.
  Comput. 69(2) 2009; NVIDIA's nccl-tests, doc/PERFORMANCE.md, divides by the same factor to get the bus bandwidth).
  Its time is this amount divided by the bandwidth of the slowest link of the ring; the latency of its 2 (n - 1) messages is
  neglected. Example: 4 GPUs, 100 MB of gradients, 10 GB/s: 2 * 3/4 * 100 MB / 10 GB/s = 15 ms.
- Within a node, the link is the GPU type's peer link in one direction; without one, GPUs communicate through the host.
- Each node has one network link, by default 10 Gbit/s in each direction: the maximum of a single flow between cloud
  instances of one placement group (Amazon EC2 User Guide, "Amazon EC2 instance network bandwidth").
- DistributedDataParallel starts the all-reduce of a bucket of gradients (25 MiB by default) when the backward pass has
  filled it (Li et al., "PyTorch Distributed", PVLDB 13(12) 2020, section 3.2.3). DataParallel exchanges all gradients after
  the backward pass.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from emulator_runtime.domain.units import MIB

BUCKET_BYTES = 25 * MIB
DEFAULT_NETWORK_GBPS = 10.0


@dataclass(frozen=True, slots=True)
class Links:
    """The links of the ring. Bandwidths are bytes per second in one direction; `gpus` is the total of all nodes."""

    gpus: int
    nodes: int
    peer_bytes_per_s: float
    network_bytes_per_s: float

    @property
    def slowest_bytes_per_s(self) -> float:
        """The bandwidth of the slowest link of the ring. With several nodes, the ring includes network links."""
        if self.nodes == 1:
            return self.peer_bytes_per_s
        if self.gpus == self.nodes:  # one GPU per node: the ring has no peer link
            return self.network_bytes_per_s
        return min(self.peer_bytes_per_s, self.network_bytes_per_s)


def all_reduce_s(gradient_bytes: int, links: Links) -> float:
    """Seconds of one ring all-reduce of all gradients."""
    if links.gpus == 1:
        return 0.0
    return 2 * (links.gpus - 1) / links.gpus * gradient_bytes / links.slowest_bytes_per_s


def exposed_s(reduce_s: float, backward_s: float, gradient_bytes: int, *, overlap: bool) -> float:
    """The time by which an all-reduce of `reduce_s` lengthens a step.

    With `overlap`, the backward pass fills k buckets, each in the same time, and they are reduced in this order. If the
    reduction is faster than the backward pass, only the reduction of the last bucket is exposed; otherwise the link is
    busy from the first full bucket on. Example: backward 100 ms, 4 buckets, reduction 40 ms: 10 ms are exposed. With a
    reduction of 200 ms: 100 / 4 + 200 - 100 = 125 ms.
    """
    if not overlap or not reduce_s:
        return reduce_s
    buckets = max(1, math.ceil(gradient_bytes / BUCKET_BYTES))
    end_s = max(backward_s + reduce_s / buckets, backward_s / buckets + reduce_s)
    return end_s - backward_s
