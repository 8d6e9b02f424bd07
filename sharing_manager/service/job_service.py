"""The job socket: translates messages into calls of the manager, and results into replies. One table maps ops to
methods."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace

from emulator_runtime.domain.errors import ProtocolError, RefusedError
from emulator_runtime.domain.sensitivity import HostShare
from emulator_runtime.domain.units import MAX_SECONDS, to_ns
from emulator_runtime.ipc.control import resize_message
from emulator_runtime.ipc.fields import MAX_NS, text, whole
from emulator_runtime.ipc.frames import OLDEST_VERSION, PROTOCOL_VERSION, Message
from emulator_runtime.ipc.poller import Connection
from emulator_runtime.memory.rules import Reservation
from emulator_runtime.node.inventory import mig_facts
from emulator_runtime.sharing.demands import Demand
from emulator_runtime.timing.warp import Frames
from sharing_manager.core.manager import Manager
from sharing_manager.core.shared_time import Decision
from sharing_manager.devices.host_shares import HostShares
from sharing_manager.grants.grant import Grant
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
    """Serves the requests of jobs. Each connection is bound to one grant by its token."""

    def __init__(
        self,
        manager: Manager,
        attaching: Attaching | None = None,
        guard_counts: GuardCounts | None = None,
        shares: HostShares | None = None,
    ) -> None:
        """`guard_counts` has the counts of the guard in front of this service, for telemetry. `shares` has the host shares by
        pod."""
        self._manager = manager
        self._guard_counts = guard_counts or GuardCounts()
        self._shares = shares or HostShares()
        self._shares.on_change = self._share_changed
        self._share_subscribers: set[Connection] = set()
        self._attaching = attaching or Attaching(manager)
        self._attaching.connection_of = lambda grant: self._connections.get(grant.digest)
        self._grants: dict[Connection, Grant] = {}
        self._counted: dict[Connection, tuple[str, tuple[int, int]]] = {}
        """Connections over which time is demanded: the client's name for each, and the counts that were reported last."""
        self._closed_names: list[str] = []
        self.counts_messages = False
        """Whether a warp clock counts messages; `changed_counts` returns nothing otherwise."""
        self._old: set[Connection] = set()
        """Connections of clients that know no demands."""
        self._connections: dict[str, Connection] = {}
        self._unidentified: dict[Connection, None] = {}  # connections without a valid token, oldest first
        manager.pods.on_displaced = self._displaced
        manager.on_stop = self._stop_asked
        self._handlers: Mapping[str, Callable[[Grant, Message], Message | None]] = {
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
        grant = self._grants.get(connection)
        if grant is None:
            raise RefusedError("this connection has presented no token yet: send op attach first")
        reply = handler(grant, message)
        if reply is not None:
            connection.send(reply)

    def decide(self, until_ns: int) -> None:
        """Send the answers to demands that are due by `until_ns`."""
        for decision in self._manager.decide(until_ns):
            connection = self._connections.get(decision.grant.digest)
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
        grant = self._grants.pop(connection, None)
        if grant is not None and self._connections.get(grant.digest) is connection:
            del self._connections[grant.digest]
            self._manager.detached(grant)

    @property
    def attached(self) -> frozenset[str]:
        """Digests of the grants that have a connection."""
        return frozenset(self._connections)

    def telemetry(self) -> NodeTelemetry:
        """The manager's telemetry, completed by the counts of connections."""
        return replace(
            self._manager.telemetry(),
            connections=len(self._grants) + len(self._unidentified),
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
        if connection in self._grants:
            raise RefusedError("this connection is attached already")
        request = AttachRequest(
            token=text(message, "token"),
            job_id=text(message, "job_id") if "job_id" in message else None,
            steps_done=whole(message, "steps_done") if "steps_done" in message else None,
            after_ns=whole(message, "after_ns", 0),
            wants_shares=message.get("host") is True,
            version=version,
            connection=text(message, "connection", "")[:MAX_NAME],
        )
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
        self._unidentified.pop(connection, None)
        previous = self._connections.get(grant.digest)
        self._grants[connection], self._connections[grant.digest] = grant, connection
        if request.version < _DEMANDS:
            self._old.add(connection)
        elif self.counts_messages and self._manager.shared(grant):
            self._counted[connection] = (request.connection, (0, 0))
        if previous is not None:
            previous.close()  # a job that reconnects replaces its own lost connection
        grant.pid = connection.peer.pid
        connection.prefer()
        reply |= {"devices": self._device_messages(grant, request.version)}
        if request.wants_shares:
            self._share_subscribers.add(connection)
            if grant.pod is not None and (share := self._shares.of(grant.pod.pod_uid)) is not None:
                reply |= {"host": {"cpu_milli": share.cpu_milli, "memory_bytes": share.memory_bytes}}
        connection.send(reply)
        if grant.stopping:
            self._stop_asked(grant, self._manager.last_number(grant))

    def _device_messages(self, grant: Grant, version: int) -> list[Message]:
        messages: list[Message] = [
            {"uuid": d.uuid, "index": d.index, "gpu_type": d.gpu_type, "memory_bytes": d.memory_bytes}
            for d in self._manager.devices_of(grant)
        ]
        if version < _DEMANDS:
            return messages
        modes = self._manager.modes_of(grant)
        return [message | {"mode": mode.name} for message, mode in zip(messages, modes, strict=True)]

    def _stop_asked(self, grant: Grant, last: int) -> None:
        """Tell a job that waits for the answer to a demand; others learn of the stop from the reply to their next lease."""
        connection = self._connections.get(grant.digest)
        if connection is not None and self._manager.shared(grant) and connection not in self._old:
            connection.send({"op": "stop", "at_ns": self._manager.now_ns(), "last": last})

    def _share_changed(self, pod_uid: str, share: HostShare) -> None:
        """Send the new share to the pod's processes that asked for updates; others would take the message for a reply."""
        for connection in list(self._share_subscribers):
            pod = self._grants[connection].pod
            if pod is not None and pod.pod_uid == pod_uid:
                connection.send(resize_message(share))

    def _displaced(self, grant: Grant) -> None:
        connection = self._connections.get(grant.digest)
        if connection is not None:
            connection.close()

    def _telemetry_of(self, grant: Grant) -> Message:
        """The state of a grant's devices. For a shared device it lists only the processes of this grant."""
        devices = self._manager.telemetry(grant.uuids).devices
        return {"ok": True, "devices": [device_message(d, only=grant.digest) for d in devices]}

    # --- requests of an attached job --------------------------------------------------------------------------------

    def _demand(self, grant: Grant, message: Message) -> None:
        """Answered by a message `piece` when it has been decided."""
        wanted = Demand(
            session=grant.holder,
            sequence=whole(message, "sequence"),
            ready_ns=max(whole(message, "ready_ns"), grant.floor_ns),
            work_ns=whole(message, "work_ns", most=MAX_LEASE_NS),
            remaining_ns=whole(message, "remaining_ns", MAX_NS),
        )
        self._manager.demand(grant, text(message, "resource"), wanted)

    def _report(self, grant: Grant, message: Message) -> None:
        self._manager.report(grant, whole(message, "steps_done"))

    def _lease(self, grant: Grant, message: Message) -> Message:
        duration_ns = whole(message, "duration_ns", most=MAX_LEASE_NS)
        lease = self._manager.lease(grant, whole(message, "step"), duration_ns, whole(message, "issue_ns"))
        if lease.stop:
            return {"ok": True, "stop": True}
        return {"ok": True, "start_ns": lease.start_ns, "end_ns": lease.end_ns}

    def _reserve(self, grant: Grant, message: Message) -> Message:
        self._manager.reserve(grant, Reservation(whole(message, "persistent_bytes"), whole(message, "peak_bytes")))
        return _OK

    def _release(self, grant: Grant, message: Message) -> Message:
        self._manager.release(grant, whole(message, "steps_done"))
        return _OK

    def _finish(self, grant: Grant, message: Message) -> Message:
        self._manager.finish(grant, whole(message, "steps_done"))
        return _OK

    def _fail(self, grant: Grant, message: Message) -> Message:
        self._manager.fail(grant, text(message, "reason"))
        return _OK


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
