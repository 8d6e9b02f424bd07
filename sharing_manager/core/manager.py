"""The decisions of the sharing manager: grants, leases, memory and progress. It uses no socket, no thread and no host
clock.

Every request is idempotent: a repeated grant for the same job and devices, a repeated lease for the same step, or a
repeated end of a run gets the same answer again.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Iterable
from dataclasses import replace

from emulator_runtime.domain.clock import Clock
from emulator_runtime.domain.errors import OutOfMemoryError, ProtocolError, RefusedError
from emulator_runtime.domain.gpu import Device
from emulator_runtime.domain.lease import Lease
from emulator_runtime.domain.stages import HostResource
from emulator_runtime.domain.units import MAX_SECONDS, NS_PER_S, to_ns, to_s
from emulator_runtime.domain.wording import shortened
from emulator_runtime.memory.rules import Reservation
from emulator_runtime.node.grant_files import token_digest
from emulator_runtime.node.inventory import Inventory
from emulator_runtime.sharing.demands import WHOLE_MILLI, Demand, Piece, Terms
from emulator_runtime.sharing.modes import FIFO
from sharing_manager.core.ledger import Ledger, OnEvent
from sharing_manager.core.pods import Pods
from sharing_manager.core.shared_time import Decision, SharedTime
from sharing_manager.devices.pool import DevicePool, held_until_ns
from sharing_manager.grants.grant import Grant, GrantState, derived_token
from sharing_manager.grants.session import MAX_SESSIONS, Session
from sharing_manager.persistence.event_log import EventLog
from sharing_manager.persistence.interval_table import IntervalTables
from sharing_manager.telemetry.model import NodeTelemetry
from sharing_manager.telemetry.snapshot import Counters, snapshot

STOP = Lease(0, 0, stop=True)
MAX_USE_NS = to_ns(MAX_SECONDS)
MAX_AHEAD_NS = 10 * NS_PER_S
"""How far ahead the use of a device may begin that a process reports."""
MAX_REASON = 256
"""Characters of the reason that a pod gives for its failure: it stays in the logs of node and cluster."""
AFTER_START_S = 30
"""How long after the manager's start demands may be late (host seconds): at least `PATIENCE_S` of ipc/client.py."""


