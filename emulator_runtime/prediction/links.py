"""How long collectives take on the links between devices: alpha-beta costs of NCCL's algorithms on the slowest link.

The model is that of the emulated NCCL (cuda/src/libraries/nccl/link_model.c, which names the sources of its constants), written
once more for the same reason as the roofline; a test compares both.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Protocol

from emulator_runtime.domain.gpu import GpuSpec
from emulator_runtime.prediction.records import Collective, Communicator

NETWORK_GBPS = 100.0
"""Of a node, in one direction, where nothing else is said."""
SEND_RECEIVE = "send_receive"

RING, TREE = 0, 1
LOW_LATENCY, LOW_LATENCY_128, SIMPLE = 0, 1, 2
NVLINK, HOST_LINK, NETWORK = 0, 1, 2
BASE_US = ((6.6, 14.0, 8.4), (6.8, 14.0, 8.4))
STEP_US = (
    ((0.6, 1.9, 3.4), (0.6, 1.25, 4.0)),
    ((1.0, 2.5, 5.7), (1.0, 1.9, 4.0)),
    ((2.7, 4.0, 14.0), (5.0, 8.5, 14.0)),
)
DATA_PART = (0.5, 120.0 / 128.0, 1.0)
EFFICIENCY = (0.78, 0.80, 0.92)
BYTES_FACTOR: Mapping[str, float] = MappingProxyType(
    {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1, "all_to_all": 1, "gather": 1, "scatter": 1}
)
"""Of (n - 1) / n of the buffer."""
WHOLE_BUFFER = frozenset({"broadcast", "reduce"})
OPERATIONS = frozenset({*BYTES_FACTOR, *WHOLE_BUFFER, SEND_RECEIVE})
"""What a Collective may be."""


class CollectiveEstimator(Protocol):
    """The durations of collectives, from when all ranks that take part have come."""

    def duration_ns(self, call: Collective, communicator: Communicator) -> int:
        """Of one rank's part; equal for all ranks except in send_receive. `call.operation` is one of OPERATIONS."""


@dataclass(frozen=True, slots=True)
class Links:
    """The slowest link of each kind among the devices of a job, in bytes per second one way. `peer_bytes_per_s`: NVLink of
    a device; 0: peers go through the host. `network_bytes_per_s`: of a node."""

    peer_bytes_per_s: float
    host_bytes_per_s: float
    network_bytes_per_s: float

    @classmethod
    def between(cls, specs: Iterable[GpuSpec], network_gbps: float = NETWORK_GBPS) -> Links:
        """The links of devices of these types."""
        types = tuple(specs)
        peer = min(spec.peer_link_bytes_per_s for spec in types)
        host = min(spec.host_link_bytes_per_s for spec in types)
        return cls(peer, host, network_gbps * 1e9 / 8)

    def duration_ns(self, call: Collective, communicator: Communicator) -> int:
        members = communicator.members
        if len(members) < 2:
            return 0
        if communicator.network_share < 1:
            share_bytes_per_s = self.network_bytes_per_s * communicator.network_share
            own = replace(communicator, network_share=1.0)
            return replace(self, network_bytes_per_s=share_bytes_per_s).duration_ns(call, own)
        if call.operation == SEND_RECEIVE:
            return self._exchange_ns(call.peers, [host for host, _ in members], communicator.rank)
        return self.collective_ns(call.operation, call.bytes, len(members), len({host for host, _ in members}))

    def collective_ns(self, operation: str, amount_bytes: float, ranks: int, nodes: int) -> int:
        """The fastest of NCCL's algorithms and protocols. `amount_bytes`: of the whole buffer, as nccl-tests counts."""
        seconds = min(
            self._algorithm_s(operation, algorithm, protocol, amount_bytes, ranks, nodes)
            for algorithm in ((RING, TREE) if operation == "all_reduce" else (RING,))
            for protocol in (LOW_LATENCY, LOW_LATENCY_128, SIMPLE)
            if protocol != LOW_LATENCY_128 or self._nvlink  # NCCL uses LL128 on NVLink only
        )
        return rounded_ns(seconds)

    def transfer_ns(self, amount_bytes: float, *, across_nodes: bool) -> int:
        """One message over one link."""
        link = NETWORK if across_nodes else self._node_link
        rate = self._network_rate if across_nodes else self._node_rate
        latency_s = (BASE_US[RING][SIMPLE] + STEP_US[link][RING][SIMPLE]) / 1e6
        return rounded_ns(latency_s + amount_bytes / (rate * EFFICIENCY[link]))

    @property
    def _nvlink(self) -> bool:
        return self.peer_bytes_per_s > 0

    @property
    def _node_link(self) -> int:
        return NVLINK if self._nvlink else HOST_LINK

    @property
    def _node_rate(self) -> float:
        return self.peer_bytes_per_s if self._nvlink else self.host_bytes_per_s or 1e9

    @property
    def _network_rate(self) -> float:
        return self.network_bytes_per_s or 1e9

    def _algorithm_s(
        self, operation: str, algorithm: int, protocol: int, amount_bytes: float, ranks: int, nodes: int
    ) -> float:
        if algorithm == RING:
            rounds = 2 if operation == "all_reduce" else 1
            between = rounds * (nodes - 1)
            inside = rounds * (ranks - 1) - between
            factor = bytes_factor(operation, ranks)
        else:  # double binary trees: chains within nodes, trees between them; each rank sends all up and down
            inside = 2 * ((ranks + nodes - 1) // nodes - 1)
            between = 2 * math.ceil(math.log2(nodes))
            factor = 2.0
        steps_us = STEP_US[self._node_link][algorithm][protocol], STEP_US[NETWORK][algorithm][protocol]
        latency_us = BASE_US[algorithm][protocol] + inside * steps_us[0] + between * steps_us[1]
        rate = self._node_rate * EFFICIENCY[self._node_link]
        if nodes > 1:
            rate = min(rate, self._network_rate * EFFICIENCY[NETWORK])
        return latency_us / 1e6 + amount_bytes * factor / (rate * DATA_PART[protocol])

    def _exchange_ns(self, peers: Iterable[tuple[int, int, int]], hosts: Sequence[str], rank: int) -> int:
        """The messages of a group share a link: the larger of what is sent and received counts, within and between nodes."""
        sent, received = [0, 0], [0, 0]
        for peer, to_peer, from_peer in peers:
            across = hosts[peer] != hosts[rank]
            sent[across] += to_peer
            received[across] += from_peer
        amounts = [max(pair) for pair in zip(sent, received, strict=True)]
        return max(
            (self.transfer_ns(amounts[way], across_nodes=bool(way)) for way in (0, 1) if amounts[way]), default=0
        )


def bytes_factor(operation: str, ranks: int) -> float:
    """The part of the buffer that a ring moves over each of its links."""
    return 1.0 if operation in WHOLE_BUFFER else BYTES_FACTOR[operation] * ((ranks - 1.0) / ranks)


def rounded_ns(seconds: float) -> int:
    """Halves go up, as C's llround has it."""
    ns = seconds * 1e9
    below = math.floor(ns)
    return below + (ns - below >= 0.5)
