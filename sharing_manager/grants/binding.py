"""Decides which pod a token belongs to, and which earlier holders an attachment displaces. Pure: core/pods.py
applies the decisions.

The kubelet reassigns a device without notice to its earlier holder, and after a forced deletion two containers have the
same device for about a second. So the newest token wins: when a pod attaches with it, older tokens of other pods on the
same device ids are fenced, that is, refused from then on. Containers of one pod share their devices; the last one to attach
works with them, and the others are suspended.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from emulator_runtime.domain.errors import RefusedError
from sharing_manager.grants.grant import Grant, GrantState
from sharing_manager.grants.identity import PodAllocation, PodIdentity


@dataclass(frozen=True, slots=True)
class Mark:
    """The newest token that has attached to a device id: when it was minted, and the pod (or token) that attached with it."""

    minted_ns: int
    holder: str


@dataclass(frozen=True, slots=True)
class Displaced:
    """The grants that an attachment displaces: `fenced` for ever (those of other pods), or `suspended` until they attach
    again (those of the same pod)."""

    fenced: tuple[Grant, ...] = ()
    suspended: tuple[Grant, ...] = ()


def holder_of(grant: Grant, identity: PodIdentity | None) -> str:
    """The pod's UID. If the pod is unknown, the token's digest, so that each token counts as a holder of its own."""
    return grant.digest if identity is None else identity.pod_uid


def decide(grant: Grant, identity: PodIdentity | None, others: Iterable[Grant], marks: Mapping[str, Mark]) -> Displaced:
    """Which grants are displaced when the pod `identity` attaches with the token of `grant`.

    `others` are the pods' grants that may hold devices; `marks` is by device id. Raises RefusedError for a token of another
    pod or container, or one that a newer token has replaced.
    """
    check_bound(grant, identity)
    holder, wanted = holder_of(grant, identity or grant.pod), set(grant.ids)
    for device in grant.ids:
        mark = marks.get(device)
        if mark is not None and mark.minted_ns > grant.minted_ns and mark.holder != holder:
            raise RefusedError(
                f"device {device} has been given to another pod since; this token is void, delete the pod"
            )
    overlapping = [other for other in others if other.digest != grant.digest and not wanted.isdisjoint(other.ids)]
    bound = [other for other in overlapping if other.bound and not other.ended and not other.of_owner]
    return Displaced(
        fenced=tuple(other for other in bound if holder_of(other, other.pod) != holder),
        suspended=tuple(
            other for other in bound if holder_of(other, other.pod) == holder and other.state is GrantState.ATTACHED
        ),
    )


def check_bound(grant: Grant, identity: PodIdentity | None) -> None:
    """Raises RefusedError if the token is bound to another pod, or to another container of this pod."""
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
    """Raises RefusedError if the kubelet gave the devices of `grant` to another pod.

    This is for a token's first use: without the check, a copied token would be bound to the pod that copied it. The kubelet
    doesn't list the devices of an ordinary init container, so if no pod has them, the token alone is accepted.
    """
    wanted, own_ids, other_ids = set(grant.ids), set[str](), set[str]()
    for allocation in allocations:
        if allocation.resource == grant.resource:
            own = (allocation.namespace, allocation.pod) == (identity.namespace, identity.pod)
            (own_ids if own else other_ids).update(allocation.device_ids)
    if not own_ids >= wanted and not other_ids.isdisjoint(wanted):
        raise RefusedError(
            "this token's devices were given to another pod; use the one in this container's own EMUGPU_TOKEN"
        )


def mark(grant: Grant, marks: dict[str, Mark]) -> None:
    """Record that this grant has attached."""
    for device in grant.ids:
        newest = marks.get(device)
        if newest is None or newest.minted_ns <= grant.minted_ns:
            marks[device] = Mark(grant.minted_ns, holder_of(grant, grant.pod))
