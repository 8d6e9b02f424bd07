"""From messages to the manager's methods and back: the job's socket and the admin socket, one table each."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from emulator_runtime.domain.errors import ProtocolError, RefusedError
from emulator_runtime.domain.units import MAX_SECONDS, to_ns
from emulator_runtime.ipc.fields import text, texts, whole
from emulator_runtime.ipc.frames import PROTOCOL_VERSION, Message
from emulator_runtime.ipc.poller import Connection
from emulator_runtime.memory.admission import Reservation
from sharing_manager.devices import DevicePool
from sharing_manager.event_log import EventLog, ManagerEvent
from sharing_manager.grants import Grant
from sharing_manager.manager import Manager

MAX_LEASE_NS = to_ns(MAX_SECONDS)
_OK: Message = {"ok": True}


class JobService:
    """What a job may ask for. Each connection is bound to one grant by its token."""

    def __init__(self, manager: Manager) -> None:
        self._manager = manager
        self._grants: dict[Connection, Grant] = {}
        self._holders: dict[str, Connection] = {}
        self._handlers: Mapping[str, Callable[[Grant, Message], Message]] = {
            "lease": self._lease,
            "reserve": self._reserve,
            "release": self._release,
            "finish": self._finish,
            "fail": self._fail,
        }

    def on_message(self, connection: Connection, message: Message) -> None:
        """Answer one request. Raises errors of the tree; the connection turns them into replies."""
        op = message.get("op")
        if op == "attach":
            connection.send(self._attach(connection, message))
            return
        handler = self._handlers.get(op) if isinstance(op, str) else None
        if handler is None:
            raise ProtocolError(f"field 'op' must be one of attach, {', '.join(self._handlers)}")
        grant = self._grants.get(connection)
        if grant is None:
            raise RefusedError("this connection has shown no token yet: send op attach first")
        connection.send(handler(grant, message))

    def on_close(self, connection: Connection) -> None:
        grant = self._grants.pop(connection, None)
        if grant is not None and self._holders.get(grant.token) is connection:
            del self._holders[grant.token]
            self._manager.detached(grant)

    def _attach(self, connection: Connection, message: Message) -> Message:
        if whole(message, "version") != PROTOCOL_VERSION:
            raise ProtocolError(f"protocol version {message['version']} is not spoken here, only {PROTOCOL_VERSION}")
        if connection in self._grants:
            raise RefusedError("this connection is attached already")
        steps_done = whole(message, "steps_done") if "steps_done" in message else None
        grant = self._manager.attach(
            text(message, "token"), text(message, "job_id"), steps_done, whole(message, "after_ns", 0)
        )
        if not grant.live:
            return {"ok": True, "ended": str(grant.state), "devices": []}
        former = self._holders.get(grant.token)
        self._grants[connection], self._holders[grant.token] = grant, connection
        if former is not None:
            former.close()  # fence: a job that comes back replaces its own lost connection
        devices = [
            {"uuid": d.uuid, "index": d.index, "gpu_type": d.gpu_type, "memory_bytes": d.memory_bytes}
            for d in self._manager.devices_of(grant)
        ]
        return {"ok": True, "devices": devices}

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


class AdminService:
    """What the owner of the node may ask for (the socket's file mode keeps others out)."""

    def __init__(self, manager: Manager, pool: DevicePool, log: EventLog) -> None:
        self._manager = manager
        self._pool = pool
        self._log = log
        self._subscribers: set[Connection] = set()
        self._handlers: Mapping[str, Callable[[Connection, Message], Message]] = {
            "grant": self._grant,
            "stop": self._stop,
            "revoke": self._revoke,
            "steps": self._steps,
            "status": self._status,
            "subscribe": self._subscribe,
        }

    def on_message(self, connection: Connection, message: Message) -> None:
        op = message.get("op")
        handler = self._handlers.get(op) if isinstance(op, str) else None
        if handler is None:
            raise ProtocolError(f"field 'op' must be one of {', '.join(self._handlers)}")
        connection.send(handler(connection, message))

    def on_close(self, connection: Connection) -> None:
        self._subscribers.discard(connection)

    def publish(self, event: ManagerEvent) -> None:
        """Tell all subscribers; before the job that caused the event gets its answer."""
        for connection in list(self._subscribers):
            connection.send(event_message(event))

    def _grant(self, _: Connection, message: Message) -> Message:
        grant = self._manager.grant(text(message, "job_id"), texts(message, "devices"), whole(message, "steps_done", 0))
        return {"ok": True, "token": grant.token}

    def _stop(self, _: Connection, message: Message) -> Message:
        self._manager.stop(text(message, "job_id"))
        return _OK

    def _revoke(self, _: Connection, message: Message) -> Message:
        self._manager.revoke(text(message, "job_id"), text(message, "reason", "revoked"))
        return _OK

    def _steps(self, _: Connection, message: Message) -> Message:
        return {"ok": True, "steps_done": self._manager.steps_done(text(message, "job_id"))}

    def _status(self, _: Connection, message: Message) -> Message:
        devices = [
            {
                "uuid": d.device.uuid,
                "index": d.device.index,
                "gpu_type": d.device.gpu_type,
                "memory_bytes": d.device.memory_bytes,
                "used_bytes": d.memory.used_bytes,
                "leased_ns": d.leased_ns,
                "holders": sorted(d.holders),
            }
            for d in self._pool.all()
        ]
        grants = [
            {"job_id": g.job_id, "state": str(g.state), "steps_done": g.steps_done, "leased_ns": g.leased_ns}
            for g in self._manager.grants()
        ]
        return {"ok": True, "devices": devices, "grants": grants}

    def _subscribe(self, connection: Connection, message: Message) -> Message:
        for event in self._log.after(whole(message, "after", 0)):
            connection.send(event_message(event))
        if connection.open:  # else it was dropped while the backlog was sent
            self._subscribers.add(connection)
        return _OK


def event_message(event: ManagerEvent) -> Message:
    """An event as subscribers get it."""
    return {
        "event": event.kind,
        "sequence": event.sequence,
        "at_ns": event.at_ns,
        "job_id": event.job_id,
        "from_step": event.from_step,
        "steps_done": event.steps_done,
        "detail": event.detail,
    }