class Manager:
    """The owner of a node's emulated GPUs. `on_event` is called after an event has been written to the log; `wall`
    returns the host's date and time for events, `late_ns` the emulated time of one second of the host. `pods` attaches the
    pods whose tokens the device plugin minted.

    Raises ClusterError if the log contains a grant of the node's owner for devices that the pool doesn't have.
    """

    def __init__(
        self,
        pool: DevicePool,
        log: EventLog,
        clock: Clock,
        on_event: OnEvent,
        *,
        tables: IntervalTables | None = None,
        wall: Callable[[], int] = lambda: 0,
        late_ns: Callable[[], int] = lambda: NS_PER_S,
    ) -> None:
        self._pool = pool
        self._log = log
        self._clock = clock
        tables = tables or IntervalTables()
        self._shared = SharedTime(pool, clock, tables.pieces, tables.half_served)
        self._ledger = Ledger(pool, log, clock, on_event, tables.leases, self._shared, wall=wall)
        self._grants = self._ledger.grants
        self._counters = Counters()
        self._late_ns, self._started_ns = late_ns, clock.now_ns()
        self.pods = Pods(self._ledger)
        self.on_stop: Callable[[Grant], None] = lambda _: None
        """Called with a grant whose run is to stop."""
        self.on_loss: Callable[[Grant, str, str], None] = lambda *_: None
        """Called with a grant that has lost a device, the device, and the reason."""
        self.on_shared: Callable[[Grant, str], None] = lambda *_: None
        """Called with a grant whose device is shared from now on."""
        self.on_revoked: Callable[[Grant], None] = lambda _: None
        """Called with a grant that its owner has ended."""

    # --- for the node's owner (a cluster, an administrator) ---------------------------------------------------------

    def grant(self, job_id: str, devices: Iterable[str], steps_done: int, terms: Iterable[Terms] = ()) -> Grant:
        """Grant devices to a job; `terms`: for each device, where it is shared. Raises RefusedError for a device that is unknown
        or held by another job, and DeviceLostError for an unhealthy one."""
        wanted = tuple(devices)
        has = self._grants.of_owner(job_id)
        if has is not None and has.live:
            if has.devices == wanted:
                return has
            raise RefusedError(f"job {job_id!r} holds other devices of this node already")
        if len(set(wanted)) < len(wanted):
            raise RefusedError(f"job {job_id!r} requests the same device twice")
        nonce = secrets.token_hex(16)
        digest = token_digest(derived_token(self._log.secret, nonce))
        now_ns = self._clock.now_ns()
        grant = Grant(
            digest,
            job_id,
            wanted,
            steps_done,
            now_ns,
            logged_steps=steps_done,
            nonce=nonce,
            terms=tuple(terms),
        )
        self._ledger.admit(grant)
        self._grants.add(grant)
        self._ledger.record("granted", grant)
        return grant

    def token_of(self, grant: Grant) -> str:
        """The token of an owner's grant."""
        return derived_token(self._log.secret, grant.nonce)

    def stop(self, job_id: str) -> None:
        """Ask a job to end after its current step."""
        for grant in self._live_of(job_id):
            if not grant.stopping:
                grant.stopping = True
                for session in grant.sessions:
                    self._shared.stop(session)
                self._ledger.record("stopping", grant)
                self.on_stop(grant)

    def revoke(self, job_id: str, reason: str) -> None:
        """Take a job's devices away at once, because its process has ended."""
        for grant in self._live_of(job_id):
            if grant.of_owner:
                self._end(grant, GrantState.FAILED, grant.steps_done, reason)
                self.on_revoked(grant)
            else:
                self.pods.end(grant, reason)

    def steps_done(self, job_id: str) -> int:
        """The steps that a job has completed. Raises RefusedError for a job that never ran on this node."""
        owners = self._grants.of_owner(job_id)
        if owners is not None:
            return owners.steps_done
        known = [grant.steps_done for grant in self._grants.of_job(job_id)]
        if (logged := self._log.progress(job_id)) is None and not known:
            raise RefusedError(f"job {job_id!r} has no grant on this node")
        return max([logged or 0, *known])

    def grants(self) -> list[Grant]:
        """The grants that may get leases and memory."""
        return [grant for grant in self._grants.all() if grant.live and grant.bound]

    def _live_of(self, job_id: str) -> list[Grant]:
        return [grant for grant in self._grants.of_job(job_id) if grant.live]

    def now_ns(self) -> int:
        """The emulated time now."""
        return self._clock.now_ns()

    # --- for the node -----------------------------------------------------------------------------------------------

    def apply_inventory(self, inventory: Inventory) -> None:
        """Replace the inventory. Writes an event for each holder that loses a device by this."""
        exclusive = {device.device.uuid for device in self._pool.all() if not device.mode.shared}
        losses = self._pool.apply_inventory(inventory)
        self._shared.restore()
        self._ledger.settle_slots()
        for loss in losses:
            for grant in self.grants():
                if grant.holder in loss.holders:
                    problem = f"device {loss.uuid} is lost: {loss.reason}"
                    self._ledger.record("device-lost", grant, problem)
                    self.on_loss(grant, loss.uuid, problem)
        for uuid in sorted(uuid for uuid in exclusive if self._pool.mode(uuid).shared):
            for grant in self.grants():
                if uuid in grant.uuids:
                    self.on_shared(grant, uuid)

    @property
    def inventory(self) -> Inventory | None:
        """The inventory that was applied last."""
        return self._pool.inventory

    def telemetry(self, only: Collection[str] | None = None) -> NodeTelemetry:
        """The current state of all devices, or of those in `only`. (The service adds the counts of connections.)"""
        devices = [device for device in self._pool.all() if only is None or device.device.uuid in only]
        return snapshot(devices, self.grants(), self._counters, self._clock.now_ns())

    # --- for jobs ---------------------------------------------------------------------------------------------------

    def find(self, token: str) -> Grant | None:
        """The grant of a token that this manager knows; its run may have ended."""
        return self._grants.find(token_digest(token))

    def attach(
        self, token: str, job_id: str | None, steps_done: int | None, after_ns: int, *, main: bool = True
    ) -> Grant:
        """Attach a job that presents the token of an owner's grant; not `main`: a further process of it. No lease of the
        main process starts before `after_ns` (the start of its last lease before a restart of the manager). With `job_id`
        None the token alone identifies the job.

        `steps_done` is the number of steps that the job has completed or read from its checkpoint. It is None if the job
        doesn't know (it attaches only to report a failure). The result may be a grant that has ended: then the job's final
        request was processed, and only the reply to it was lost. Raises RefusedError for an unknown token or the token of
        another job, and DeviceLostError.
        """
        grant = self.find(token)
        if grant is None or not grant.of_owner or (job_id is not None and grant.job_id != job_id):
            raise RefusedError("unknown token: it was never granted on this node, or its grant has ended")
        if grant.live:
            self._pool.check(grant.holder, grant.uuids)
            self._ledger.begin(grant, steps_done, after_ns, main=main)
        return grant

    def specs(self, session: Session) -> list[Device]:
        """The devices that the session uses."""
        return self._pool.specs(session.uuids)

    def shared(self, grant: Grant) -> bool:
        """Whether other holders may compute on one of the grant's devices."""
        return any(self._pool.mode(uuid).shared for uuid in grant.uuids)

    def resources_for(self, session: Session) -> list[HostResource]:
        """What the session may demand beside its devices; of a link it knows its own devices only."""
        managed = self._pool.resources_for(session.uuids)
        own = {each.name: tuple(uuid for uuid in session.uuids if uuid in each.resource.devices) for each in managed}
        return [replace(each.resource, devices=own[each.name]) for each in managed]

    def arbitrates(self, grant: Grant) -> bool:
        """Whether the grant's job shares something with others, so that the manager decides when it is served."""
        return self.shared(grant) or bool(self._pool.resources_for(grant.uuids))

    def whole_devices(self, grant: Grant) -> int:
        """How many whole devices the grant's parts of devices add up to; 1 at least."""
        devices = (self._pool.find(uuid) for uuid in grant.uuids)
        parts = [grant.terms_of(d.device.uuid, d.replicas).milli for d in devices if d is not None]
        return max(1, sum(parts) // WHOLE_MILLI)

    def mode_for(self, session: Session, uuid: str) -> str:
        """The name of the way in which a session shares one of its devices: with other holders, or with processes of its own
        container, which take turns."""
        mode = self._pool.mode(uuid)
        others = [other for other in session.grant.sessions if other is not session and other.connected]
        return FIFO.name if not mode.shared and any(uuid in other.uuids for other in others) else mode.name

    def free_ns(self, session: Session) -> int:
        """When the session's devices are free for it."""
        devices = (self._pool.find(uuid) for uuid in session.uuids)
        return max([session.floor_ns, *(device.free_at_ns() for device in devices if device is not None)])

    def open_session(self, grant: Grant, name: str, places: Iterable[int] | None = None, after_ns: int = 0) -> Session:
        """A process of an attached grant has connected: the main one ("" as its name), or a further one. `places`: which of
        the grant's devices it uses, if not all. `after_ns`: the start of its last time on a device, if it connects again. The
        result may be a session that the process has opened before; with other devices, it begins anew.

        Raises ProtocolError for a place that the grant doesn't have, and RefusedError for too many sessions.
        """
        wanted = None if places is None else tuple(dict.fromkeys(places))
        if wanted is not None and any(place >= len(grant.uuids) for place in wanted):
            raise ProtocolError(f"field 'devices': {grant.name} has {len(grant.uuids)} devices, counted from 0")
        session = grant.named.get(name) if name else grant.main
        if session is None:
            if len(grant.named) >= MAX_SESSIONS:
                raise RefusedError(f"{grant.name} has {MAX_SESSIONS} sessions open; end some")
            now_ns = self._clock.now_ns()
            session = grant.named[name] = Session(grant, name, since_ns=min(after_ns or now_ns, now_ns))
        only = None if wanted is None else tuple(grant.uuids[place] for place in wanted)
        if session.opened and {*session.uuids} != {*(grant.uuids if only is None else only)}:
            self._pool.free_memory(session.key, session.uuids)
            self._shared.leave_session(session)
        session.opened, session.only = True, only
        self._shared.claim(session)
        return session

    def close_session(self, session: Session) -> None:
        """The session's connection was closed. Its memory is freed. The grant's main session stays until its process reconnects
        or the grant ends; others end."""
        session.pid, session.connected = 0, False
        if session.grant.live:
            self._pool.free_memory(session.key, session.uuids)
            if session.name:
                self._shared.leave_session(session)
        if session.name:
            session.grant.named.pop(session.name, None)

    def reserve(self, session: Session, wanted: Reservation, uuid: str = "") -> None:
        """Reserve memory on each of the session's devices, or on one of them. Raises OutOfMemoryError, DeviceLostError, or
        RefusedError if the grant has ended."""
        grant, uuids = session.grant, _named(session, uuid)
        _check_live(grant)
        if wanted.peak_bytes < wanted.persistent_bytes:
            raise ProtocolError("field 'peak_bytes' must not be below 'persistent_bytes'")
        self._pool.check(grant.holder, uuids)
        try:
            self._pool.reserve(session.key, uuids, wanted)
        except OutOfMemoryError as error:
            if not grant.oom_logged:  # log it once per run, however often the job asks
                grant.oom_logged = True
                self._ledger.record("oom", grant, str(error))
            raise

    def lease(self, grant: Grant, step: int, duration_ns: int, issue_ns: int) -> Lease:
        """Grant device time for step `step` (0-based), which was issued at `issue_ns`. The request implies that all
        earlier steps are done. Returns STOP if the job is asked to end its run.

        Raises ProtocolError for a step out of order; for a step whose predecessor still runs, or whose issue time is in the
        future (both would block the device for all others until then); and for a step that is too long on a shared
        device. Raises DeviceLostError, and RefusedError if the grant has ended.
        """
        _check_live(grant)
        if step == grant.last_step and grant.last_lease is not None:
            return grant.last_lease
        if step != grant.steps_done and not (step == grant.steps_done + 1 and grant.last_step == grant.steps_done):
            raise ProtocolError(f"step {step} is out of order: {grant.steps_done} steps are done")
        now_ns = self._clock.now_ns()
        lag_ns = now_ns - issue_ns
        if grant.last_lease is not None and grant.last_lease.end_ns > now_ns:
            raise ProtocolError(
                f"step {step} is asked for {grant.last_lease.end_ns - now_ns} ns before the step before it ends; wait for that"
            )
        if lag_ns < 0:
            raise ProtocolError(
                f"step {step} is issued {-lag_ns} ns in the future; give job and manager the same EMUGPU clock"
            )
        self._pool.check(grant.holder, grant.uuids)
        for uuid in grant.uuids:
            mode = self._pool.mode(uuid)
            if mode.shared and mode.name != "fifo":
                raise ProtocolError(
                    f"a device is shared by mode {mode.name}: demand its time (version 3 of the protocol)"
                )
            if mode.shared:
                self._pool.check_length(uuid, duration_ns)
        self._ledger.progress_to(grant, step)
        if grant.stopping:
            return STOP
        lease = self._pool.lease(grant.holder, grant.uuids, max(issue_ns, grant.floor_ns), duration_ns, now_ns)
        grant.main.used_until_ns = dict.fromkeys(grant.main.uuids, held_until_ns(lease, now_ns))
        self._shared.rebooked(grant.uuids)
        self._ledger.record_lease(grant, step, lease, duration_ns)
        self._counters.add(lag_ns)
        return lease

    def demand(self, session: Session, uuid: str, wanted: Demand) -> None:
        """Queue a demand for a device; `decide` answers it. A demand after the stop of the run isn't answered: the job has
        a message about the stop (`on_stop`).

        A demand that comes more than a second of the host after it was ready counts as ready a second ago: otherwise a job could
        claim the time in which the device was idle, or be first in any line. After the manager's own start it takes the stated
        time, since the job could not reach it.

        Raises ProtocolError as SharedTime.demand does, DeviceLostError, and RefusedError if the grant has ended.
        """
        grant = session.grant
        _check_live(grant)
        managed = self._pool.resources.get(uuid)
        if managed is None or not (managed.serves(session.uuids) or self._shared.knows(grant, uuid)):
            self._pool.check(grant.holder, _named(session, uuid))
        now_ns, late_ns = self._clock.now_ns(), self._late_ns()
        lag_ns = max(0, now_ns - wanted.ready_ns)
        self._counters.add(lag_ns)
        if now_ns > self._started_ns + AFTER_START_S * late_ns:
            self._shared.forget_unclaimed()
            if lag_ns > late_ns:
                self._counters.late += 1
                wanted = wanted._replace(ready_ns=now_ns - late_ns)
        self._shared.demand(session, uuid, wanted, now_ns)

    def report_steps(self, session: Session, steps_done: int) -> None:
        """The job has completed `steps_done` steps; a lower number than before is an old message. Raises RefusedError if the
        grant has ended, or for a further process."""
        _check_live(session.grant)
        check_speaks(session)
        self._ledger.progress_to(session.grant, max(steps_done, session.grant.steps_done))

    def report_use(self, session: Session, used: Piece, uuid: str = "", steps_done: int | None = None) -> None:
        """The session's exclusive devices, or the one that is named, work for it in the interval `used`. (A shared or lost device
        isn't counted: it became so while the message was under way; of an interval without any other nothing is kept.)
        `steps_done`: as for report_steps.

        Raises ProtocolError for an interval that ends before it begins, does more work than it is long, or is longer than
        MAX_SECONDS, or begins more than MAX_AHEAD_NS from now; RefusedError if the grant has ended.
        """
        grant, now_ns = session.grant, self._clock.now_ns()
        _check_live(grant)
        if steps_done is not None:
            self.report_steps(session, steps_done)
        uuids, lease = _named(session, uuid), Lease(used.start_ns, used.end_ns)
        if not used.work_ns <= used.end_ns - used.start_ns <= MAX_USE_NS:
            raise ProtocolError(f"{used.work_ns} ns of work from {used.start_ns} to {used.end_ns} ns is impossible")
        if used.start_ns > now_ns + MAX_AHEAD_NS:
            raise ProtocolError(
                f"use from {used.start_ns} ns on is more than {to_s(MAX_AHEAD_NS):g} s ahead of {now_ns} ns, the present"
            )
        own = [each for each in uuids if self._pool.is_own(grant.holder, each)]
        for each in own:
            self._pool.book(grant.holder, each, lease, now_ns, work_ns=used.work_ns)
            session.used_until_ns[each] = held_until_ns(lease, now_ns)
        if own or not grant.uuids:
            if steps_done is None:
                grant.leased_ns += used.work_ns
            else:
                self._ledger.record_lease(grant, steps_done, lease, used.work_ns)
        self._counters.add(0)

    def last_number(self, session: Session) -> int:
        """The number of the last demand that is answered to a session whose run is asked to stop."""
        return self._shared.stop(session)

    def decide(self, until_ns: int) -> list[Decision]:
        """The answers to demands that are due by `until_ns`."""
        return self._shared.decide(until_ns)

    def next_decision_ns(self) -> int | None:
        """When `decide` has something to do; None: not before another demand."""
        return self._shared.next_ns()

    def release(self, grant: Grant, steps_done: int) -> None:
        """The job has written its checkpoint and returns its devices."""
        self._end(grant, GrantState.RELEASED, steps_done, "")

    def finish(self, grant: Grant, steps_done: int) -> None:
        """The job has completed its last step."""
        self._end(grant, GrantState.FINISHED, steps_done, "")

    def fail(self, grant: Grant, reason: str) -> None:
        """The job reports that it has failed, with the reason; a pod's is cut to MAX_REASON characters."""
        reason = reason if grant.of_owner else shortened(reason, MAX_REASON)
        self._end(grant, GrantState.FAILED, grant.steps_done, reason)

    def _end(self, grant: Grant, state: GrantState, steps_done: int, reason: str) -> None:
        if grant.state is state:
            return
        _check_live(grant)
        grant.steps_done = max(grant.steps_done, steps_done)
        self._ledger.end(grant, state, reason)

    # --- progress ---------------------------------------------------------------------------------------------------

    @property
    def has_unlogged_progress(self) -> bool:
        return self._ledger.has_unlogged_progress

    def flush_progress(self) -> None:
        """Write the steps that were completed since the last flush, as one range per job."""
        self._ledger.flush_progress()


def check_speaks(session: Session) -> None:
    """Raises RefusedError for a process that reports what only the job's main session may report."""
    if session.name:
        raise RefusedError(f"process {session.name} doesn't speak for {session.grant.name}: its main session does")


def _named(session: Session, uuid: str) -> tuple[str, ...]:
    """The session's devices, or the one that is named. Raises ProtocolError for a device that isn't the session's."""
    if uuid and uuid not in session.uuids:
        raise ProtocolError(f"field 'resource': {uuid} is no device of {session.grant.name}")
    return (uuid,) if uuid else session.uuids


def _check_live(grant: Grant) -> None:
    """A job may still be connected after its grant has ended. Raises RefusedError, so that it gets nothing more."""
    if not grant.live:
        raise RefusedError(f"the grant of {grant.name} has ended ({grant.state})")
