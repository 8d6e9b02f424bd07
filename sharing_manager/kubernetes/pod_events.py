"""The Kubernetes Events by which the owner of a pod is informed: a table of kinds, and a sentence for each."""

from __future__ import annotations

from collections.abc import Callable

from sharing_manager.grants.identity import PodEvents, PodIdentity
from sharing_manager.persistence.event_log import ManagerEvent

_NOTES = {  # kind of the manager's event: reason of the Kubernetes Event, whether it is a warning
    "attached": ("EmuGPUAttached", False),
    "oom": ("EmuGPUOutOfMemory", True),
    "device-lost": ("EmuGPULost", True),
    "fenced": ("EmuGPUFenced", True),
}


def notes_for(events: PodEvents) -> Callable[[PodIdentity, ManagerEvent], None]:
    """A callback that reports the events in the table, and no others."""

    def tell(identity: PodIdentity, event: ManagerEvent) -> None:
        if event.kind in _NOTES:
            reason, warning = _NOTES[event.kind]
            events.record(identity, reason, _sentence(identity, event), warning=warning)

    return tell


def _sentence(identity: PodIdentity, event: ManagerEvent) -> str:
    if event.kind != "attached":
        return event.detail
    where = f"goes on at step {event.steps_done}" if event.steps_done else "begins"
    return f"container {identity.container or '?'} {where} on {event.detail.replace(',', ', ') or 'CPUs alone'}"
