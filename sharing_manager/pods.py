"""Pods and their tokens: who may attach, whom that displaces, whose grant is nobody's any more. The rules are in `binding`
and `reconcile`, this carries them out."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace

from emulator_runtime.node.grant_files import GrantRecord
from sharing_manager.binding import check_bound, decide
from sharing_manager.event_log import ManagerEvent
from sharing_manager.grants import Grant, GrantState
from sharing_manager.identity import PodAllocation, PodIdentity
from sharing_manager.ledger import Ledger
from sharing_manager.reconcile import Findings, reconcile


class Pods:
    """The grants that the device plugin minted. `on_displaced` is told of a grant that has lost its devices to another
    attachment or with its pod, so that its connection can be closed."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._missed: frozenset[str] = frozenset()
        self.on_displaced: Callable[[Grant], None] = lambda _: None

    def check(self, grant: Grant, identity: PodIdentity | None) -> None:
        """Raises RefusedError where this pod may not attach with this grant. Changes nothing."""
        decide(grant, identity, (), self._ledger.grants.marks)

    def attach(
        self,
        grant: Grant,
        identity: PodIdentity | None,
        steps_done: int | None = None,
        after_ns: int = 0,
        known_steps: int | None = None,
    ) -> Grant:
        """A container presents the token of `grant`, for the first time or again.

        `identity` None: nobody can tell who it is, the token has to do. `steps_done` None: a process that begins; it goes on
        where its job is (`known_steps` is what the cluster knows of that). Otherwise it is one that was connected before, and
        the answer may be a grant whose run has ended: its last word was heard, only the reply to it was lost.
        Raises RefusedError as `binding.decide`, and DeviceLostError; then nothing has changed.
        """
        if grant.over or (not grant.live and steps_done is not None):
            check_bound(grant, identity)
            return grant
        ledger = self._ledger
        displaced = decide(grant, identity, ledger.grants.all(), ledger.grants.marks)
        ledger.pool.check(grant.holder, grant.uuids)
        leaving = {other.holder for other in (*displaced.fenced, *displaced.suspended)}
        ledger.pool.check_room(grant.holder, grant.uuids, leaving)
        for other in displaced.fenced:
            self._displace(other, GrantState.FENCED, "a newer pod has attached to its devices")
        for other in displaced.suspended:
            self._suspend(other)
        known = max(ledger.known_progress(_job_key(grant, identity)), known_steps or 0)
        newly_bound = not grant.bound
        self._bind(grant, identity)
        if newly_bound:
            grant.steps_done = grant.logged_steps = known
            ledger.record("granted", grant)
        elif steps_done is None:
            ledger.progress_to(grant, max(known, grant.steps_done))
        if steps_done is None:
            ledger.abandon_lease(grant)
        ledger.begin(grant, steps_done, after_ns)
        return grant

    def _bind(self, grant: Grant, identity: PodIdentity | None) -> None:
        """Hold the devices in the name of that pod."""
        ledger, holder = self._ledger, grant.holder
        attached = grant.state is GrantState.ATTACHED
        grant.bind(_job_key(grant, identity), _known_better(identity, grant.pod))
        if attached and grant.holder == holder:
            return
        if attached:  # it had another name in the books
            ledger.pool.leave(holder, grant.uuids, ledger.clock.now_ns())
        ledger.admit(grant)
        grant.floor_ns = max(grant.floor_ns, ledger.clock.now_ns())
        grant.bound = True
        ledger.grants.add(grant)

    def _suspend(self, grant: Grant) -> None:
        """Another container of its pod works with the devices now."""
        self._ledger.suspend(grant, "another container of its pod has attached to its devices")
        self.on_displaced(grant)

    def _displace(self, grant: Grant, state: GrantState, reason: str) -> None:
        self._ledger.end(grant, state, reason)
        self.on_displaced(grant)

    # --- gone ---------------------------------------------------------------------------------------------------------

    def reconcile(
        self,
        allocations: Iterable[PodAllocation],
        records: Sequence[GrantRecord] = (),
        connected: Collection[str] = (),
    ) -> Findings:
        """End the grants of pods that are gone, by what the kubelet says that pods hold now.

        `records` are the grant files, `connected` digests of grants with a connection. Of the answer, `gone` has happened;
        the files of `gone` and `stale` can go.
        """
        grants = self._ledger.grants
        unbound = [record for record in records if grants.find(record.token_digest) is None]
        findings = reconcile(
            grants.all(), unbound, allocations, self._missed, connected=connected, wall_ns=self._ledger.wall()
        )
        self._missed = findings.missed
        for digest in sorted(findings.gone):
            grant = grants.find(digest)
            assert grant is not None
            self._displace(grant, GrantState.GONE, "its pod no longer holds the devices")
        return replace(findings, stale=findings.stale | self.over(records))

    def over(self, records: Iterable[GrantRecord]) -> frozenset[str]:
        """The digests among these of grants that are over."""
        known = ((record.token_digest, self._ledger.grants.find(record.token_digest)) for record in records)
        return frozenset(digest for digest, grant in known if grant is not None and grant.over)

    def on_event(self, tell: Callable[[PodIdentity, ManagerEvent], None]) -> None:
        """From now on, `tell` is told of every event that is about a pod."""
        self._ledger.on_pod_event = tell

    def end(self, grant: Grant, reason: str) -> None:
        """The grant ends, whatever its pod does."""
        self._displace(grant, GrantState.GONE, reason)

    def end_all(self, reason: str) -> None:
        """The node leaves the cluster."""
        for grant in list(self._ledger.grants.all()):
            if grant.bound and not (grant.of_owner or grant.over):
                self.end(grant, reason)


def _job_key(grant: Grant, identity: PodIdentity | None) -> str:
    if identity is not None:
        return identity.job_key
    return grant.job_id or f"grant/{grant.digest[:32]}"


def _known_better(identity: PodIdentity | None, before: PodIdentity | None) -> PodIdentity | None:
    """What is known of the pod now, and of the container at all."""
    if identity is None or (before is not None and before.container and not identity.container):
        return before
    return identity
