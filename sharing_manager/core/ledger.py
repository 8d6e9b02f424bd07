"""The records of a node: each change of a grant is made here, in this order: in the pool, in memory, in the event log."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from emulator_runtime.domain.clock import Clock
from emulator_runtime.domain.errors import ClusterError, DeviceLostError, RefusedError
from emulator_runtime.domain.lease import Lease
from sharing_manager.core.shared_time import SharedTime
from sharing_manager.devices.pool import DevicePool, held_until_ns
from sharing_manager.devices.slots import Slots
from sharing_manager.grants.grant import Grant, GrantState
from sharing_manager.grants.identity import PodIdentity
from sharing_manager.grants.registry import Registry
from sharing_manager.persistence.event_log import EventLog, ManagerEvent
from sharing_manager.persistence.interval_table import IntervalTable

OnEvent = Callable[[ManagerEvent], None]
VOID = -1
"""Step number of a lease that has used device time but is no longer the answer to a repeated request."""


class Ledger:
    """The grants with their devices. `on_event` is called after an event has been written to the log; `wall` returns the
    host's date and time.

    The constructor restores the grants from before a restart. Raises ClusterError if an owner's grant has devices that the
    pool doesn't have. (A pod's grant is admitted when the pod attaches again, because the inventory may arrive later.)
    """

    def __init__(
        self,
        pool: DevicePool,
        log: EventLog,
        clock: Clock,
        on_event: OnEvent,
        leases: IntervalTable,
        shared: SharedTime,
        *,
        wall: Callable[[], int],
    ) -> None:
        self.pool, self.log, self.clock, self.wall = pool, log, clock, wall
        self._on_event = on_event
        self._leases, self.shared = leases, shared
        self.on_pod_event: Callable[[PodIdentity, ManagerEvent], None] = lambda *_: None
        """Called in addition to `on_event` for events about a pod."""
        self.on_slots: Callable[[], None] = lambda: None
        """Called when slots stand for other devices."""
        self.grants = Registry()
        self.slots = Slots(log.slots())
        self._unlogged: dict[str, Grant] = {}
        self._restore()

    # --- restoring after a restart ----------------------------------------------------------------------------------

    def _restore(self) -> None:
        for grant in self.log.grants():
            grant.use(self.slots.devices(grant.slots))
            if self._leases.new_epoch:
                grant.floor_ns = 0  # the value is a time of a clock that started at an earlier boot
            if grant.live:
                self._readmit(grant)
            self.grants.add(grant)
            if grant.ended:
                self._leases.forget(grant.digest)
        self._restore_leases()
        self.settle_slots()

    def _readmit(self, grant: Grant) -> None:
        if not grant.of_owner and grant.state is not GrantState.ATTACHED:
            return
        try:
            self.pool.admit(grant.holder, grant.uuids)
        except RefusedError as error:
            if not grant.of_owner:
                grant.state = GrantState.GRANTED
                return
            fix = "restore the inventory and the sharing mode, or move the event log away"
            raise ClusterError(
                f"job {grant.job_id!r} was granted devices before the restart: {error}; {fix}"
            ) from error

    def _restore_leases(self) -> None:
        """Restore the leases. A lease for step n implies that steps 0 to n - 1 are done, even if the log doesn't have
        them yet."""
        leases = sorted(self._leases.intervals().items(), key=lambda item: item[1][1].start_ns)
        for digest, (step, lease) in leases:
            grant = self.grants.find(digest)
            if grant is None or grant.ended:
                self._leases.forget(digest)
                continue
            grant.floor_ns = max(grant.floor_ns, lease.end_ns)
            if grant.live and step != VOID:
                grant.last_step, grant.last_lease = step, lease
                self.progress_to(grant, max(step, grant.steps_done))
            self.pool.restore(grant.holder, grant.uuids, lease)
            grant.main.used_until_ns = dict.fromkeys(grant.main.uuids, held_until_ns(lease))

    # --- changes ----------------------------------------------------------------------------------------------------

    def admit(self, grant: Grant) -> None:
        """Make the grant a holder of its devices. Raises RefusedError if one is taken or unknown, and DeviceLostError."""
        self.pool.admit(grant.holder, grant.uuids)
        try:
            self.pool.check(grant.holder, grant.uuids)
        except DeviceLostError:
            self.pool.leave(grant.holder, grant.uuids, self.clock.now_ns())
            raise

    def begin(self, grant: Grant, steps_done: int | None, after_ns: int, *, main: bool = True) -> None:
        """The grant's job has connected; not `main`: a further process of it. Its own number of completed steps, if it sent
        one, replaces the recorded number."""
        if main:
            grant.floor_ns = max(grant.floor_ns, min(after_ns, self.clock.now_ns()))
        if steps_done is not None and steps_done != grant.steps_done:
            if steps_done < grant.steps_done:  # not after a lost connection: demands are numbered from anew
                self.shared.leave_session(grant.main)
            self.forget_lease(grant)
            self.progress_to(grant, steps_done)
        if grant.state is not GrantState.ATTACHED:
            grant.state, grant.oom_logged = GrantState.ATTACHED, False
            self.record("attached", grant, ",".join(grant.devices))

    def record_lease(self, grant: Grant, step: int, lease: Lease, work_ns: int) -> None:
        """Record time of the grant's devices, in which it does step `step`; the steps before are done."""
        grant.floor_ns = lease.end_ns
        grant.leased_ns += work_ns
        grant.last_step, grant.last_lease = step, lease
        self._leases.record(grant.digest, step, lease)

    def forget_lease(self, grant: Grant) -> None:
        """Forget the answer: the next request for the same step gets a new lease. The device time stays used."""
        # its progress follows only from the lease, so write it to the log before the lease is void
        if grant.digest in self._unlogged:
            self.record("progress", grant)
        if grant.last_lease is not None:
            self._leases.record(grant.digest, VOID, grant.last_lease)
        grant.last_step, grant.last_lease = VOID, None

    def abandon_lease(self, grant: Grant) -> None:
        """The main process has ended: return its time after now, and forget the answer."""
        now_ns = self.clock.now_ns()
        grant.oom_logged = False
        self.shared.leave_session(grant.main)
        self.forget_lease(grant)
        self._leases.forget(grant.digest)
        grant.floor_ns = now_ns

    def progress_to(self, grant: Grant, steps_done: int) -> None:
        """Set the number of completed steps. The next flush writes it to the log."""
        if steps_done != grant.steps_done:
            grant.steps_done = steps_done
            self._unlogged[grant.digest] = grant

    def end(self, grant: Grant, state: GrantState, reason: str) -> None:
        """End a run, or the grant: it gives up its devices and memory."""
        self._yield_devices(grant, state, str(state), reason)
        if grant.ended:
            self.log.forget(self.grants.record_end(grant))

    def suspend(self, grant: Grant, reason: str) -> None:
        """Take the devices and memory from the grant until it attaches again."""
        self._yield_devices(grant, GrantState.GRANTED, "suspended", reason)

    def _yield_devices(self, grant: Grant, state: GrantState, kind: str, reason: str) -> None:
        """Remove the grant from its devices, and return its unused leases."""
        if grant.live and (grant.of_owner or grant.state is GrantState.ATTACHED):
            self.shared.leave(grant)
            for session in grant.sessions:
                self.pool.free_memory(session.key, session.uuids)
            self.pool.leave(grant.holder, grant.uuids, self.clock.now_ns())
        else:
            self.pool.cut(grant.holder, grant.uuids, self.clock.now_ns())  # what it had before a restart
        self.shared.rebooked(grant.uuids)
        grant.state, grant.stopping = state, False
        grant.last_step, grant.last_lease = VOID, None
        self.record(kind, grant, reason)
        self._leases.forget(grant.digest)  # after its progress has been written to the log

    # --- slots ------------------------------------------------------------------------------------------------------

    @property
    def held_slots(self) -> set[str]:
        """The slots of pods that hold their devices, or will when they have connected again."""
        held = (grant for grant in self.grants.all() if grant.live and grant.bound and not grant.of_owner)
        return {slot for grant in held for slot in grant.slots}

    def move_slots(self, moved: Mapping[str, str]) -> None:
        """Give slots other devices, in the log first: whatever is granted after a restart must follow from it."""
        if moved:
            slots = Slots(self.slots.moved)
            slots.apply(moved)
            self.log.write_slots(slots.moved)
            self.slots.apply(moved)
            for grant in self.grants.all():
                if grant.state is not GrantState.ATTACHED and not grant.of_owner:
                    grant.use(self.slots.devices(grant.slots))
            self.on_slots()

    def settle_slots(self) -> None:
        """Fit the slots to the pool's inventory."""
        inventory = self.pool.inventory
        if inventory is not None and self.slots.settle(inventory, self.held_slots):
            self.log.write_slots(self.slots.moved)
            self.on_slots()

    # --- progress and events ----------------------------------------------------------------------------------------

    @property
    def has_unlogged_progress(self) -> bool:
        return bool(self._unlogged)

    def flush_progress(self) -> None:
        """Write the steps that were completed since the last flush, as one range per grant."""
        for grant in sorted(self._unlogged.values(), key=lambda grant: grant.holder):
            self.record("progress", grant)

    def known_progress(self, job_id: str) -> int:
        """The highest number of completed steps among this job's grants on this node."""
        known = [grant.steps_done for grant in self.grants.of_job(job_id)]
        return max([self.log.progress(job_id) or 0, *known])

    def record(self, kind: str, grant: Grant, detail: str = "") -> None:
        """Write an event about this grant, together with its progress that isn't in the log yet."""
        event = ManagerEvent(
            at_ns=self.clock.now_ns(),
            kind=kind,
            job_id=grant.job_id,
            steps_done=grant.steps_done,
            from_step=grant.logged_steps,
            detail=detail,
            wall_ns=self.wall(),
            namespace=grant.pod.namespace if grant.pod is not None else "",
            pod=grant.pod.pod if grant.pod is not None else "",
        )
        self._unlogged.pop(grant.digest, None)
        grant.logged_steps = grant.steps_done
        recorded = self.log.record(event, grant)
        self._on_event(recorded)
        if grant.pod is not None:
            self.on_pod_event(grant.pod, recorded)
