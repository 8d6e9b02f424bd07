"""The admin socket: requests of the node's owner. The socket's file mode keeps other users out."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from emulator_runtime.domain.errors import ProtocolError
from emulator_runtime.ipc.fields import MAX_NS, text, texts, whole, wholes
from emulator_runtime.ipc.frames import Message
from emulator_runtime.ipc.poller import Connection
from emulator_runtime.ipc.warp import WAKE
from emulator_runtime.sharing.demands import WHOLE_MILLI, Terms
from sharing_manager.core.manager import Manager
from sharing_manager.grants.grant import Grant
from sharing_manager.persistence.event_log import EventLog, ManagerEvent
from sharing_manager.service.decision_time import WarpDecisions
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
            "handled": self._handled,
        }
        self.decisions: WarpDecisions | None = None
        """Set where the clock is a warp clock."""
        self._owners: set[Connection] = set()
        """Connections of the clock's owner; others, such as `emugpu smi`, don't count for its clock."""

    def on_message(self, connection: Connection, message: Message) -> None:
        op = message.get("op")
        if op in ("subscribe", "handled"):
            self._owners.add(connection)
        elif self.decisions is not None and connection in self._owners:
            self.decisions.handled += 1
            if op == WAKE["op"]:
                self.decisions.wake()
                return
        handler = self._handlers.get(op) if isinstance(op, str) else None
        if handler is None:
            raise ProtocolError(f"field 'op' must be one of {', '.join(self._handlers)}")
        connection.send(handler(connection, message))

    def on_close(self, connection: Connection) -> None:
        self._subscribers.discard(connection)
        self._owners.discard(connection)

    def publish(self, event: ManagerEvent) -> None:
        """Send the event to all subscribers, before the job that caused it gets its answer."""
        self.send_to_subscribers(event_message(event))

    def send_to_subscribers(self, message: Message) -> None:
        """Send a message to all subscribers: to the clock's owner, which is one."""
        for connection in list(self._subscribers):
            connection.send(message)

    def _handled(self, _: Connection, message: Message) -> Message:
        """How many messages were handled, for a clock's owner that connects again."""
        return {"ok": True, "handled": 0 if self.decisions is None else self.decisions.handled}

    def _grant(self, _: Connection, message: Message) -> Message:
        grant = self._manager.grant(
            text(message, "job_id"),
            texts(message, "devices"),
            whole(message, "steps_done", 0),
            _terms(message),
        )
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
        if self.decisions is not None:
            self.decisions.repeat()
        return _OK


def _terms(message: Message) -> list[Terms]:
    """The terms of each device: fields `row` (of the job), `milli` and `priority` (of each device)."""
    row, milli = whole(message, "row", 0), wholes(message, "milli", least=1, most=WHOLE_MILLI)
    priority = wholes(message, "priority", least=-MAX_NS) or [0] * len(milli)
    if len(priority) != len(milli):
        raise ProtocolError("fields 'milli' and 'priority' must have a number for each device")
    return [Terms(row, 0, *each) for each in zip(milli, priority, strict=True)]


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
