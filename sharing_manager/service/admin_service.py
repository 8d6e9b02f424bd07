"""The admin socket: requests of the node's owner. The socket's file mode keeps other users out."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from emulator_runtime.domain.errors import ProtocolError
from emulator_runtime.ipc.fields import text, texts, whole
from emulator_runtime.ipc.frames import Message
from emulator_runtime.ipc.poller import Connection
from sharing_manager.core.manager import Manager
from sharing_manager.grants.grant import Grant
from sharing_manager.persistence.event_log import EventLog, ManagerEvent
from sharing_manager.service.job_service import device_message
from sharing_manager.telemetry.model import DeviceTelemetry

_OK: Message = {"ok": True}


class AdminService:
    """Answers requests by a table of ops, and sends events to subscribers."""

    def __init__(self, manager: Manager, log: EventLog) -> None:
        self._manager = manager
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
        """Send the event to all subscribers, before the job that caused it gets its answer."""
        for connection in list(self._subscribers):
            connection.send(event_message(event))

    def _grant(self, _: Connection, message: Message) -> Message:
        grant = self._manager.grant(text(message, "job_id"), texts(message, "devices"), whole(message, "steps_done", 0))
        return {"ok": True, "token": self._manager.token_of(grant)}

    def _stop(self, _: Connection, message: Message) -> Message:
        self._manager.stop(text(message, "job_id"))
        return _OK

    def _revoke(self, _: Connection, message: Message) -> Message:
        self._manager.revoke(text(message, "job_id"), text(message, "reason", "revoked"))
        return _OK

    def _steps(self, _: Connection, message: Message) -> Message:
        return {"ok": True, "steps_done": self._manager.steps_done(text(message, "job_id"))}

    def _status(self, _: Connection, message: Message) -> Message:
        devices = [_device(telemetry) for telemetry in self._manager.telemetry().devices]
        return {"ok": True, "devices": devices, "grants": [_grant(grant) for grant in self._manager.grants()]}

    def _subscribe(self, connection: Connection, message: Message) -> Message:
        for event in self._log.after(whole(message, "after", 0)):
            connection.send(event_message(event))
        if connection.open:  # sending the backlog may have closed the connection
            self._subscribers.add(connection)
        return _OK


def _device(telemetry: DeviceTelemetry) -> Message:
    holders = sorted(process.job_id for process in telemetry.processes)
    return device_message(telemetry) | {
        "leased_ns": telemetry.leased_ns,
        "holders": holders,
        "resource": telemetry.resource,
        "replicas": telemetry.replicas,
    }


def _grant(grant: Grant) -> Message:
    message: Message = {"job_id": grant.job_id, "state": str(grant.state), "steps_done": grant.steps_done}
    message["leased_ns"] = grant.leased_ns
    return message if grant.of_owner else message | {"pod": str(grant.pod or ""), "devices": list(grant.devices)}


def event_message(event: ManagerEvent) -> Message:
    """An event as subscribers receive it; an event about a pod has the pod's name and namespace."""
    message: Message = {
        "event": event.kind,
        "sequence": event.sequence,
        "at_ns": event.at_ns,
        "job_id": event.job_id,
        "from_step": event.from_step,
        "steps_done": event.steps_done,
        "detail": event.detail,
    }
    return message | {"namespace": event.namespace, "pod": event.pod} if event.pod else message
