"""Attaches jobs: checks the token first, then makes the slow look-ups (pod, progress), then asks the manager to decide.

    token known? -> which pod is it? -> does the pod hold the devices? -> what is the job's progress? -> Manager
     (a file)        (Identifier)        (AllocationLister: the kubelet)     (ProgressStore)

Each look-up answers asynchronously, in the poller's thread. The connection is paused meanwhile, so it has at most one
look-up at a time. A connection without a valid token costs no more than one attempt to open a file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from emulator_runtime.domain.errors import EmuGpuError, ManagerUnavailableError, RefusedError
from emulator_runtime.ipc.frames import PROTOCOL_VERSION
from emulator_runtime.ipc.poller import Connection
from emulator_runtime.node.allocation import Allocation
from emulator_runtime.node.grant_files import GrantFiles
from sharing_manager.core.manager import Manager
from sharing_manager.grants.binding import check_bound, check_held
from sharing_manager.grants.grant import Grant
from sharing_manager.grants.identity import AllocationLister, Identifier, PodAllocation, PodIdentity
from sharing_manager.grants.placement import Choice
from sharing_manager.grants.reconcile import missing_in
from sharing_manager.persistence.progress import ProgressStore

MAX_PENDING = 512
"""Maximum number of look-ups at a time, which is more than the devices and replicas of any node. Further attachments are
asked to retry."""


@dataclass(frozen=True, slots=True)
class AttachRequest:
    """The fields of an attach request. `job_id` None: the job doesn't know its id. `steps_done` None: its process has just
    started. With `wants_shares`, the job receives its share of the node's CPUs and memory, now and after each change.
    `connection`: the client's name for its connection (ipc/warp.py). `session`: the name of a further process, "" for the main
    one; `devices`: those that it uses, if not all."""

    token: str
    job_id: str | None
    steps_done: int | None
    after_ns: int
    wants_shares: bool = False
    version: int = PROTOCOL_VERSION
    connection: str = ""
    session: str = ""
    devices: tuple[int, ...] | None = None


Done = Callable[[Grant], None]


class Attaching:
    """Attaches jobs to the manager's grants. A look-up whose object is None is skipped; a local cluster needs none of
    them."""

    def __init__(
        self,
        manager: Manager,
        files: GrantFiles | None = None,
        identifier: Identifier | None = None,
        progress: ProgressStore | None = None,
        allocation_lister: AllocationLister | None = None,
        not_ready: Callable[[], str] = lambda: "",
        check_peer: Callable[[Connection], None] = lambda _: None,
    ) -> None:
        """`not_ready` returns what the manager itself still waits for, "" for nothing. `check_peer` raises if the process
        that opened a connection has ended: another process may have its pid by then, and the identity may be that of the
        other process."""
        self._manager = manager
        self._files = files
        self._identifier = identifier
        self._progress = progress
        self._allocation_lister = allocation_lister
        self._not_ready = not_ready
        self._check_peer = check_peer
        self._pending: dict[tuple[str, str], Connection] = {}
        """By digest of the grant, and name of the session."""
        self.connection_of: Callable[[Grant, str], Connection | None] = lambda *_: None
        """Returns the connection of the grant's session with this name, if there is one."""
        self.allocation_of: Callable[[str], Allocation | None] = lambda _: None
        """Returns what its scheduler gave a pod (by its UID); None if nobody did, or somebody else may have written it."""
        self.failures: Counter[str] = Counter()

    @property
    def pending(self) -> int:
        """Number of look-ups in progress."""
        return len(self._pending)

    def is_pending(self, connection: Connection) -> bool:
        """Whether this connection has presented a valid token and waits for the answer."""
        return connection in self._pending.values()

    def start(self, connection: Connection, request: AttachRequest, done: Done) -> None:
        """Call `done` with the grant, now or later, unless the connection has been closed by then. Errors of the later
        part are sent on the connection. Raises RefusedError, DeviceLostError, ManagerUnavailableError."""
        try:
            grant = self._grant(request.token)
            if reason := self._not_ready():
                raise ManagerUnavailableError(f"{reason}; try again")
            if grant.of_owner:
                self._check_holder(grant, request.session, connection)
                main = not request.session
                done(
                    self._manager.attach(request.token, request.job_id, request.steps_done, request.after_ns, main=main)
                )
            else:
                self._look_up(_Attempt(self, connection, grant, request, done))
        except EmuGpuError as error:
            self.failures[error.code] += 1
            raise

    def inspect(self, connection: Connection, token: str, done: Done) -> None:
        """Call `done` with the token's grant, now or later, for a client that only reads (nvidia-smi). Changes nothing.

        A bound grant is shown only to its own container, as with `start`. An unbound grant is shown to any client, as it
        has no processes yet. Raises RefusedError; errors of the later part are sent on the connection.
        """
        grant = self._grant(token)
        if grant.ended:
            raise _unknown()
        if grant.pod is None or self._identifier is None:
            done(grant)
            return
        connection.pause()
        self.identify(connection, lambda identity: _show(connection, grant, identity, done))

    def closed(self, connection: Connection) -> None:
        """The connection was closed: forget its pending look-up."""
        for key, waiting in list(self._pending.items()):
            if waiting is connection:
                del self._pending[key]

    def _grant(self, token: str) -> Grant:
        """The token's grant, from the manager or else from the grant files. A grant from a file isn't stored until it
        attaches."""
        grant = self._manager.find(token) or self._grant_in_files(token)
        if grant is None:
            raise _unknown()
        return grant

    def _check_holder(self, grant: Grant, session: str, connection: Connection) -> None:
        """Raises RefusedError if another process has this session: both would get the same answers, and would share one
        device as if each had its own. A lost connection of the same process doesn't count; processes whose pids aren't
        visible may be different ones."""
        holder = self.connection_of(grant, session) if grant.live else None
        if holder is None or holder.peer_is_gone or 0 != holder.peer.pid == connection.peer.pid:
            return
        which = f"process {holder.peer.pid}" if holder.peer.pid else "another process"
        raise RefusedError(
            f"{which} of this container trains on these devices already; run one training process in "
            "a container, wait for its end, or name the session of each further process (field 'session')"
        )

    def _grant_in_files(self, token: str) -> Grant | None:
        record = self._files.read(token) if self._files is not None else None
        return None if record is None else self._manager.pods.of_record(record)

    def _look_up(self, attempt: _Attempt) -> None:
        previous = self._pending.pop(attempt.key, None)
        if previous is not None:
            previous.close()  # the later connection replaces the earlier one, as for an attached grant
        if len(self._pending) >= MAX_PENDING:
            raise ManagerUnavailableError("too many jobs attach at once; try again")
        self._pending[attempt.key] = attempt.connection
        attempt.connection.pause()
        attempt.identify()

    # --- called by _Attempt -----------------------------------------------------------------------------------------

    def identify(self, connection: Connection, done: Callable[[PodIdentity | EmuGpuError | None], None]) -> None:
        """Find the peer's pod. If the peer process still runs after the look-up, then its pid was its own during the
        look-up."""
        if self._identifier is None:
            done(None)
        else:
            self._identifier.identify(connection.peer.pid, lambda identity: done(self._confirmed(connection, identity)))

    def _confirmed(self, connection: Connection, identity: PodIdentity | EmuGpuError) -> PodIdentity | EmuGpuError:
        try:
            if isinstance(identity, PodIdentity):
                self._check_peer(connection)
        except EmuGpuError as error:
            return error
        return identity

    def list_allocations(self, done: Callable[[list[PodAllocation] | None], None]) -> None:
        if self._allocation_lister is None:
            done(None)
        else:
            self._allocation_lister.list_allocations(done)

    def lookup(self, job_key: str, done: Callable[[int | EmuGpuError | None], None]) -> None:
        if self._progress is None:
            done(None)
        else:
            self._progress.lookup(job_key, done)

    def attach(self, attempt: _Attempt, identity: PodIdentity | None, known_steps: int | None) -> Grant:
        request = attempt.request
        grant = self._manager.find(request.token) or attempt.grant  # another process may have attached meanwhile
        check_bound(grant, identity)
        self._check_holder(grant, request.session, attempt.connection)
        return self._manager.pods.attach(
            grant,
            identity,
            request.steps_done,
            request.after_ns,
            known_steps=known_steps,
            main=not request.session,
            choice=self._choice(attempt, identity),
        )

    def _choice(self, attempt: _Attempt, identity: PodIdentity | None) -> Choice:
        allocation = None if identity is None else self.allocation_of(identity.pod_uid)
        return Choice(
            allocation, lambda other: attempt.missing(other) and not any(each.connected for each in other.sessions)
        )

    def check(self, grant: Grant, identity: PodIdentity | None) -> None:
        self._manager.pods.check(grant, identity)

    def finish(self, attempt: _Attempt) -> bool:
        """Finish the look-up. False if its connection was closed or replaced in the meantime."""
        if self._pending.get(attempt.key) is not attempt.connection:
            return False
        del self._pending[attempt.key]
        return attempt.connection.open


