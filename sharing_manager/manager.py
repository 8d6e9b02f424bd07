"""What the sharing manager decides: grants, leases, memory and progress. No socket, no thread, no host clock in here.

Every request may come twice: a grant for the same job and devices, a lease for the same step, an end that was already
noted give the same answer again.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable

from emulator_runtime.domain.clock import Clock
from emulator_runtime.domain.errors import ClusterError, ProtocolError, RefusedError
from emulator_runtime.domain.gpu import Device
from emulator_runtime.domain.lease import Lease
from emulator_runtime.memory.admission import Reservation
from sharing_manager.devices import DevicePool
from sharing_manager.event_log import EventLog, ManagerEvent
from sharing_manager.grants import Grant, GrantState

OnEvent = Callable[[ManagerEvent], None]
STOP = Lease(0, 0, stop=True)


class Manager:
    """The owner of a node's emulated GPUs. `on_event` is called after an event is safely in the log.

    Raises ClusterError where the log promises devices that the pool can't give.
    """

    def __init__(self, pool: DevicePool, log: EventLog, clock: Clock, on_event: OnEvent) -> None:
        self._pool = pool
        self._log = log
        self._clock = clock
        self._on_event = on_event
        self._by_token: dict[str, Grant] = {}
        self._by_job: dict[str, Grant] = {}
        self._unlogged: set[str] = set()
        for grant in log.grants():  # restore first: what was promised before a crash still holds
            if grant.live:
                self._restore(grant)
            self._by_token[grant.token] = self._by_job[grant.job_id] = grant

    def _restore(self, grant: Grant) -> None:
        try:
            self._pool.admit(grant.job_id, grant.devices)
        except RefusedError as error:
            fix = "restore the inventory and the sharing mode, or move the event log away"
            raise ClusterError(
                f"job {grant.job_id!r} was granted devices before the restart: {error}; {fix}"
            ) from error

    # --- for the node's owner (device plugin, cluster) ------------------------------------------------------------

    def grant(self, job_id: str, devices: Iterable[str], steps_done: int) -> Grant:
        """Give devices to a job. Raises RefusedError for an unknown device or one that is taken."""
        wanted = tuple(devices)
        has = self._by_job.get(job_id)
        if has is not None and has.live:
            if has.devices == wanted:
                return has
            raise RefusedError(f"job {job_id!r} holds other devices of this node already")
        self._pool.admit(job_id, wanted)
        now_ns = self._clock.now_ns()
        grant = Grant(secrets.token_hex(16), job_id, wanted, steps_done, now_ns, logged_steps=steps_done)
        self._by_token[grant.token] = self._by_job[job_id] = grant
        self._record("granted", grant)
        return grant

    def stop(self, job_id: str) -> None:
        """Ask a job to end after its current step."""
        grant = self._by_job.get(job_id)
        if grant is not None and grant.live and not grant.stopping:
            grant.stopping = True
            self._record("stopping", grant)

    def revoke(self, job_id: str, reason: str) -> None:
        """Take a job's devices away at once, because its process is gone."""
        grant = self._by_job.get(job_id)
        if grant is not None and grant.live:
            self._end(grant, GrantState.FAILED, grant.steps_done, reason)

    def steps_done(self, job_id: str) -> int:
        """Raises RefusedError for a job that was never here."""
        grant = self._by_job.get(job_id)
        if grant is None:
            raise RefusedError(f"job {job_id!r} has no grant on this node")
        return grant.steps_done

    def grants(self) -> list[Grant]:
        """The grants that hold devices."""
        return [grant for grant in self._by_job.values() if grant.live]

    # --- for jobs ---------------------------------------------------------------------------------------------------

    def attach(self, token: str, job_id: str, steps_done: int | None, after_ns: int) -> Grant:
        """A job presents its token; before `after_ns` (the start of its last lease) a restarted manager gives no time.

        `steps_done` is what the job has done or finds in its checkpoint; None: it doesn't know (it comes to give up).
        The answer may be a grant that has ended: the job's last word was heard, only the reply to it was lost.
        Raises RefusedError for an unknown token, or one of another job.
        """
        grant = self._by_token.get(token)
        if grant is None or grant.job_id != job_id:
            raise RefusedError("unknown token: it was never granted on this node, or its grant has ended")
        if not grant.live:
            return grant
        grant.floor_ns = max(grant.floor_ns, min(after_ns, self._clock.now_ns()))
        if steps_done is not None and steps_done != grant.steps_done:
            grant.last_step, grant.last_lease = -1, None
            self._progress_to(grant, steps_done)
        if grant.state is GrantState.GRANTED:
            grant.state = GrantState.ATTACHED
            self._record("attached", grant)
        return grant

    def devices_of(self, grant: Grant) -> list[Device]:
        return self._pool.specs(grant.devices)

    def reserve(self, grant: Grant, wanted: Reservation) -> None:
        """Memory on each of the grant's devices. Raises OutOfMemoryError, or RefusedError where the grant has ended."""
        _check_live(grant)
        if wanted.peak_bytes < wanted.persistent_bytes:
            raise ProtocolError("field 'peak_bytes' must not be below 'persistent_bytes'")
        self._pool.reserve(grant.job_id, grant.devices, wanted)

    def lease(self, grant: Grant, step: int, duration_ns: int, issue_ns: int) -> Lease:
        """Device time for step `step` (0-based), issued at `issue_ns`; asking for it says that all steps before are done.

        Answers with STOP where the job is to end its run. Raises ProtocolError for a step out of order or an issue in the
        future (which would keep the device from all others until then), RefusedError where the grant has ended.
        """
        _check_live(grant)
        if step == grant.last_step and grant.last_lease is not None:
            return grant.last_lease
        if step != grant.steps_done and not (step == grant.steps_done + 1 and grant.last_step == grant.steps_done):
            raise ProtocolError(f"step {step} is out of order: {grant.steps_done} steps are done")
        ahead_ns = issue_ns - self._clock.now_ns()
        if ahead_ns > 0:
            raise ProtocolError(
                f"step {step} is issued {ahead_ns} ns in the future; give job and manager the same EMUGPU clock"
            )
        self._progress_to(grant, step)
        if grant.stopping:
            return STOP
        lease = self._pool.lease(grant.job_id, grant.devices, max(issue_ns, grant.floor_ns), duration_ns)
        grant.floor_ns = lease.end_ns
        grant.leased_ns += duration_ns
        grant.last_step, grant.last_lease = step, lease
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
        if grant.live:
            self._pool.free_memory(grant.job_id, grant.devices)

    # --- progress and events ----------------------------------------------------------------------------------------

    @property
    def has_unlogged_progress(self) -> bool:
        return bool(self._unlogged)

    def flush_progress(self) -> None:
        """Write the steps that were done since the last flush, one range per job."""
        for job_id in sorted(self._unlogged):
            grant = self._by_job[job_id]
            self._record("progress", grant)
        self._unlogged.clear()

    def _progress_to(self, grant: Grant, steps_done: int) -> None:
        if steps_done != grant.steps_done:
            grant.steps_done = steps_done
            self._unlogged.add(grant.job_id)

    def _end(self, grant: Grant, state: GrantState, steps_done: int, reason: str) -> None:
        if grant.state is state:
            return
        _check_live(grant)
        grant.steps_done = max(grant.steps_done, steps_done)
        grant.state = state
        self._pool.leave(grant.job_id, grant.devices, self._clock.now_ns())
        self._unlogged.discard(grant.job_id)
        self._record(str(state), grant, reason)

    def _record(self, kind: str, grant: Grant, detail: str = "") -> None:
        event = ManagerEvent(
            at_ns=self._clock.now_ns(),
            kind=kind,
            job_id=grant.job_id,
            steps_done=grant.steps_done,
            from_step=grant.logged_steps,
            detail=detail,
        )
        grant.logged_steps = grant.steps_done
        self._on_event(self._log.record(event, grant))


def _check_live(grant: Grant) -> None:
    """A job whose devices were taken away may still be connected; from then on it gets nothing."""
    if not grant.live:
        raise RefusedError(f"the grant of job {grant.job_id!r} has ended ({grant.state})")
