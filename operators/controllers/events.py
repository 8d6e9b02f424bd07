"""Events about objects of this project (events.k8s.io/v1)."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from operators.kube.api import EMUJOB, Json
from operators.kube.timestamps import rfc3339_micro


@dataclass(frozen=True, slots=True)
class Regarding:
    """The object that an event is about; `namespace` is empty for a cluster-scoped object."""

    kind: str
    name: str
    uid: str
    namespace: str = ""


@dataclass(frozen=True, slots=True)
class Event:
    """What happened. `kind`: Normal or Warning; `reason`: one word in CamelCase."""

    kind: str
    reason: str
    note: str


EVENT_NAMESPACE = "default"
"""Where events about objects without a namespace go (events.k8s.io/v1)."""


def event_document(regarding: Regarding, event: Event, reporter: str, wall_ns: int) -> Json:
    """An events.k8s.io/v1 Event. Its name contains a hash of the time, so each occurrence is an event of its own."""
    digest = hashlib.sha256(f"{regarding.uid}/{event.reason}/{wall_ns}".encode()).hexdigest()[:16]
    within = {"namespace": regarding.namespace} if regarding.namespace else {}
    about = {"apiVersion": EMUJOB.api_version, "kind": regarding.kind, "name": regarding.name, "uid": regarding.uid}
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": f"{regarding.name}.{digest}", "namespace": regarding.namespace or EVENT_NAMESPACE},
        "eventTime": rfc3339_micro(wall_ns),
        "reportingController": f"emugpu.dev/{reporter}",
        "reportingInstance": f"emugpu-{reporter}",
        "action": "Reconcile",
        "reason": event.reason,
        "note": event.note[:1024],
        "type": event.kind,
        "regarding": about | within,
    }
