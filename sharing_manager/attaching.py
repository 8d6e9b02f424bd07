"""Attaching a job: the token first, then whatever takes time (who is it, how far is its job), then the manager's decision.

    token known? -> whose process is it? -> has its pod the devices? -> how far did its job come elsewhere? -> Manager
     (a file)        (Identifier)            (Holders, the kubelet)      (ProgressStore)

Answers come when they come, all in the poller's thread; a connection waits paused, so it has one look-up at a time. Whoever
shows no valid token costs nothing but a file name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from emulator_runtime.domain.errors import EmuGpuError, ManagerUnavailableError, RefusedError
from emulator_runtime.ipc.poller import Connection
from emulator_runtime.node.grant_files import GrantFiles
from sharing_manager.binding import check_bound, check_held
from sharing_manager.grants import Grant
from sharing_manager.identity import Holders, Identifier, PodAllocation, PodIdentity
from sharing_manager.manager import Manager
from sharing_manager.progress import ProgressStore

MAX_PENDING = 512
"""Look-ups under way: more than one per device and replica of any node; beyond it, later ones are asked to come again."""


@dataclass(frozen=True, slots=True)
class AttachRequest:
    """What a job shows. `version` of the protocol; `steps_done` None: a process that begins. `follows_host`: it wants to hear
    of its share of the node, now and when that changes."""

    version: int
    token: str
    job_id: str | None
    steps_done: int | None
    after_ns: int
    follows_host: bool = False


Done = Callable[[Grant], None]


class Attaching:
    """Attaches jobs to the manager's grants. What isn't given isn't asked: a local cluster has none of them."""

    def __init__(
        self,
        manager: Manager,
        files: GrantFiles | None = None,
        identifier: Identifier | None = None,
        progress: ProgressStore | None = None,
        holders: Holders | None = None,
        missing: Callable[[], str] = lambda: "",
        check_peer: Callable[[Connection], None] = lambda _: None,
    ) -> None:
        """`missing` answers what the manager itself still waits for, "" for nothing. `check_peer` raises where the process
        that opened a connection isn't there any more, so that what was found of it may be another's."""
        self._manager = manager
        self._files = files
        self._identifier = identifier
        self._progress = progress
        self._holders = holders
        self._missing = missing
        self._check_peer = check_peer
        self._pending: dict[str, Connection] = {}
        self.holder: Callable[[Grant], Connection | None] = lambda _: None
        """Who works with a grant now."""
        self.failures: Counter[str] = Counter()

    @property
    def pending(self) -> int:
        """Look-ups under way."""
        return len(self._pending)

    def waits(self, connection: Connection) -> bool:
        """Whether this connection has shown a valid token and waits for an answer."""
        return connection in self._pending.values()

    def start(self, connection: Connection, request: AttachRequest, done: Done) -> None:
        """Call `done` with the grant, now or later, unless the connection is closed by then; what goes wrong later is
        answered on the connection. Raises RefusedError, DeviceLostError, ManagerUnavailableError."""
        try:
            grant = self._grant(request.token)
            if missing := self._missing():
                raise ManagerUnavailableError(f"{missing}; come again")
            if grant.of_owner:
                self._check_holder(grant, connection)
                done(self._manager.attach(request.token, request.job_id, request.steps_done, request.after_ns))
            else:
                self._look_up(_Attempt(self, connection, grant, request, done))
        except EmuGpuError as error:
            self.failures[error.code] += 1
            raise

    def inspect(self, connection: Connection, token: str, done: Done) -> None:
        """Call `done` with the token's grant, now or later, for whoever only looks. Nothing is changed by it.

        A grant that is bound is shown to its own container, as with `start`; before that there is nothing on it to be seen.
        Raises RefusedError; what goes wrong later is answered on the connection.
        """
        grant = self._grant(token)
        if grant.over:
            raise _unknown()
        if grant.pod is None or self._identifier is None:
            done(grant)
            return
        connection.pause()
        self.identify(connection, lambda who: _show(connection, grant, who, done))

    def closed(self, connection: Connection) -> None:
        """A connection is gone; nobody waits for the answer any more."""
        for digest, waiting in list(self._pending.items()):
            if waiting is connection:
                del self._pending[digest]

    def _grant(self, token: str) -> Grant:
        """Known, or in the grant files; one that was never shown before isn't kept."""
        grant = self._manager.find(token) or self._grant_in_files(token)
        if grant is None:
            raise _unknown()
        return grant

    def _check_holder(self, grant: Grant, connection: Connection) -> None:
        """Raises RefusedError where another process works with the grant: both would get the same leases, and compute on
        one device as if it were two. The lost connection of a process that comes back is no holder."""
        holder = self.holder(grant) if grant.live else None
        if holder is None or holder.peer.pid == connection.peer.pid or holder.peer_is_gone:
            return
        raise RefusedError(
            f"process {holder.peer.pid} of this container trains on these devices already; run one training process in "
            "a container, or wait for its end"
        )

    def _grant_in_files(self, token: str) -> Grant | None:
        record = self._files.read(token) if self._files is not None else None
        return None if record is None else Grant.of_record(record)

    def _look_up(self, attempt: _Attempt) -> None:
        former = self._pending.pop(attempt.grant.digest, None)
        if former is not None:
            former.close()  # as with an attached one: whoever comes later takes its place
        if len(self._pending) >= MAX_PENDING:
            raise ManagerUnavailableError("too many jobs attach at once; come again")
        self._pending[attempt.grant.digest] = attempt.connection
        attempt.connection.pause()
        attempt.identify()

    # --- for an attempt -----------------------------------------------------------------------------------------------

    def identify(self, connection: Connection, done: Callable[[PodIdentity | EmuGpuError | None], None]) -> None:
        """The peer's pod. That its process is there still when it is known means that it was there all the time."""
        if self._identifier is None:
            done(None)
        else:
            self._identifier.identify(connection.peer.pid, lambda who: done(self._confirmed(connection, who)))

    def _confirmed(self, connection: Connection, who: PodIdentity | EmuGpuError) -> PodIdentity | EmuGpuError:
        try:
            if isinstance(who, PodIdentity):
                self._check_peer(connection)
        except EmuGpuError as error:
            return error
        return who

    def holding(self, done: Callable[[list[PodAllocation] | None], None]) -> None:
        if self._holders is None:
            done(None)
        else:
            self._holders.holding(done)

    def lookup(self, job_key: str, done: Callable[[int | EmuGpuError | None], None]) -> None:
        if self._progress is None:
            done(None)
        else:
            self._progress.lookup(job_key, done)

    def attach(self, attempt: _Attempt, identity: PodIdentity | None, known_steps: int | None) -> Grant:
        request = attempt.request
        check_bound(attempt.grant, identity)
        self._check_holder(attempt.grant, attempt.connection)
        return self._manager.pods.attach(
            attempt.grant, identity, request.steps_done, request.after_ns, known_steps=known_steps
        )

    def check(self, grant: Grant, identity: PodIdentity | None) -> None:
        self._manager.pods.check(grant, identity)

    def ends(self, attempt: _Attempt) -> bool:
        """The look-up is over; False where its connection was closed or replaced meanwhile."""
        if self._pending.get(attempt.grant.digest) is not attempt.connection:
            return False
        del self._pending[attempt.grant.digest]
        return attempt.connection.open


