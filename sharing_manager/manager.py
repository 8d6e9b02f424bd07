"""What the sharing manager decides: grants, leases, memory and progress. No socket, no thread, no host clock in here.

Every request may come twice: a grant for the same job and devices, a lease for the same step, an end that was already
noted give the same answer again.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Iterable

from emulator_runtime.domain.clock import Clock
from emulator_runtime.domain.errors import OutOfMemoryError, ProtocolError, RefusedError
from emulator_runtime.domain.gpu import Device
from emulator_runtime.domain.lease import Lease
from emulator_runtime.domain.units import NS_PER_S, to_s
from emulator_runtime.memory.admission import Reservation
from emulator_runtime.node.grant_files import token_digest
from emulator_runtime.node.inventory import Inventory
from sharing_manager.devices import DevicePool
from sharing_manager.event_log import EventLog
from sharing_manager.grants import Grant, GrantState, derived_token
from sharing_manager.lease_book import LeaseBook, MemoryLeases
from sharing_manager.ledger import Ledger, OnEvent
from sharing_manager.pods import Pods
from sharing_manager.snapshot import Counters, snapshot
from sharing_manager.telemetry import NodeTelemetry

STOP = Lease(0, 0, stop=True)
MAX_SHARED_NS = 600 * NS_PER_S
"""The longest step on a shared device: who has queued behind it waits for its end, whatever becomes of its job."""


class Manager:
    """The owner of a node's emulated GPUs. `on_event` is called after an event is safely in the log; `wall` gives the
    events the host's date and time. `pods` attaches those whose tokens the device plugin minted.

    Raises ClusterError where the log promises devices to an owner's job that the pool can't give.
    """

    def __init__(
        self,
        pool: DevicePool,
        log: EventLog,
        clock: Clock,
        on_event: OnEvent,
        *,
        leases: LeaseBook | None = None,
        wall: Callable[[], int] = lambda: 0,
    ) -> None:
        self._pool = pool
        self._log = log
        self._clock = clock
        self._ledger = Ledger(pool, log, clock, on_event, leases or MemoryLeases(), wall=wall)
        self._grants = self._ledger.grants
        self._counters = Counters()
        self.pods = Pods(self._ledger)

    # --- for the node's owner (a cluster, an administrator) ---------------------------------------------------------

    def grant(self, job_id: str, devices: Iterable[str], steps_done: int) -> Grant:
        """Give devices to a job. Raises RefusedError for an unknown device or one that is taken, DeviceLostError for an
        unhealthy one."""
        wanted = tuple(devices)
        has = self._grants.of_owner(job_id)
        if has is not None and has.live:
            if has.devices == wanted:
                return has
            raise RefusedError(f"job {job_id!r} holds other devices of this node already")
        if len(set(wanted)) < len(wanted):
            raise RefusedError(f"job {job_id!r} asks for the same device twice")
        nonce = secrets.token_hex(16)
        digest = token_digest(derived_token(self._log.secret, nonce))
        now_ns = self._clock.now_ns()
        grant = Grant(digest, job_id, wanted, steps_done, now_ns, logged_steps=steps_done, nonce=nonce)
        self._ledger.admit(grant)
        self._grants.add(grant)
        self._ledger.record("granted", grant)
        return grant

    def token_of(self, grant: Grant) -> str:
        """The token of an owner's grant."""
        if not grant.nonce:  # from a log that kept tokens: whoever asks has lost it, so it gets another one
            self._log.forget([grant.digest])
            self._grants.remove(grant)
            grant.nonce = secrets.token_hex(16)
            grant.digest = token_digest(derived_token(self._log.secret, grant.nonce))
            self._grants.add(grant)
            self._ledger.record("granted", grant)
        return derived_token(self._log.secret, grant.nonce)

    def stop(self, job_id: str) -> None:
        """Ask a job to end after its current step."""
        for grant in self._live_of(job_id):
            if not grant.stopping:
                grant.stopping = True
                self._ledger.record("stopping", grant)

    def revoke(self, job_id: str, reason: str) -> None:
        """Take a job's devices away at once, because its process is gone."""
        for grant in self._live_of(job_id):
            if grant.of_owner:
                self._end(grant, GrantState.FAILED, grant.steps_done, reason)
            else:
                self.pods.end(grant, reason)

    def steps_done(self, job_id: str) -> int:
        """Raises RefusedError for a job that was never here."""
        owners = self._grants.of_owner(job_id)
        if owners is not None:
            return owners.steps_done
        known = [grant.steps_done for grant in self._grants.of_job(job_id)]
        if (logged := self._log.progress(job_id)) is None and not known:
            raise RefusedError(f"job {job_id!r} has no grant on this node")
        return max([logged or 0, *known])

    def grants(self) -> list[Grant]:
        """The grants that may get time and memory."""
        return [grant for grant in self._grants.all() if grant.live and grant.bound]

    def _live_of(self, job_id: str) -> list[Grant]:
        return [grant for grant in self._grants.of_job(job_id) if grant.live]

    # --- for the node -------------------------------------------------------------------------------------------------

    def apply_inventory(self, inventory: Inventory) -> None:
        """Have these devices from now on; for each holder of a device that is lost by it there is an event."""
        for loss in self._pool.apply_inventory(inventory):
            for grant in self.grants():
                if grant.holder in loss.holders:
                    self._ledger.record("device-lost", grant, f"device {loss.uuid} is lost: {loss.reason}")

    def telemetry(self, only: Collection[str] | None = None) -> NodeTelemetry:
        """What there is to tell at this moment of all devices, or of `only` these (connections are the service's to add)."""
        devices = [device for device in self._pool.all() if only is None or device.device.uuid in only]
        return snapshot(devices, self.grants(), self._counters, self._clock.now_ns())

    # --- for jobs -----------------------------------------------------------------------------------------------------

    def find(self, token: str) -> Grant | None:
        """The grant of a token that is known here; its run may have ended."""
        return self._grants.find(token_digest(token))

    def attach(self, token: str, job_id: str | None, steps_done: int | None, after_ns: int) -> Grant:
        """A job presents the token that the owner got for it; before `after_ns` (the start of its last lease) a restarted
        manager gives no time. `job_id` None: the token says which job it is.

        `steps_done` is what the job has done or finds in its checkpoint; None: it doesn't know (it comes to give up).
        The answer may be a grant that has ended: the job's last word was heard, only the reply to it was lost.
        Raises RefusedError for an unknown token, or one of another job, and DeviceLostError.
        """
        grant = self.find(token)
        if grant is None or not grant.of_owner or (job_id is not None and grant.job_id != job_id):
            raise RefusedError("unknown token: it was never granted on this node, or its grant has ended")
        if grant.live:
            self._pool.check(grant.holder, grant.uuids)
            self._ledger.begin(grant, steps_done, after_ns)
        return grant

    def devices_of(self, grant: Grant) -> list[Device]:
        return self._pool.specs(grant.uuids)

    def shared(self, grant: Grant) -> bool:
        """Whether others may compute on one of its devices."""
        devices = (self._pool.find(uuid) for uuid in grant.uuids)
        return any(device is not None and device.replicas > 1 for device in devices)

    def reserve(self, grant: Grant, wanted: Reservation) -> None:
        """Memory on each of the grant's devices. Raises OutOfMemoryError, DeviceLostError, or RefusedError where the grant
        has ended."""
        _check_live(grant)
        if wanted.peak_bytes < wanted.persistent_bytes:
            raise ProtocolError("field 'peak_bytes' must not be below 'persistent_bytes'")
        self._pool.check(grant.holder, grant.uuids)
        try:
            self._pool.reserve(grant.holder, grant.uuids, wanted)
        except OutOfMemoryError as error:
            if not grant.told_full:  # once per run: whoever asks again and again fills no log with it
                grant.told_full = True
                self._ledger.record("oom", grant, str(error))
            raise

    def lease(self, grant: Grant, step: int, duration_ns: int, issue_ns: int) -> Lease:
        """Device time for step `step` (0-based), issued at `issue_ns`; asking for it says that all steps before are done.

        Answers with STOP where the job is to end its run. Raises ProtocolError for a step out of order, one whose predecessor
        still runs, or an issue in the future (each would keep the device from all others until then), and for a step of
        more than MAX_SHARED_NS on a shared device; DeviceLostError; RefusedError where the grant has ended.
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
        if duration_ns > MAX_SHARED_NS and self.shared(grant):
            limit_s = to_s(MAX_SHARED_NS)
            raise ProtocolError(
                f"a step of {to_s(duration_ns):g} s on a shared device; at most {limit_s:g} s, others wait for it"
            )
        self._ledger.progress_to(grant, step)
        if grant.stopping:
            return STOP
        lease = self._pool.lease(grant.holder, grant.uuids, max(issue_ns, grant.floor_ns), duration_ns, now_ns)
        self._ledger.note_lease(grant, step, lease)
        self._counters.add(lag_ns)
        return lease

    def release(self, grant: Grant, steps_done: int) -> None:
        """The job has written its checkpoint and gives its devices back."""
        self._end(grant, GrantState.RELEASED, steps_done, "")

    def finish(self, grant: Grant, steps_done: int) -> None:
        """The job has run its last step."""
        self._end(grant, GrantState.FINISHED, steps_done, "")

    def fail(self, grant: Grant, reason: str) -> None:
        """The job gives up and says why."""
        self._end(grant, GrantState.FAILED, grant.steps_done, reason)

    def detached(self, grant: Grant) -> None:
        """The job's connection is gone; its grant stays until it comes back or is revoked, its memory is free."""
        grant.pid = 0
        if grant.live:
            self._pool.free_memory(grant.holder, grant.uuids)

    def _end(self, grant: Grant, state: GrantState, steps_done: int, reason: str) -> None:
        if grant.state is state:
            return
        _check_live(grant)
        grant.steps_done = max(grant.steps_done, steps_done)
        self._ledger.end(grant, state, reason)

    # --- progress -----------------------------------------------------------------------------------------------------

    @property
    def has_unlogged_progress(self) -> bool:
        return self._ledger.has_unlogged_progress

    def flush_progress(self) -> None:
        """Write the steps that were done since the last flush, one range per job."""
        self._ledger.flush_progress()


def _check_live(grant: Grant) -> None:
    """A job whose devices were taken away may still be connected; from then on it gets nothing."""
    if not grant.live:
        raise RefusedError(f"the grant of {grant.name} has ended ({grant.state})")
