"""The job socket: translates messages into calls of the manager, and results into replies. One table maps ops to
methods."""

from __future__ import annotations

import hmac
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from emulator_runtime.domain.errors import ProtocolError, RefusedError
from emulator_runtime.domain.sensitivity import HostShare
from emulator_runtime.domain.units import MAX_SECONDS, to_ns
from emulator_runtime.ipc.control import resize_message
from emulator_runtime.ipc.fields import MAX_NS, MAX_STEPS, text, whole, wholes
from emulator_runtime.ipc.frames import OLDEST_VERSION, PROTOCOL_VERSION, Message
from emulator_runtime.ipc.poller import Connection
from emulator_runtime.memory.rules import Reservation
from emulator_runtime.node.inventory import mig_facts
from emulator_runtime.sharing.demands import Demand, Piece
from emulator_runtime.timing.warp import Frames
from sharing_manager.core.manager import Manager, check_speaks
from sharing_manager.core.shared_time import Decision
from sharing_manager.devices.host_shares import HostShares
from sharing_manager.grants.grant import Grant
from sharing_manager.grants.session import Session
from sharing_manager.service.attaching import Attaching, AttachRequest
from sharing_manager.service.time_budgets import GuardCounts
from sharing_manager.telemetry.model import DeviceTelemetry, NodeTelemetry

MAX_LEASE_NS = to_ns(MAX_SECONDS)
MAX_UNIDENTIFIED = 64
"""Maximum number of connections that haven't presented a valid token. A job normally presents its token at once.
Above this number, the peer with the most such connections loses its oldest one."""
MAX_NAME = 64
"""Characters of a client's name for its connection."""
_OK: Message = {"ok": True}
_DEMANDS = 3
"""The first version of the protocol with demands."""