@dataclass(slots=True)
class _Attempt:
    """One attachment under way."""

    desk: Attaching
    connection: Connection
    grant: Grant
    request: AttachRequest
    done: Done

    def identify(self) -> None:
        self.desk.identify(self.connection, self._identified)

    def _identified(self, identity: PodIdentity | EmuGpuError | None) -> None:
        if isinstance(identity, EmuGpuError):
            self._finish(lambda: _fail(identity))
        elif self.grant.bound or self.grant.over:  # what its own job came to, it knows
            self._finish(lambda: self.desk.attach(self, identity, None))
        else:
            self._look_up(identity)

    def _look_up(self, identity: PodIdentity | None) -> None:
        if self._refused(lambda: self.desk.check(self.grant, identity)):
            return
        if identity is None:
            self._finish(lambda: self.desk.attach(self, None, None))
        else:
            self.desk.holding(lambda allocations: self._seen(identity, allocations))

    def _seen(self, identity: PodIdentity, allocations: list[PodAllocation] | None) -> None:
        """A kubelet that doesn't answer starts no containers either: whoever comes now had its token before."""
        if not self._refused(lambda: check_held(self.grant, identity, allocations or ())):
            self.desk.lookup(identity.job_key, lambda steps: self._looked_up(identity, steps))

    def _refused(self, check: Callable[[], None]) -> bool:
        """Whether this check has ended the attempt."""
        try:
            check()
        except EmuGpuError as error:
            refusal = error
            self._finish(lambda: _fail(refusal))
            return True
        return False

    def _looked_up(self, identity: PodIdentity, steps: int | EmuGpuError | None) -> None:
        if isinstance(steps, EmuGpuError):
            self._finish(lambda: _fail(steps))
        else:
            self._finish(lambda: self.desk.attach(self, identity, steps))

    def _finish(self, attach: Callable[[], Grant]) -> None:
        if not self.desk.ends(self):
            return
        try:
            self.done(attach())
        except EmuGpuError as error:
            self.desk.failures[error.code] += 1
            self.connection.refuse(error)
        self.connection.resume()


def _show(connection: Connection, grant: Grant, who: PodIdentity | EmuGpuError | None, done: Done) -> None:
    """The peer is known: show it the grant, or say why not."""
    if not connection.open:
        return
    try:
        if isinstance(who, EmuGpuError):
            raise who
        check_bound(grant, who)
        done(grant)
    except EmuGpuError as error:
        connection.refuse(error)
    connection.resume()


def _unknown() -> RefusedError:
    return RefusedError("unknown token: it was never granted on this node, or its grant has ended")


def _fail(error: EmuGpuError) -> Grant:
    raise error