@dataclass(slots=True)
class _Attempt:
    """One attachment in progress."""

    attaching: Attaching
    connection: Connection
    grant: Grant
    request: AttachRequest
    done: Done
    missing: Callable[[Grant], bool] = lambda _: False
    """Whether a grant's pod isn't in the kubelet's list of this attempt."""

    @property
    def key(self) -> tuple[str, str]:
        """Which session attaches."""
        return self.grant.digest, self.request.session

    def identify(self) -> None:
        self.attaching.identify(self.connection, self._identified)

    def _identified(self, identity: PodIdentity | EmuGpuError | None) -> None:
        if isinstance(identity, EmuGpuError):
            self._finish(lambda: _raise(identity))
        elif self.grant.bound or self.grant.ended:  # the node's own log has the progress of a bound grant
            self._finish(lambda: self.attaching.attach(self, identity, None))
        else:
            self._look_up(identity)

    def _look_up(self, identity: PodIdentity | None) -> None:
        if self._refused(lambda: self.attaching.check(self.grant, identity)):
            return
        if identity is None:
            self._finish(lambda: self.attaching.attach(self, None, None))
        else:
            self.attaching.list_allocations(lambda allocations: self._allocations_listed(identity, allocations))

    def _allocations_listed(self, identity: PodIdentity, allocations: list[PodAllocation] | None) -> None:
        """Check the kubelet's list. Without an answer (None) the check is skipped: while the kubelet is down it starts
        no containers, so this container received its token earlier."""
        if allocations is not None:
            self.missing = missing_in(allocations)
        if not self._refused(lambda: check_held(self.grant, identity, allocations or ())):
            self.attaching.lookup(identity.job_key, lambda steps: self._progress_found(identity, steps))

    def _refused(self, check: Callable[[], None]) -> bool:
        """Whether this check has ended the attempt."""
        try:
            check()
        except EmuGpuError as error:
            refusal = error
            self._finish(lambda: _raise(refusal))
            return True
        return False

    def _progress_found(self, identity: PodIdentity, steps: int | EmuGpuError | None) -> None:
        if isinstance(steps, EmuGpuError):
            self._finish(lambda: _raise(steps))
        else:
            self._finish(lambda: self.attaching.attach(self, identity, steps))

    def _finish(self, attach: Callable[[], Grant]) -> None:
        if not self.attaching.finish(self):
            return
        try:
            self.done(attach())
        except EmuGpuError as error:
            self.attaching.failures[error.code] += 1
            self.connection.refuse(error, "attach")
        self.connection.resume()


def _show(connection: Connection, grant: Grant, identity: PodIdentity | EmuGpuError | None, done: Done) -> None:
    """The peer is identified: show it the grant, or send the error."""
    if not connection.open:
        return
    try:
        if isinstance(identity, EmuGpuError):
            raise identity
        check_bound(grant, identity)
        done(grant)
    except EmuGpuError as error:
        connection.refuse(error, "query")
    connection.resume()


def _unknown() -> RefusedError:
    return RefusedError("unknown token: it was never granted on this node, or its grant has ended")


def _raise(error: EmuGpuError) -> Grant:
    raise error
