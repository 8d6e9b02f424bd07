"""When nodes fail or are taken away, from the section `failures` of a cluster file: a list of outages, and random ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random

_LEAST_S = 1.0
"""The shortest time between random outages of a node, and between checkpoints: shorter ones would take most of a simulation."""


@dataclass(frozen=True, slots=True)
class Outage:
    """A node is away from `at_s` until `until_s`. From `notice_at_s` on, which may be earlier, nothing starts there any more and
    its jobs are asked to stop, as when a provider takes spot capacity back."""

    node: str
    notice_at_s: float
    at_s: float
    until_s: float


@dataclass(frozen=True, slots=True)
class RandomOutages:
    """Each of `nodes` fails on its own, on average `mtbf_s` after it came back (exponentially distributed), for `down_s`.

    The times of a node follow from `seed` and its name: another policy, other nodes or other jobs don't change them.
    """

    nodes: tuple[str, ...]
    mtbf_s: float
    down_s: float
    notice_s: float = 0.0
    seed: int = 0

    def of(self, node: str) -> Iterator[Outage]:
        """All outages of one node, without end."""
        random, up_s = Random(f"{self.seed}/{node}"), 0.0
        while True:
            at_s = up_s + max(random.expovariate(1 / self.mtbf_s), _LEAST_S)
            yield Outage(node, max(up_s, at_s - self.notice_s), at_s, at_s + self.down_s)
            up_s = at_s + self.down_s


@dataclass(frozen=True)
class Failures:
    """What goes wrong in a cluster. A job whose node goes away is queued again and goes on at its last checkpoint; it writes one
    every `checkpoint_every_s` of a run without waiting for it (0: none, so that a run which is interrupted is lost)."""

    checkpoint_every_s: float = 0.0
    outages: tuple[Outage, ...] = ()
    random: tuple[RandomOutages, ...] = ()

    def __str__(self) -> str:
        parts = [f"{len(self.outages)} outages"] if self.outages else []
        parts += [f"{len(r.nodes)} nodes with an MTBF of {r.mtbf_s:g} s" for r in self.random]
        every = f"every {self.checkpoint_every_s:g} s" if self.checkpoint_every_s else "never"
        return f"{', '.join(parts) or 'none'}; checkpoints {every}"

    def by_node(self) -> Mapping[str, Iterator[Outage]]:
        """The outages of each node that has any, in order of time."""
        stated: dict[str, list[Outage]] = {}
        for outage in sorted(self.outages, key=lambda outage: outage.at_s):
            stated.setdefault(outage.node, []).append(outage)
        random = {node: random.of(node) for random in self.random for node in random.nodes}
        return {node: iter(outages) for node, outages in stated.items()} | random


def problem_of(failures: Failures, nodes: Sequence[str]) -> tuple[str, str] | None:
    """The field that is wrong, and what is wrong with it."""
    if 0 < failures.checkpoint_every_s < _LEAST_S:
        return "checkpoint_every_s", f"must be 0 (none) or at least {_LEAST_S:g} s, not {failures.checkpoint_every_s:g}"
    for number, outage in enumerate(failures.outages):
        place = f"outages[{number}]"
        if outage.node not in nodes:
            return f"{place}.node", f"the cluster has no node {outage.node!r}; it has {', '.join(nodes[:5])}"
        before = [o for o in failures.outages if o.node == outage.node and o is not outage and o.at_s <= outage.at_s]
        if any(o.until_s > outage.notice_at_s for o in before):
            return (
                f"{place}.at_s",
                f"node {outage.node} is away then because of another outage, or announced before its end",
            )
    names = [*dict.fromkeys(outage.node for outage in failures.outages)]
    for number, random in enumerate(failures.random):
        if random.notice_s >= random.mtbf_s:
            return f"random[{number}].notice_s", f"must be shorter than mtbf_s ({random.mtbf_s:g} s)"
        if twice := next((node for node in random.nodes if node in names), None):
            return f"random[{number}].nodes", f"node {twice} has outages of another entry"
        names += random.nodes
    return None
