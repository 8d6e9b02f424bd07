"""The books of a node: every change to a grant is made here, in the pool, in memory and in the log, in this order."""

from __future__ import annotations

from collections.abc import Callable

from emulator_runtime.domain.clock import Clock
from emulator_runtime.domain.errors import ClusterError, DeviceLostError, RefusedError
from emulator_runtime.domain.lease import Lease
from sharing_manager.devices import DevicePool
from sharing_manager.event_log import EventLog, ManagerEvent
from sharing_manager.grants import Grant, GrantState
from sharing_manager.identity import PodIdentity
from sharing_manager.lease_book import LeaseBook
from sharing_manager.registry import Registry

OnEvent = Callable[[ManagerEvent], None]
VOID = -1
"""The step of a lease that took device time, but is no answer to a request any more."""


class Ledger:
    """Grants with what they hold. `on_event` is called after an event is safely in the log; `wall` is the host's date.

    Restores first what was promised before. Raises ClusterError where an owner's job was promised devices that the pool
    can't give (a pod's are given when it attaches again: the inventory may come later).
    """

    def __init__(
        self,
        pool: DevicePool,
        log: EventLog,
        clock: Clock,
        on_event: OnEvent,
        leases: LeaseBook,
        *,
        wall: Callable[[], int],
    ) -> None:
        self.pool, self.log, self.clock, self.wall = pool, log, clock, wall
        self._on_event = on_event
        self._leases = leases
        self.on_pod_event: Callable[[PodIdentity, ManagerEvent], None] = lambda *_: None
        """Told as well, where the event is about a pod."""
        self.grants = Registry()
        self._unlogged: dict[str, Grant] = {}
        self._restore()

    # --- from before the restart --------------------------------------------------------------------------------------

    def _restore(self) -> None:
        for grant in self.log.grants():
            if self._leases.new_epoch:
                grant.floor_ns = 0  # of a clock that counted from another boot
            if grant.live:
                self._admit_again(grant)
            self.grants.add(grant)
            if grant.over:
                self._leases.forget(grant.digest)
        self._restore_leases()

    def _admit_again(self, grant: Grant) -> None:
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
        """The device time that was given; and who asked for a step had done all before, whether that was logged or not."""
        leases = sorted(self._leases.leases().items(), key=lambda item: item[1][1].start_ns)
        for digest, (step, lease) in leases:
            grant = self.grants.find(digest)
            if grant is None or grant.over:
                self._leases.forget(digest)
                continue
            grant.floor_ns = max(grant.floor_ns, lease.end_ns)
            if grant.live and step != VOID:
                grant.last_step, grant.last_lease = step, lease
                self.progress_to(grant, max(step, grant.steps_done))
            self.pool.restore(grant.holder, grant.uuids, lease)

    # --- changes ------------------------------------------------------------------------------------------------------

    def admit(self, grant: Grant) -> None:
        """It holds its devices from now on. Raises RefusedError where one is taken or unknown, DeviceLostError."""
        self.pool.admit(grant.holder, grant.uuids)
        try:
            self.pool.check(grant.holder, grant.uuids)
        except DeviceLostError:
            self.pool.leave(grant.holder, grant.uuids, self.clock.now_ns())
            raise

    def begin(self, grant: Grant, steps_done: int | None, after_ns: int) -> None:
        """Its job is connected. Where that knows how many steps are done, it knows it best."""
        grant.floor_ns = max(grant.floor_ns, min(after_ns, self.clock.now_ns()))
        grant.told_full = False
        if steps_done is not None and steps_done != grant.steps_done:
            self.forget_lease(grant)
            self.progress_to(grant, steps_done)
        if grant.state is not GrantState.ATTACHED:
            grant.state = GrantState.ATTACHED
            self.record("attached", grant, ",".join(grant.devices))

    def note_lease(self, grant: Grant, step: int, lease: Lease) -> None:
        """It was given this device time. Kept before the job hears of it."""
        grant.floor_ns = lease.end_ns
        grant.leased_ns += lease.end_ns - lease.start_ns
        grant.last_step, grant.last_lease = step, lease
        self._leases.note(grant.digest, step, lease)

    def forget_lease(self, grant: Grant) -> None:
        """A request for the same step is another one from now on; the device time stays used."""
        if grant.digest in self._unlogged:  # what the lease told of it won't be found there after a restart
            self.record("progress", grant)
        if grant.last_lease is not None:
            self._leases.note(grant.digest, VOID, grant.last_lease)
        grant.last_step, grant.last_lease = VOID, None

    def abandon_lease(self, grant: Grant) -> None:
        """Whoever asked for it is no more: time that hasn't passed is given back, and it is nobody's answer any more."""
        now_ns = self.clock.now_ns()
        self.pool.cut(grant.holder, grant.uuids, now_ns)
        self.forget_lease(grant)
        self._leases.forget(grant.digest)
        grant.floor_ns = now_ns

    def progress_to(self, grant: Grant, steps_done: int) -> None:
        """So many steps are done. Written with the next flush."""
        if steps_done != grant.steps_done:
            grant.steps_done = steps_done
            self._unlogged[grant.digest] = grant

    def end(self, grant: Grant, state: GrantState, reason: str) -> None:
        """A run is over, or the grant: it holds nothing any more."""
        self._yield_devices(grant, state, str(state), reason)
        if grant.over:
            self.log.forget(self.grants.ended(grant))

    def suspend(self, grant: Grant, reason: str) -> None:
        """It holds nothing until it attaches again."""
        self._yield_devices(grant, GrantState.GRANTED, "suspended", reason)

    def _yield_devices(self, grant: Grant, state: GrantState, kind: str, reason: str) -> None:
        """It has neither time nor memory from now on, and what it was given and hasn't used yet is cut off now."""
        if grant.live and (grant.of_owner or grant.state is GrantState.ATTACHED):
            self.pool.leave(grant.holder, grant.uuids, self.clock.now_ns())
        grant.state, grant.stopping = state, False
        grant.last_step, grant.last_lease = VOID, None
        self.record(kind, grant, reason)
        self._leases.forget(grant.digest)  # not before its progress is in the log

    # --- progress and events ------------------------------------------------------------------------------------------

    @property
    def has_unlogged_progress(self) -> bool:
        return bool(self._unlogged)

    def flush_progress(self) -> None:
        """Write the steps that were done since the last flush, one range per grant."""
        for grant in sorted(self._unlogged.values(), key=lambda grant: grant.holder):
            self.record("progress", grant)

    def known_progress(self, job_id: str) -> int:
        """The most steps that this node knows any grant of this job to have come to."""
        known = [grant.steps_done for grant in self.grants.of_job(job_id)]
        return max([self.log.progress(job_id) or 0, *known])

    def record(self, kind: str, grant: Grant, detail: str = "") -> None:
        """Write an event about this grant, with the steps that weren't written yet."""
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
