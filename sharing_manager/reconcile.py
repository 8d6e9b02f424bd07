"""Which grants are nobody's any more, by what the kubelet says that pods hold. Pure: decided here, done in the manager.

The kubelet tells no plugin that a device was freed. Its PodResources service lists who holds what at this moment; what is
missing there twice running is gone (once may be a kubelet that has just restarted).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from emulator_runtime.domain.units import NS_PER_S
from emulator_runtime.node.grant_files import GrantRecord
from sharing_manager.grants import Grant
from sharing_manager.identity import PodAllocation

YOUNG_NS = 60 * NS_PER_S
"""A token that nobody has shown yet is kept so long at least: between Allocate and a first attach lies the image's pull,
during which the kubelet lists the pod already; and the containers of a pod are allocated within this time of each other."""


@dataclass(frozen=True, slots=True)
class Findings:
    """`gone`: digests of bound grants to end. `stale`: unbound records to delete. `missed`: for the next time."""

    gone: frozenset[str] = frozenset()
    stale: frozenset[str] = frozenset()
    missed: frozenset[str] = frozenset()


class _Held:
    """What the kubelet says, arranged for questions."""

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
        if grant.pod.init_container:  # its devices aren't listed; the pod is, or it is here in person
            return holds is None and grant.digest not in connected
        return holds is None or not holds.issuperset(grant.ids)


def reconcile(
    grants: Iterable[Grant],
    unbound: Sequence[GrantRecord],
    allocations: Iterable[PodAllocation],
    missed: Collection[str],
    *,
    connected: Collection[str] = (),
    wall_ns: int,
) -> Findings:
    """Compare the pods' grants with what the kubelet says that pods hold.

    `missed` is what the last comparison answered, `connected` are digests of grants with a connection, `wall_ns` is the
    time now as `GrantRecord.minted_ns` has it.
    """
    held = _Held(allocations)
    absent = {g.digest for g in grants if g.bound and not (g.of_owner or g.over) and held.missing(g, connected)}
    nobodys = {record.token_digest for record in unbound if held.ids.isdisjoint(record.device_ids)}
    aged = {record.token_digest for record in unbound if wall_ns - record.minted_ns > YOUNG_NS}
    return Findings(
        gone=frozenset(absent.intersection(missed)),
        stale=frozenset(nobodys.intersection(missed, aged) | (_replaced(unbound) & aged)),
        missed=frozenset(absent | nobodys),
    )


def _replaced(unbound: Sequence[GrantRecord]) -> set[str]:
    """Tokens with a much younger one for one of their ids: the kubelet has given that to another pod, and a pod that uses
    its devices without ever attaching would leave a token behind each time."""
    youngest: dict[str, int] = {}
    for record in unbound:
        for device in record.device_ids:
            youngest[device] = max(record.minted_ns, youngest.get(device, 0))
    return {
        record.token_digest
        for record in unbound
        if any(youngest[device] - record.minted_ns > YOUNG_NS for device in record.device_ids)
    }
