"""Nodes that go and come back in a simulated cluster, and the checkpoints at which interrupted jobs go on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum

from emulator_runtime.domain.units import to_ns
from scheduler_sims.clusters.base import Event
from scheduler_sims.clusters.open import NodeState
from scheduler_sims.inputs.cluster_file import ClusterSpec
from scheduler_sims.inputs.outages import Outage


class Turn(Enum):
    """What happens to a node."""

    NOTICE = "notice"
    DOWN = "down"
    UP = "up"


@dataclass(frozen=True, slots=True)
class NodeTurn:
    """A part of an outage."""

    outage: Outage
    turn: Turn

    @property
    def at_ns(self) -> int:
        outage = self.outage
        times = {Turn.NOTICE: outage.notice_at_s, Turn.DOWN: outage.at_s, Turn.UP: outage.until_s}
        return to_ns(times[self.turn])


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A job writes a checkpoint, if the run still goes on."""

    job_id: str


@dataclass(frozen=True, slots=True)
class Interrupted(Event):
    """A run ended because a node of it went away; `steps_done` are those of its last checkpoint."""


class NodeOutages:
    """Which nodes of a cluster jobs may use, as its outages go on."""

    def __init__(self, cluster: ClusterSpec) -> None:
        self._nodes = {node.name: node for node in cluster.nodes}
        self._later = cluster.failures.by_node() if cluster.failures else {}
        self._away: set[str] = set()
        self.checkpoint_every_ns = to_ns(cluster.failures.checkpoint_every_s) if cluster.failures else 0

    def __bool__(self) -> bool:
        """Whether any node ever goes away."""
        return bool(self._later)

    def first(self) -> Iterator[NodeTurn]:
        """The first turn of each node."""
        for node in self._later:
            yield from self._next(node)

    def take(self, turn: NodeTurn) -> tuple[list[NodeTurn], bool]:
        """Carries out a turn of a node. The turns that follow from it, and whether other nodes than before may be used."""
        node, outage = turn.outage.node, turn.outage
        before = node in self._away
        if turn.turn is Turn.UP:
            self._away.discard(node)
            return [*self._next(node)], True
        self._away.add(node)
        following = Turn.DOWN if turn.turn is Turn.NOTICE else Turn.UP
        return [NodeTurn(outage, following)], not before

    def states(self) -> tuple[NodeState, ...]:
        """The nodes that jobs may use."""
        return tuple(NodeState(node) for name, node in self._nodes.items() if name not in self._away)

    def _next(self, node: str) -> Iterator[NodeTurn]:
        outage = next(self._later[node], None)
        if outage is not None:
            yield NodeTurn(outage, Turn.NOTICE if outage.notice_at_s < outage.at_s else Turn.DOWN)
