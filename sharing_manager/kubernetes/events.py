"""Kubernetes Events, so that `kubectl describe pod` shows what the manager did to a pod.

Events are delivered on best effort and must never flood the API server: the same event is sent once in five minutes; after
a burst at most one event a second is sent; an event that can't be delivered within a minute is dropped and counted.

Source: Kubernetes API, events.k8s.io/v1 Event: required fields, lengths (pkg/apis/core/validation/events.go).
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from emulator_runtime.domain.units import NS_PER_S, to_ns
from emulator_runtime.timing.host import monotonic_ns
from sharing_manager.grants.identity import PodIdentity
from sharing_manager.kubernetes.api_server import ApiServer, ApiServerError, request_backoff
from sharing_manager.kubernetes.problem_log import ProblemLog

REPEAT_S = 300.0
"""Minimum time between two identical events about an object (host seconds)."""
BURST, PER_S = 25, 1.0
"""Rate limit (a token bucket): events at once, and events per second after that."""
MAX_QUEUED = 200
DELIVER_S = 60.0
"""Maximum time that an event waits for delivery (host seconds)."""
CONTROLLER = "emugpu.dev/sharing-manager"
_MAX_KEYS = 4096
_NOTE_CHARS = 1000
"""The API's limit is 1024 bytes. Notes are mostly ASCII; longer ones are cut to that many bytes below."""
_FINAL_REFUSALS = frozenset({400, 403, 404, 409, 413, 422})
"""Refusals that a retry doesn't change: no permission, a namespace that is being deleted, an invalid or duplicate event."""


@dataclass(frozen=True, slots=True)
class Subject:
    """The object of an event: `regarding` in the API."""

    kind: str
    name: str
    uid: str
    namespace: str = ""
    container: str = ""

    @classmethod
    def of_pod(cls, identity: PodIdentity) -> Subject:
        return cls("Pod", identity.pod, identity.pod_uid, identity.namespace, identity.container)


@dataclass(frozen=True, slots=True)
class PendingEvent:
    """One event to send. `wall_ns`: nanoseconds since 1970. `repeats`: how often the same event was suppressed before."""

    subject: Subject
    reason: str
    note: str
    warning: bool
    wall_ns: int
    repeats: int = 0


def event_object(event: PendingEvent, node: str) -> dict[str, object]:
    """The object to create. Events about cluster-wide objects belong to the namespace `default` (events.go)."""
    subject = event.subject
    namespace = subject.namespace or "default"
    regarding = {"apiVersion": "v1", "kind": subject.kind, "name": subject.name, "uid": subject.uid}
    if subject.namespace:
        regarding["namespace"] = subject.namespace
    if subject.container:
        regarding["fieldPath"] = f"spec.containers{{{subject.container}}}"
    note = event.note
    if event.repeats:
        note = f"{note} ({event.repeats} more of these in the last minutes)"
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": f"{subject.name[:230].rstrip('.-')}.{event.wall_ns:x}", "namespace": namespace},
        "eventTime": _micro_time(event.wall_ns),
        "reportingController": CONTROLLER,
        "reportingInstance": node[:128],
        "action": event.reason,
        "reason": event.reason,
        "regarding": regarding,
        "note": note[:_NOTE_CHARS].encode()[:1024].decode(errors="ignore"),
        "type": "Warning" if event.warning else "Normal",
    }


def event_path(event: PendingEvent) -> str:
    return f"/apis/events.k8s.io/v1/namespaces/{event.subject.namespace or 'default'}/events"


class EventGate:
    """Decides which events are sent. Pure: time is an argument (host nanoseconds)."""

    def __init__(self) -> None:
        self._sent: OrderedDict[tuple[Subject, str, str], tuple[int, int]] = OrderedDict()

    def admit(self, subject: Subject, reason: str, note: str, now_ns: int) -> int | None:
        """None if the same event was sent recently, else how often it was suppressed since then."""
        key = (subject, reason, note)
        sent_ns, repeats = self._sent.pop(key, (None, 0))
        if sent_ns is not None and now_ns - sent_ns < to_ns(REPEAT_S):
            self._sent[key] = (sent_ns, repeats + 1)
            return None
        self._sent[key] = (now_ns, 0)
        while len(self._sent) > _MAX_KEYS:
            self._sent.popitem(last=False)
        return repeats


class EventSender:
    """A PodEvents. `step` is called by one thread of the border; the other methods may be called by any thread."""

    def __init__(self, api: ApiServer, node: str, wake: Callable[[], None], wall_ns: Callable[[], int]) -> None:
        self._api, self._node, self._wake, self._wall_ns = api, node, wake, wall_ns
        self._lock = threading.Lock()
        self._gate = EventGate()
        self._queue: deque[tuple[int, PendingEvent]] = deque()
        self._dropped = 0
        self._last_wall_ns = 0
        self._paid_ns = 0  # when the bucket is full again
        self._retry_ns = 0
        self._backoff = request_backoff(f"{node}/events")
        self._problems = ProblemLog(f"node {node}: the API server takes events again")

    def record(self, identity: PodIdentity, reason: str, note: str, *, warning: bool) -> None:
        """See PodEvents."""
        self.send(Subject.of_pod(identity), reason, note, warning=warning)

    def send(self, subject: Subject, reason: str, note: str, *, warning: bool) -> None:
        """Queue an event about any object; never blocks, never raises."""
        now_ns = monotonic_ns()
        with self._lock:
            repeats = self._gate.admit(subject, reason, note, now_ns)
            if repeats is None:
                return
            if len(self._queue) >= MAX_QUEUED:
                self._queue.popleft()
                self._dropped += 1
            # unique, as it is part of the event's name
            self._last_wall_ns = max(self._wall_ns(), self._last_wall_ns + 1)
            self._queue.append((now_ns, PendingEvent(subject, reason, note, warning, self._last_wall_ns, repeats)))
        self._wake()

    @property
    def queued(self) -> int:
        return len(self._queue)

    @property
    def dropped(self) -> int:
        """Number of events dropped since the start."""
        return self._dropped

    def step(self, now_ns: int) -> int | None:
        """Send one event if the rate allows it. Returns when to call again (None: not before `wake`)."""
        with self._lock:
            if not self._queue:
                return None
            since_ns, event = self._queue[0]
        due_ns = max(self._paid_ns - to_ns((BURST - 1) / PER_S), self._retry_ns)
        if now_ns < due_ns:
            return due_ns
        try:
            self._api.post(event_path(event), event_object(event, self._node))
        except ApiServerError as error:
            if error.status not in _FINAL_REFUSALS and now_ns - since_ns < to_ns(DELIVER_S):
                self._retry_ns = monotonic_ns() + to_ns(self._backoff.next_s())
                return self._retry_ns
            self._problems.report(f"node {self._node}: an event about {event.subject.name} is dropped: {error}")
            self._dropped += 1
        else:
            self._problems.clear()
            self._backoff.reset()
        self._paid_ns = max(self._paid_ns, now_ns) + to_ns(1 / PER_S)
        with self._lock:
            if self._queue and self._queue[0][1] is event:
                self._queue.popleft()
            return now_ns if self._queue else None


def _micro_time(wall_ns: int) -> str:
    """RFC 3339 with microseconds: the API's MicroTime."""
    moment = datetime.fromtimestamp(wall_ns // NS_PER_S, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{wall_ns % NS_PER_S // 1000:06d}Z"