class JobService:
    """Serves the requests of jobs. Each connection is bound to a session of a grant by its token."""

    def __init__(
        self,
        manager: Manager,
        attaching: Attaching | None = None,
        guard_counts: GuardCounts | None = None,
        shares: HostShares | None = None,
        ranks_key: str = "",
    ) -> None:
        """`guard_counts` has the counts of the guard in front of this service, for telemetry. `shares` has the host shares by
        pod. `ranks_key`: the same on all nodes of the cluster; from it the pods of a Job get a common secret."""
        self._manager = manager
        self._guard_counts = guard_counts or GuardCounts()
        self._shares = shares or HostShares()
        self._ranks_key = ranks_key.encode()
        self._shares.on_change = self._share_changed
        self._share_subscribers: set[Connection] = set()
        self._attaching = attaching or Attaching(manager)
        self._attaching.connection_of = lambda grant, name: self._connections.get((grant.digest, name))
        self._sessions: dict[Connection, Session] = {}
        self._whole_devices: dict[Connection, int] = {}
        self._counted: dict[Connection, tuple[str, tuple[int, int]]] = {}
        """Connections over which time is demanded: the client's name for each, and the counts that were reported last."""
        self._closed_names: list[str] = []
        self.counts_messages = False
        """Whether a warp clock counts messages; `changed_counts` returns nothing otherwise."""
        self._old: set[Connection] = set()
        """Connections of clients that know no demands."""
        self._connections: dict[tuple[str, str], Connection] = {}
        """By digest of the grant, and name of the session."""
        self._unidentified: dict[Connection, None] = {}  # connections without a valid token, oldest first
        manager.pods.on_displaced = self._displaced
        manager.on_stop = self._stop_asked
        manager.on_loss = self._device_lost
        manager.on_shared = self._device_shared
        manager.on_revoked = self._displaced
        self._handlers: Mapping[str, Callable[[Session, Message], Message | None]] = {
            "lease": self._lease,
            "demand": self._demand,
            "report": self._report,
            "reserve": self._reserve,
            "release": self._release,
            "finish": self._finish,
            "fail": self._fail,
        }

    def on_open(self, connection: Connection) -> None:
        """A peer has connected."""
        self._unidentified[connection] = None
        # connections with a pending attachment have presented a valid token
        if len(self._unidentified) - self._attaching.pending > MAX_UNIDENTIFIED:
            unidentified = [one for one in self._unidentified if not self._attaching.is_pending(one)]
            counts = Counter(_peer(connection) for connection in unidentified)
            most = max(counts.values())
            next(connection for connection in unidentified if counts[_peer(connection)] == most).close()

    def on_message(self, connection: Connection, message: Message) -> None:
        """Answer one request. Raises EmuGpuError; the connection turns it into an error reply."""
        op = message.get("op")
        if op == "attach":
            self._attach(connection, message)
            return
        if op == "query":
            self._attaching.inspect(
                connection, text(message, "token"), lambda grant: connection.send(self._telemetry_of(grant))
            )
            return
        handler = self._handlers.get(op) if isinstance(op, str) else None
        if handler is None:
            raise ProtocolError(f"field 'op' must be one of attach, query, {', '.join(self._handlers)}")
        session = self._sessions.get(connection)
        if session is None:
            raise RefusedError("this connection has presented no token yet: send op attach first")
        reply = handler(session, message)
        if reply is not None:
            connection.send(reply)

    def whole_devices(self, connection: Connection) -> int:
        """How many whole devices the connection's container had when it attached; 1 at least."""
        return self._whole_devices.get(connection, 1)

    def decide(self, until_ns: int) -> None:
        """Send the answers to demands that are due by `until_ns`."""
        for decision in self._manager.decide(until_ns):
            connection = self._connection(decision.session)
            if connection is not None:  # otherwise the job repeats its demand when it is back
                connection.send(piece_message(decision))

    def repeat_counts(self) -> None:
        """Let the next call of `changed_counts` return all counts."""
        self._counted = {connection: (name, (0, 0)) for connection, (name, _) in self._counted.items()}

    def changed_counts(self) -> Frames:
        """The messages sent and received on each connection over which time is demanded, where that has changed since the last
        call."""
        changed: dict[str, tuple[int, int] | None] = dict.fromkeys(self._closed_names)
        self._closed_names.clear()
        for connection, (name, reported) in self._counted.items():
            counts = connection.sent, connection.received
            if counts != reported:
                self._counted[connection] = name, counts
                changed[name] = counts
        return changed

    def on_close(self, connection: Connection) -> None:
        self._unidentified.pop(connection, None)
        self._share_subscribers.discard(connection)
        self._old.discard(connection)
        if (counted := self._counted.pop(connection, None)) is not None:
            self._closed_names.append(counted[0])
        self._attaching.closed(connection)
        self._whole_devices.pop(connection, None)
        session = self._sessions.pop(connection, None)
        if session is not None and self._connection(session) is connection:
            del self._connections[session.grant.digest, session.name]
            self._manager.close_session(session)

    @property
    def attached(self) -> frozenset[str]:
        """Digests of the grants that have a connection."""
        return frozenset(digest for digest, _ in self._connections)

    def telemetry(self) -> NodeTelemetry:
        """The manager's telemetry, completed by the counts of connections."""
        return replace(
            self._manager.telemetry(),
            connections=len(self._sessions) + len(self._unidentified),
            attached=len(self._connections),
            pending_attaches=self._attaching.pending,
            attach_failures=dict(self._attaching.failures),
            rejected_total=self._guard_counts.rejected,
            paused_total=self._guard_counts.paused,
        )

    # --- attaching --------------------------------------------------------------------------------------------------

    def _attach(self, connection: Connection, message: Message) -> None:
        version = whole(message, "version")
        if not OLDEST_VERSION <= version <= PROTOCOL_VERSION:
            raise ProtocolError(
                f"protocol version {version} is not supported, only {OLDEST_VERSION} to {PROTOCOL_VERSION}"
            )
        if connection in self._sessions:
            raise RefusedError("this connection is attached already")
        request = AttachRequest(
            token=text(message, "token"),
            job_id=text(message, "job_id") if "job_id" in message else None,
            steps_done=whole(message, "steps_done", most=MAX_STEPS) if "steps_done" in message else None,
            after_ns=whole(message, "after_ns", 0),
            wants_shares=message.get("host") is True,
            version=version,
            connection=text(message, "connection", "")[:MAX_NAME],
            session=text(message, "session", ""),
            devices=tuple(wholes(message, "devices")) if "devices" in message else None,
        )
        if len(request.session) > MAX_NAME:
            raise ProtocolError(f"field 'session' must have at most {MAX_NAME} characters")
        if request.session and request.steps_done is not None:
            raise ProtocolError("field 'steps_done': only the main session, which has no name, counts steps")
        self._attaching.start(connection, request, lambda grant: self._attached(connection, request, grant))

    def _attached(self, connection: Connection, request: AttachRequest, grant: Grant) -> None:
        reply: Message = {
            "ok": True,
            "version": request.version,
            "job_id": grant.job_id,
            "steps_done": grant.steps_done,
            "shared": self._manager.shared(grant),
            "devices": [],
        }
        if not grant.live:
            connection.send(reply | {"ended": str(grant.state)})
            return
        session = self._manager.open_session(grant, request.session, request.devices, request.after_ns)
        self._unidentified.pop(connection, None)
        previous = self._connection(session)
        self._sessions[connection], self._connections[grant.digest, session.name] = session, connection
        self._whole_devices[connection] = self._manager.whole_devices(grant)
        if request.version < _DEMANDS:
            self._old.add(connection)
        elif self.counts_messages and self._manager.arbitrates(grant):
            self._counted[connection] = (request.connection, (0, 0))
        if previous is not None:
            previous.close()  # a job that reconnects replaces its own lost connection
        session.pid, session.connected = connection.peer.pid, True
        connection.prefer()
        reply |= {"devices": self._device_messages(session, request.version)}
        if request.version >= _DEMANDS:
            reply |= {"free_ns": self._manager.free_ns(session)}
        if request.version >= _DEMANDS and (resources := self._manager.resources_for(session)):
            reply |= {"resources": [{"name": each.name, "devices": list(each.devices)} for each in resources]}
        if self._ranks_key and grant.pod is not None and grant.pod.work:
            reply |= {"ranks_secret": hmac.new(self._ranks_key, grant.pod.work.encode(), "sha256").hexdigest()}
        if request.wants_shares:
            self._share_subscribers.add(connection)
            if grant.pod is not None and (share := self._shares.of(grant.pod.pod_uid)) is not None:
                reply |= {"host": {"cpu_milli": share.cpu_milli, "memory_bytes": share.memory_bytes}}
        connection.send(reply)
        self._session_opened(session)
        if grant.stopping:
            self._send_stop(session)

    def _connection(self, session: Session) -> Connection | None:
        return self._connections.get((session.grant.digest, session.name))

    def _device_messages(self, session: Session, version: int) -> list[Message]:
        messages: list[Message] = [
            {"uuid": d.uuid, "index": d.index, "gpu_type": d.gpu_type, "memory_bytes": d.memory_bytes}
            for d in self._manager.specs(session)
        ]
        if version < _DEMANDS:
            return messages
        return [message | {"mode": self._manager.mode_for(session, str(message["uuid"]))} for message in messages]

    def _notify(self, session: Session, message: Message) -> None:
        """Send a notification of version 3. Older clients get the same with the reply to their next lease."""
        connection = self._connection(session)
        if connection is not None and connection not in self._old:
            connection.send(message)

    def _session_opened(self, opened: Session) -> None:
        """The container's other sessions share the devices of this one from now on."""
        for uuid in opened.uuids:
            self._device_shared(opened.grant, uuid, but=opened)

    def _device_shared(self, grant: Grant, uuid: str, but: Session | None = None) -> None:
        """Notify the sessions that use the device, except `but`, of its present mode."""
        for session in grant.sessions:
            if uuid in session.uuids and session is not but:
                self._notify(session, {"op": "mode", "resource": uuid, "mode": self._manager.mode_for(session, uuid)})

    def _stop_asked(self, grant: Grant) -> None:
        for session in grant.sessions:
            self._send_stop(session)

    def _send_stop(self, session: Session) -> None:
        last = self._manager.last_number(session)
        self._notify(session, {"op": "stop", "at_ns": self._manager.now_ns(), "last": last})

    def _device_lost(self, grant: Grant, uuid: str, problem: str) -> None:
        for session in grant.sessions:
            if uuid in session.uuids:
                self._notify(session, {"op": "lost", "resource": uuid, "error": problem})

    def _share_changed(self, pod_uid: str, share: HostShare) -> None:
        """Send the new share to the pod's processes that asked for updates; others would take the message for a reply."""
        for connection in list(self._share_subscribers):
            pod = self._sessions[connection].grant.pod
            if pod is not None and pod.pod_uid == pod_uid:
                connection.send(resize_message(share))

    def _displaced(self, grant: Grant) -> None:
        self._close(grant.sessions)

    def _telemetry_of(self, grant: Grant) -> Message:
        """The state of a grant's devices. For a shared device it lists only the processes of this grant."""
        devices = self._manager.telemetry(grant.uuids).devices
        return {"ok": True, "devices": [device_message(d, only=grant.digest) for d in devices]}

    # --- requests of an attached job --------------------------------------------------------------------------------

    def _demand(self, session: Session, message: Message) -> None:
        """Answered by a message `piece` when it has been decided."""
        self._report_steps(session, message)
        resource = text(message, "resource")
        floor_ns = session.floor_ns if resource in session.uuids else session.since_ns
        wanted = Demand(
            session=session.key,
            sequence=whole(message, "sequence"),
            ready_ns=max(whole(message, "ready_ns"), floor_ns),
            work_ns=whole(message, "work_ns", most=MAX_LEASE_NS),
            remaining_ns=whole(message, "remaining_ns", MAX_NS),
        )
        self._manager.demand(session, resource, wanted)

    def _report(self, session: Session, message: Message) -> None:
        if "until_ns" not in message:
            self._report_steps(session, message)
            return
        steps_done = whole(message, "steps_done", most=MAX_STEPS) if "steps_done" in message else None
        start_ns, end_ns = whole(message, "from_ns"), whole(message, "until_ns")
        used = Piece(start_ns, end_ns, whole(message, "work_ns", max(0, end_ns - start_ns)))
        self._manager.report_use(session, used, text(message, "resource", ""), steps_done)

    def _report_steps(self, session: Session, message: Message) -> None:
        if "steps_done" in message:
            self._manager.report_steps(session, whole(message, "steps_done", most=MAX_STEPS))

    def _lease(self, session: Session, message: Message) -> Message:
        check_speaks(session)
        duration_ns = whole(message, "duration_ns", most=MAX_LEASE_NS)
        lease = self._manager.lease(
            session.grant, whole(message, "step", most=MAX_STEPS), duration_ns, whole(message, "issue_ns")
        )
        if lease.stop:
            return {"ok": True, "stop": True}
        return {"ok": True, "start_ns": lease.start_ns, "end_ns": lease.end_ns}

    def _reserve(self, session: Session, message: Message) -> Message:
        wanted = Reservation(
            whole(message, "persistent_bytes"),
            whole(message, "peak_bytes"),
            measured=message.get("measured") is True,
        )
        self._manager.reserve(session, wanted, text(message, "resource", ""))
        return _OK

    def _release(self, session: Session, message: Message) -> Message:
        check_speaks(session)
        self._manager.release(session.grant, whole(message, "steps_done", most=MAX_STEPS))
        return self._run_ended(session.grant)

    def _finish(self, session: Session, message: Message) -> Message:
        check_speaks(session)
        self._manager.finish(session.grant, whole(message, "steps_done", most=MAX_STEPS))
        return self._run_ended(session.grant)

    def _fail(self, session: Session, message: Message) -> Message:
        check_speaks(session)
        self._manager.fail(session.grant, text(message, "reason"))
        return self._run_ended(session.grant)

    def _run_ended(self, grant: Grant) -> Message:
        """The reply to the main session. Others are disconnected: when they connect again, the reply says that the run has
        ended."""
        self._close(grant.named.values())
        return _OK

    def _close(self, sessions: Iterable[Session]) -> None:
        for session in list(sessions):
            if (connection := self._connection(session)) is not None:
                connection.close()


def piece_message(decision: Decision) -> Message:
    """The answer to a demand."""
    piece = decision.answer.piece
    return {
        "op": "piece",
        "resource": decision.uuid,
        "sequence": decision.answer.sequence,
        "start_ns": piece.start_ns,
        "end_ns": piece.end_ns,
        "work_ns": piece.work_ns,
    }


def _peer(connection: Connection) -> object:
    """The peer that a connection belongs to: a container if it is known, else a process."""
    return connection.group or connection.peer.pid


def device_message(telemetry: DeviceTelemetry, only: str | None = None) -> Message:
    """The state of a device as a message. With `only`, it lists only the processes of the grant with that digest."""
    device = telemetry.device
    return {
        "uuid": device.uuid,
        "index": device.index,
        "gpu_type": device.gpu_type,
        "memory_bytes": device.memory_bytes,
        **mig_facts(device),
        "used_bytes": telemetry.used_bytes,
        "utilisation": round(telemetry.utilisation, 4),
        "healthy": telemetry.healthy,
        "reason": telemetry.reason,
        "processes": [
            {"pid": p.pid, "name": str(p.pod or p.job_id), "used_bytes": p.used_bytes}
            for p in telemetry.processes
            if only is None or p.grant == only
        ],
    }
