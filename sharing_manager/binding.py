"""To whom a token belongs, and who has to go when it is shown. Pure: the rules are all here, the effects elsewhere.

The kubelet gives a device away without a word about who had it before, and for about a second two containers hold it (a
pod deleted by force). So the newest token decides: whoever attaches with it fences all older ones of other pods on the same
device ids, and from then on those are refused. Within a pod the containers share their devices; the last to attach works.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from emulator_runtime.domain.errors import RefusedError
from sharing_manager.grants import Grant, GrantState
from sharing_manager.identity import PodAllocation, PodIdentity


@dataclass(frozen=True, slots=True)
class Mark:
    """The newest token that has attached to a device id: when it was minted, and by whom it was shown."""

    minted_ns: int
    who: str


@dataclass(frozen=True, slots=True)
class Displaced:
    """Whom an attachment displaces: `fenced` for good, `suspended` until they attach again (the same pod's)."""

    fenced: tuple[Grant, ...] = ()
    suspended: tuple[Grant, ...] = ()


def who(grant: Grant, identity: PodIdentity | None) -> str:
    """The pod's UID; where nobody can tell it, each token is somebody of its own."""
    return grant.digest if identity is None else identity.pod_uid


def decide(grant: Grant, identity: PodIdentity | None, others: Iterable[Grant], marks: Mapping[str, Mark]) -> Displaced:
    """Who has to go when `identity` attaches with the token of `grant`.

    `others` are the pods' grants that may hold something, `marks` is by device id. Raises RefusedError for a token of
    another pod or container, or one that a newer one has replaced.
    """
    check_bound(grant, identity)
    self, wanted = who(grant, identity or grant.pod), set(grant.ids)
    for device in grant.ids:
        mark = marks.get(device)
        if mark is not None and mark.minted_ns > grant.minted_ns and mark.who != self:
            raise RefusedError(f"device {device} has been given to another pod since; this token is void, end the pod")
    overlapping = [other for other in others if other.digest != grant.digest and not wanted.isdisjoint(other.ids)]
    bound = [other for other in overlapping if other.bound and not other.over and not other.of_owner]
    return Displaced(
        fenced=tuple(other for other in bound if who(other, other.pod) != self),
        suspended=tuple(
            other for other in bound if who(other, other.pod) == self and other.state is GrantState.ATTACHED
        ),
    )


def check_bound(grant: Grant, identity: PodIdentity | None) -> None:
    """Raises RefusedError where the token was bound to another pod, or to another container of this one."""
    bound = grant.pod
    if bound is None or identity is None:
        return
    if bound.pod_uid != identity.pod_uid:
        raise RefusedError("this token belongs to another pod; use the one in this container's own EMUGPU_TOKEN")
    if bound.container and identity.container and bound.container != identity.container:
        raise RefusedError(
            f"this token belongs to container {bound.container!r} of this pod; use {identity.container!r}'s EMUGPU_TOKEN"
        )


def check_held(grant: Grant, identity: PodIdentity, allocations: Iterable[PodAllocation]) -> None:
    """Raises RefusedError where the kubelet gave the devices of `grant` to another pod than this one.

    For a token that was never shown before: a copied one would be bound to the pod that copied it. An ordinary init
    container's devices aren't listed with its pod, so where nobody has them the token has to do.
    """
    wanted, mine, others = set(grant.ids), set[str](), set[str]()
    for allocation in allocations:
        if allocation.resource == grant.resource:
            own = (allocation.namespace, allocation.pod) == (identity.namespace, identity.pod)
            (mine if own else others).update(allocation.device_ids)
    if not mine >= wanted and not others.isdisjoint(wanted):
        raise RefusedError(
            "this token's devices were given to another pod; use the one in this container's own EMUGPU_TOKEN"
        )


def mark(grant: Grant, marks: dict[str, Mark]) -> None:
    """Note that this grant has attached."""
    for device in grant.ids:
        known = marks.get(device)
        if known is None or known.minted_ns <= grant.minted_ns:
            marks[device] = Mark(grant.minted_ns, who(grant, grant.pod))
