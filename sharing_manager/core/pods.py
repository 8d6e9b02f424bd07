"""The grants of pods: attaches them, displaces earlier holders, and ends the grants of pods that no longer exist. The
rules are in `binding` and `reconcile`; this module applies them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from emulator_runtime.domain.errors import ManagerUnavailableError
from emulator_runtime.domain.units import to_s
from emulator_runtime.node.allocation import ALLOCATION_ANNOTATION, Allocation
from emulator_runtime.node.grant_files import GrantRecord
from emulator_runtime.node.inventory import split_device_id
from emulator_runtime.sharing.demands import Terms
from sharing_manager.core.ledger import Ledger
from sharing_manager.devices.slots import Exchange
from sharing_manager.grants.binding import check_bound, decide
from sharing_manager.grants.grant import RUNS_AT_ONCE, Grant, GrantState, uuids_of
from sharing_manager.grants.identity import PodAllocation, PodIdentity
from sharing_manager.grants.placement import NO_CHOICE, Choice, Placement, placement_of
from sharing_manager.grants.reconcile import Findings, reconcile
from sharing_manager.persistence.event_log import ManagerEvent

_log = logging.getLogger("sharing_manager")


class Pods:
    """The grants that the device plugin minted. `on_displaced` is called with a grant that has lost its devices to
    another attachment, or because its pod is gone, so that its connection can be closed."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._missed: frozenset[str] = frozenset()
        self.on_displaced: Callable[[Grant], None] = lambda _: None
        self.on_devices: Callable[[Grant], None] = lambda _: None
        """Called with a grant when it is decided which devices its container has."""

    def check(self, grant: Grant, identity: PodIdentity | None) -> None:
        """Raises RefusedError if this pod may not attach with this grant. Changes nothing."""
        decide(grant, identity, (), self._ledger.grants.marks)

    def of_record(self, record: GrantRecord) -> Grant:
        """The grant of a token that no pod has presented yet, on the devices for which its slots stand now."""
        grant = Grant.of_record(record)
        grant.use(self._ledger.slots.devices(grant.slots))
        return grant

    @property
    def moved(self) -> Mapping[str, str]:
        """The slots that stand for other devices than that of their name."""
        return self._ledger.slots.moved

    def on_moved(self, callback: Callable[[], None]) -> None:
        """From now on, call `callback` when `moved` has changed."""
        self._ledger.on_slots = callback

    def attach(
        self,
        grant: Grant,
        identity: PodIdentity | None,
        steps_done: int | None = None,
        after_ns: int = 0,
        known_steps: int | None = None,
        *,
        main: bool = True,
        choice: Choice = NO_CHOICE,
    ) -> Grant:
        """Attach a container that presents the token of `grant`, for the first time or again; not `main`: a further process of
        it, which neither begins nor resumes the run.

        The first time, it gets the devices and terms of `choice`. If another pod has one of these devices, it keeps those of its
        slots, and an event gives the reason.

        With `identity` None the pod is unknown, and the token alone is accepted. With `steps_done` None the process has
        just started: it resumes at its job's progress (`known_steps` is the progress that the cluster knows of). Otherwise
        the process reconnects. Then the result may be a grant whose run has ended: its final request was processed, and
        only the reply was lost; a further process never begins a run again. Raises RefusedError as `binding.decide` does,
        DeviceLostError, and ManagerUnavailableError for a container that begins too many runs; then nothing has changed.
        """
        if grant.ended or (not grant.live and (steps_done is not None or not main)):
            check_bound(grant, identity)
            return grant
        ledger = self._ledger
        displaced = decide(grant, identity, ledger.grants.all(), ledger.grants.marks)
        newly_bound, placement, problem = not grant.bound, None, ""
        exchange = Exchange(ledger.slots.devices(grant.slots), {})
        if newly_bound:
            placement = None if choice.allocation is None else self._placement(choice.allocation)
            exchange, problem = self._exchange(grant, placement, choice.is_gone)
        uuids = uuids_of(exchange.devices)
        ledger.pool.check(grant.holder, uuids)
        leaving = {other.holder for other in (*displaced.fenced, *displaced.suspended)}
        ledger.pool.check_room(grant.holder, uuids, leaving)
        if _begins_run(grant, steps_done, main=main):
            self._count_run(grant)
        for other in (other for other in displaced.fenced if not other.ended):
            self._displace(other, GrantState.FENCED, "a newer pod has attached to its devices")
        for other in displaced.suspended:
            self._suspend(other)
        known = max(ledger.known_progress(_job_key(grant, identity)), known_steps or 0)
        if grant.state is not GrantState.ATTACHED:
            ledger.move_slots(exchange.moved)
            grant.use(exchange.devices)
            grant.terms = _terms(grant, placement) or grant.terms
            self.on_devices(grant)
        self._bind(grant, identity)
        if problem:
            self._report(grant, problem)
        if newly_bound:
            grant.steps_done = grant.logged_steps = known
            ledger.record("granted", grant)
        elif steps_done is None and main:
            ledger.progress_to(grant, max(known, grant.steps_done))
        if steps_done is None and main:
            ledger.abandon_lease(grant)
        ledger.begin(grant, steps_done, after_ns, main=main)
        return grant

    def _count_run(self, grant: Grant) -> None:
        now_ns = self._ledger.clock.now_ns()
        if wait_ns := grant.runs.wait_ns(now_ns):
            raise ManagerUnavailableError(
                f"this container has begun {RUNS_AT_ONCE} runs in a short time; the next may begin in {to_s(wait_ns):.1f} s"
            )
        grant.runs.take(now_ns)

    # --- which devices ----------------------------------------------------------------------------------------------

    def _placement(self, allocation: Allocation) -> Placement:
        inventory = self._ledger.pool.inventory
        entries = () if inventory is None else tuple(inventory.entries())
        return placement_of(allocation, inventory.node if inventory else "", {e.device.uuid for e in entries})

    def _exchange(
        self, grant: Grant, placement: Placement | None, is_gone: Callable[[Grant], bool]
    ) -> tuple[Exchange, str]:
        """The devices for which the grant's slots are to stand, and why they aren't those of the scheduler, if so."""
        slots, own = self._ledger.slots, tuple(split_device_id(slot)[0] for slot in grant.slots)
        problem = ""
        if placement is not None and placement.devices and grant.slots:
            problem = self._unusable(placement, grant)
            if not problem:
                exchange = slots.exchange(grant.slots, placement.devices, self._ledger.held_slots)
                if exchange.missing and self._end_gone(exchange.holders, is_gone):
                    exchange = slots.exchange(grant.slots, placement.devices, self._ledger.held_slots)
                if not exchange.missing:
                    return exchange, ""
                problem = f"{', '.join(exchange.missing)} is held by {self._holders(exchange.holders)}"
        return slots.exchange(grant.slots, own, self._ledger.held_slots), problem

    def _unusable(self, placement: Placement, grant: Grant) -> str:
        """Why the pod can't have these devices, even if nobody holds them; empty if it can."""
        if len(placement.devices) != len(grant.slots):
            return f"it names {len(placement.devices)} devices of this node, and the container has {len(grant.slots)}"
        for uuid in placement.devices:
            device = self._ledger.pool.find(uuid)
            if device is None or device.resource != grant.resource:
                return f"{uuid} isn't one of the devices of {grant.resource}"
            if not device.healthy:
                return f"{uuid} is unhealthy: {device.reason}"
        return ""

    def _end_gone(self, slots: Collection[str], is_gone: Callable[[Grant], bool]) -> bool:
        """End the grants on these slots whose pods no longer exist; returns whether there were any."""
        grants = [g for g in self._ledger.grants.all() if g.bound and g.live and not g.of_owner]
        gone = [grant for grant in grants if not set(slots).isdisjoint(grant.slots) and is_gone(grant)]
        for grant in gone:
            self._displace(grant, GrantState.GONE, "its pod no longer holds the devices")
        return bool(gone)

    def _holders(self, slots: Collection[str]) -> str:
        grants = [g for g in self._ledger.grants.all() if g.bound and g.live and not g.of_owner]
        return ", ".join(sorted(g.name for g in grants if not set(slots).isdisjoint(g.slots))) or "nobody"

    def _report(self, grant: Grant, problem: str) -> None:
        """Emit an event for the pod: it runs on other devices than its scheduler chose. The node's log has no such event."""
        text = f"runs on {', '.join(grant.uuids)} and not where {ALLOCATION_ANNOTATION} says: {problem}"
        _log.warning("%s %s", grant.name, text)
        if grant.pod is not None:
            event = ManagerEvent(self._ledger.clock.now_ns(), "elsewhere", grant.job_id, grant.steps_done, detail=text)
            self._ledger.on_pod_event(grant.pod, event)

    def _bind(self, grant: Grant, identity: PodIdentity | None) -> None:
        """Bind the grant to the pod, and make it a holder of its devices."""
        ledger, holder = self._ledger, grant.holder
        attached = grant.state is GrantState.ATTACHED
        grant.bind(_job_key(grant, identity), _more_precise(identity, grant.pod))
        if attached and grant.holder == holder:
            return
        if attached:  # it was registered under another name
            ledger.pool.leave(holder, grant.uuids, ledger.clock.now_ns())
            ledger.shared.rebooked(grant.uuids)
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


def _begins_run(grant: Grant, steps_done: int | None, *, main: bool) -> bool:
    """Whether an attachment can lead to events: all but that of a process that connects again, with the steps that are known."""
    if grant.state is not GrantState.ATTACHED:
        return True
    return main and steps_done != grant.steps_done


def _terms(grant: Grant, placement: Placement | None) -> tuple[Terms, ...]:
    """The terms for each of the grant's devices; empty if the scheduler stated none, or for other devices. On devices that it
    didn't choose, a pod has the same terms."""
    if placement is None or len(placement.terms) != len(grant.uuids):
        return ()
    stated = dict(zip(placement.devices, placement.terms, strict=True))
    if stated.keys() != {*grant.uuids}:
        return placement.terms
    return tuple(stated[uuid] for uuid in grant.uuids)


def _job_key(grant: Grant, identity: PodIdentity | None) -> str:
    if identity is not None:
        return identity.job_key
    return grant.job_id or f"grant/{grant.digest[:32]}"


def _more_precise(identity: PodIdentity | None, before: PodIdentity | None) -> PodIdentity | None:
    """The current identity, unless only the earlier one has the container's name."""
    if identity is None or (before is not None and before.container and not identity.container):
        return before
    return identity
