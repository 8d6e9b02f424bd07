"""The grants of pods: attaches them, displaces earlier holders, and ends the grants of pods that no longer exist. The
rules are in `binding` and `reconcile`; this module applies them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace

from emulator_runtime.node.grant_files import GrantRecord
from sharing_manager.core.ledger import Ledger
from sharing_manager.grants.binding import check_bound, decide
from sharing_manager.grants.grant import Grant, GrantState
from sharing_manager.grants.identity import PodAllocation, PodIdentity
from sharing_manager.grants.reconcile import Findings, reconcile
from sharing_manager.persistence.event_log import ManagerEvent


class Pods:
    """The grants that the device plugin minted. `on_displaced` is called with a grant that has lost its devices to
    another attachment, or because its pod is gone, so that its connection can be closed."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._missed: frozenset[str] = frozenset()
        self.on_displaced: Callable[[Grant], None] = lambda _: None

    def check(self, grant: Grant, identity: PodIdentity | None) -> None:
        """Raises RefusedError if this pod may not attach with this grant. Changes nothing."""
        decide(grant, identity, (), self._ledger.grants.marks)

    def attach(
        self,
        grant: Grant,
        identity: PodIdentity | None,
        steps_done: int | None = None,
        after_ns: int = 0,
        known_steps: int | None = None,
        *,
        main: bool = True,
    ) -> Grant:
        """Attach a container that presents the token of `grant`, for the first time or again; not `main`: a further process of
        it, which neither begins nor resumes the run.

        With `identity` None the pod is unknown, and the token alone is accepted. With `steps_done` None the process has
        just started: it resumes at its job's progress (`known_steps` is the progress that the cluster knows of). Otherwise
        the process reconnects. Then the result may be a grant whose run has ended: its final request was processed, and
        only the reply was lost. Raises RefusedError as `binding.decide` does, and DeviceLostError; then nothing has
        changed.
        """
        if grant.ended or (not grant.live and steps_done is not None):
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
        if steps_done is None and main:
            ledger.abandon_lease(grant)
        ledger.begin(grant, steps_done, after_ns)
        return grant

    def _bind(self, grant: Grant, identity: PodIdentity | None) -> None:
        """Bind the grant to the pod, and make it a holder of its devices."""
        ledger, holder = self._ledger, grant.holder
        attached = grant.state is GrantState.ATTACHED
        grant.bind(_job_key(grant, identity), _more_precise(identity, grant.pod))
        if attached and grant.holder == holder:
            return
        if attached:  # it was registered under another name
            ledger.pool.leave(holder, grant.uuids, ledger.clock.now_ns())
        ledger.admit(grant)
        grant.floor_ns = max(grant.floor_ns, ledger.clock.now_ns())
        grant.bound = True
        ledger.grants.add(grant)

    def _suspend(self, grant: Grant) -> None:
        """Take the devices from a container, because another container of its pod has attached."""
        self._ledger.suspend(grant, "another container of its pod has attached to its devices")
        self.on_displaced(grant)

    def _displace(self, grant: Grant, state: GrantState, reason: str) -> None:
        self._ledger.end(grant, state, reason)
        self.on_displaced(grant)

    # --- ending grants ----------------------------------------------------------------------------------------------

    def reconcile(
        self,
        allocations: Iterable[PodAllocation],
        records: Sequence[GrantRecord] = (),
        connected: Collection[str] = (),
    ) -> Findings:
        """End the grants of pods that no longer exist, according to the kubelet's current list.

        `records` are the grant files, `connected` has the digests of grants with a connection. The grants in `gone` of the
        result have ended; the caller deletes the files of `gone` and `stale`.
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
        return replace(findings, stale=findings.stale | self.ended(records))

    def ended(self, records: Iterable[GrantRecord]) -> frozenset[str]:
        """The digests of those records whose grants have ended."""
        known = ((record.token_digest, self._ledger.grants.find(record.token_digest)) for record in records)
        return frozenset(digest for digest, grant in known if grant is not None and grant.ended)

    def on_event(self, callback: Callable[[PodIdentity, ManagerEvent], None]) -> None:
        """From now on, call `callback` with every event about a pod."""
        self._ledger.on_pod_event = callback

    def end(self, grant: Grant, reason: str) -> None:
        """End a grant, even if its pod still exists."""
        self._displace(grant, GrantState.GONE, reason)

    def end_all(self, reason: str) -> None:
        """End all pods' grants, because the node leaves the cluster."""
        for grant in list(self._ledger.grants.all()):
            if grant.bound and not (grant.of_owner or grant.ended):
                self.end(grant, reason)


def _job_key(grant: Grant, identity: PodIdentity | None) -> str:
    if identity is not None:
        return identity.job_key
    return grant.job_id or f"grant/{grant.digest[:32]}"


def _more_precise(identity: PodIdentity | None, before: PodIdentity | None) -> PodIdentity | None:
    """The current identity, unless only the earlier one has the container's name."""
    if identity is None or (before is not None and before.container and not identity.container):
        return before
    return identity
