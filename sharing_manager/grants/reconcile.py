"""Decides which grants belong to pods that no longer exist, from the kubelet's list of allocations. Pure:
core/pods.py applies the decision.

The kubelet doesn't tell a device plugin that a device was freed. Its PodResources service lists the current allocations. A
grant that is missing in two consecutive lists is ended; one list may come from a kubelet that has just restarted.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from emulator_runtime.domain.units import NS_PER_S
from emulator_runtime.node.grant_files import GrantRecord
from sharing_manager.grants.grant import Grant
from sharing_manager.grants.identity import PodAllocation

YOUNG_NS = 60 * NS_PER_S
"""Minimum age at which an unused token may be deleted. While a container's image is pulled, its token is unused,
although the kubelet lists the pod already. Also, all containers of a pod are allocated within this time of each other."""


@dataclass(frozen=True, slots=True)
class Findings:
    """`gone`: digests of bound grants to end. `stale`: digests of unbound records to delete. `missed`: argument of the
    next comparison."""

    gone: frozenset[str] = frozenset()
    stale: frozenset[str] = frozenset()
    missed: frozenset[str] = frozenset()


class _Allocated:
    """The kubelet's list, indexed for look-ups."""

    def __init__(self, allocations: Iterable[PodAllocation]) -> None:
        self.ids: set[str] = set()
        self.by_pod: dict[tuple[str, str], set[str]] = {}
        for allocation in allocations:
            self.ids |= allocation.device_ids
            self.by_pod.setdefault((allocation.namespace, allocation.pod), set()).update(allocation.device_ids)

    def missing(self, grant: Grant, connected: Collection[str]) -> bool:
        """Whether the pod of a bound grant no longer holds its devices."""
        if grant.pod is None:
            return self.ids.isdisjoint(grant.ids)
        holds = self.by_pod.get((grant.pod.namespace, grant.pod.pod))
        # the kubelet lists its pod but not its devices; an open connection also shows that it exists
        if grant.pod.init_container:
            return holds is None and grant.digest not in connected
        return holds is None or not holds.issuperset(grant.ids)


def missing_in(allocations: Iterable[PodAllocation]) -> Callable[[Grant], bool]:
    """Says of a bound grant without a connection whether its pod doesn't hold its devices any more, by this list."""
    allocated = _Allocated(allocations)
    return lambda grant: allocated.missing(grant, ())


def reconcile(
    grants: Iterable[Grant],
    unbound: Sequence[GrantRecord],
    allocations: Iterable[PodAllocation],
    missed: Collection[str],
    *,
    connected: Collection[str] = (),
    wall_ns: int,
) -> Findings:
    """Compare the pods' grants with the kubelet's list.

    `missed` is the result of the previous comparison, `connected` has the digests of grants with a connection, and
    `wall_ns` is the current time on the clock of `GrantRecord.minted_ns`.
    """
    allocated = _Allocated(allocations)
    absent = {g.digest for g in grants if g.bound and not (g.of_owner or g.ended) and allocated.missing(g, connected)}
    unallocated = {record.token_digest for record in unbound if allocated.ids.isdisjoint(record.device_ids)}
    aged = {record.token_digest for record in unbound if wall_ns - record.minted_ns > YOUNG_NS}
    return Findings(
        gone=frozenset(absent.intersection(missed)),
        stale=frozenset(unallocated.intersection(missed, aged) | (_replaced(unbound) & aged)),
        missed=frozenset(absent | unallocated),
    )


def _replaced(unbound: Sequence[GrantRecord]) -> set[str]:
    """Tokens that share a device id with a token minted more than YOUNG_NS later: the kubelet has given that device to
    another pod since. Without this, pods that use their devices but never attach would leave their tokens behind."""
    youngest: dict[str, int] = {}
    for record in unbound:
        for device in record.device_ids:
            youngest[device] = max(record.minted_ns, youngest.get(device, 0))
    return {
        record.token_digest
        for record in unbound
        if any(youngest[device] - record.minted_ns > YOUNG_NS for device in record.device_ids)
    }
