"""Which jobs share GPUs: those admitted are merged pairwise, by maximum weight matchings, until their groups fit the cluster.

Zhao et al., Muri, SIGCOMM 2022, section 4.2; the order of steps is that of Rivendile/Muri at 4e69a78 (_Blossom_Same and
multi_resource_blossom_same_sim_jobs of its simulator). Only jobs with the same number of GPUs share them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import ModuleType

from emulator_runtime.domain.errors import PolicyError
from scheduler_sims.policies.muri.interleaving import MEASURED, RESOURCES, Profile, efficiency, iteration_s

_WEIGHT, _TIE, _MOST_APART = 10**12, 40, 2**20
"""The matching takes whole numbers: efficiencies count in units of 1e-12, of which the distance in order of submission is a small
part."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A job that may run. `key`: smaller goes first. Jobs of the same number of GPUs and the same `kind` may share them.

    `order`: its place in order of submission, which decides between equal matchings.
    """

    job_id: str
    gpus: int
    profile: Profile
    key: float
    kind: Hashable = None
    order: int = 0


@dataclass(frozen=True, slots=True)
class Group:
    """Jobs that share the same GPUs, the first one first."""

    jobs: tuple[Candidate, ...]

    @property
    def gpus(self) -> int:
        return self.jobs[0].gpus

    @property
    def key(self) -> float:
        return min(job.key for job in self.jobs)

    @property
    def profiles(self) -> tuple[Profile, ...]:
        return tuple(job.profile for job in self.jobs)


Fit = Callable[[Candidate], bool]
"""Takes the place of a job in an initially empty cluster; False: there is none."""

_Size = tuple[int, Hashable]
"""Number of GPUs, and kind."""


@dataclass(frozen=True, slots=True)
class Grouping:
    """How jobs are grouped. `most`: jobs of a group; `least`: a pair must have more than this share of the efficiency that as
    many jobs can reach; `overheads`: by jobs of a group (MEASURED). `matched` False: jobs are grouped in their order."""

    most: int = 4
    least: float = 0.0
    overheads: tuple[float, ...] = MEASURED
    matched: bool = True

    def groups(self, candidates: Sequence[Candidate], gpus: int, empty: Callable[[], Fit]) -> list[Group]:
        """The groups to run, those of the smallest keys first. `gpus`: GPUs of the cluster; `empty`: an empty one to place in."""
        ranked = sorted(candidates, key=lambda candidate: candidate.key)
        singles = self._admitted(ranked, empty())
        packed = self._merged(singles, gpus) if self.matched else self._in_order(singles, gpus)
        chosen = sorted((part for group in packed for part in self._worthwhile(group)), key=lambda group: group.key)
        fits = empty()
        return [group for group in chosen if fits(group.jobs[0])]

    def _admitted(self, ranked: Sequence[Candidate], fits: Fit) -> dict[_Size, list[Group]]:
        """By size: for each place in the empty cluster, the next jobs of that size, as many as a group can have."""
        of_size: dict[_Size, list[Candidate]] = {}
        for candidate in ranked:
            of_size.setdefault((candidate.gpus, candidate.kind), []).append(candidate)
        admitted, turns, full = dict.fromkeys(of_size, 0), dict.fromkeys(of_size, 0), set()
        for candidate in ranked:
            size = candidate.gpus, candidate.kind
            turns[size] += 1
            if turns[size] <= admitted[size] or size in full:
                continue
            if fits(candidate):
                admitted[size] = min(admitted[size] + (self.most if candidate.gpus else 1), len(of_size[size]))
            else:
                full.add(size)
        return {size: [Group((job,)) for job in jobs[: admitted[size]]] for size, jobs in of_size.items()}

    def _merged(self, groups: Mapping[_Size, list[Group]], gpus: int) -> list[Group]:
        needed = sum(size * len(of_size) for (size, _), of_size in groups.items())
        for _ in range(self.most):
            if needed <= gpus:
                break
            merged: dict[_Size, list[Group]] = {}
            for (size, kind), of_size in groups.items():
                merged[size, kind] = []
                for pair in self.pairs(of_size) if size else [of_size]:
                    if len(pair) < 2 or needed <= gpus or not size:
                        merged[size, kind] += pair
                    else:
                        merged[size, kind].append(Group(tuple(job for group in pair for job in group.jobs)))
                        needed -= size
            groups = merged
        return [group for of_size in groups.values() for group in of_size]

    def pairs(self, groups: Sequence[Group]) -> list[list[Group]]:
        """A maximum weight matching: pairs, and groups alone, in order of their last member in `groups`.

        Of equal ones that in which jobs are paired with those submitted about the same time.
        """
        weights = self.weights(groups)
        orders = [group.jobs[0].order for group in groups]
        edges = [
            (one, two, (round(weight * _WEIGHT) << _TIE) - min(abs(orders[two] - orders[one]), _MOST_APART))
            for (one, two), weight in weights.items()
        ]
        mate = {two: one for one, two in _matching(len(groups), tuple(edges))}
        first = set(mate.values())
        return [
            [groups[mate[number]], group] if number in mate else [group]
            for number, group in enumerate(groups)
            if number not in first
        ]

    def weights(self, groups: Sequence[Group]) -> dict[tuple[int, int], float]:
        """The efficiency of each pair of groups that may be merged, by their numbers (smaller first)."""
        kinds: dict[tuple[Profile, ...], int] = {}
        of_group = [kinds.setdefault(tuple(sorted(group.profiles)), len(kinds)) for group in groups]
        table = self._table(list(kinds))
        weights = {}
        for two, kind in enumerate(of_group):
            row = table[kind]
            for one in range(two):
                if weight := row[of_group[one]]:
                    weights[one, two] = weight
        return weights

    def _table(self, kinds: Sequence[tuple[Profile, ...]]) -> list[list[float]]:
        """The weight of each pair of kinds of groups; 0: they may not be merged."""
        table = [[0.0] * len(kinds) for _ in kinds]
        for two, kind in enumerate(kinds):
            for one in range(two + 1):
                table[two][one] = table[one][two] = self._weight(kinds[one], kind)
        return table

    def _weight(self, one: tuple[Profile, ...], two: tuple[Profile, ...]) -> float:
        count = len(one) + len(two)
        if count > self.most:
            return 0.0
        weight = _efficiency(one, two, self.overheads)
        return weight if weight > self.least * count / RESOURCES else 0.0

    def _in_order(self, groups: Mapping[_Size, list[Group]], gpus: int) -> list[Group]:
        """Without matching: each group takes the next jobs of its size, while the jobs need more GPUs than there are."""
        needed = sum(size * len(of_size) for (size, _), of_size in groups.items())
        packed = []
        for (size, _), of_size in groups.items():
            most = self.most if size else 1
            for first in range(0, len(of_size), most):
                together = list(of_size[first].jobs)
                for group in of_size[first + 1 : first + most]:
                    if needed > gpus:
                        together += group.jobs
                        needed -= size
                    else:
                        packed.append(group)
                packed.append(Group(tuple(together)))
        return packed

    def _worthwhile(self, group: Group) -> Iterable[Group]:
        """The group, or its jobs one by one if they are faster one after the other."""
        if iteration_s(group.profiles, self.overheads) <= sum(profile.iteration_s for profile in group.profiles):
            return [group]
        return [Group((job,)) for job in group.jobs]


@lru_cache(maxsize=1 << 16)
def _efficiency(one: tuple[Profile, ...], two: tuple[Profile, ...], overheads: tuple[float, ...]) -> float:
    return efficiency(tuple(sorted((*one, *two))), overheads)


def load_rustworkx() -> ModuleType:
    """Raises PolicyError if the package is missing."""
    try:
        import rustworkx
    except ImportError as error:
        raise PolicyError("muri needs rustworkx: pip install 'emugpu[scheduler]'") from error
    return rustworkx


@lru_cache(maxsize=1 << 12)
def _matching(nodes: int, edges: tuple[tuple[int, int, int], ...]) -> tuple[tuple[int, int], ...]:
    """Pairs (smaller number first) of a maximum weight matching. Raises PolicyError without rustworkx."""
    if nodes < 2 or not edges:
        return ()
    rustworkx = load_rustworkx()
    graph = rustworkx.PyGraph(multigraph=False)
    graph.add_nodes_from(range(nodes))
    graph.add_edges_from(list(edges))
    pairs = rustworkx.max_weight_matching(graph, weight_fn=int)
    return tuple(sorted((min(pair), max(pair)) for pair in pairs))
