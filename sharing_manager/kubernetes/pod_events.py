"""Which events of the manager become Kubernetes Events of a pod, and their text."""

from __future__ import annotations

from collections.abc import Callable

from sharing_manager.grants.identity import PodEvents, PodIdentity
from sharing_manager.persistence.event_log import ManagerEvent

_REPORTED = {  # kind of the manager's event: reason of the Kubernetes Event, whether it is a warning
    "attached": ("EmuGPUAttached", False),
    "oom": ("EmuGPUOutOfMemory", True),
    "device-lost": ("EmuGPULost", True),
    "fenced": ("EmuGPUFenced", True),
    "elsewhere": ("EmuGPUElsewhere", True),
}


def event_reporter(events: PodEvents) -> Callable[[PodIdentity, ManagerEvent], None]:
    """A callback that reports the events in the table, and no others."""

    def report(identity: PodIdentity, event: ManagerEvent) -> None:
        if event.kind in _REPORTED:
            reason, warning = _REPORTED[event.kind]
            events.record(identity, reason, _sentence(identity, event), warning=warning)

    return report


def _sentence(identity: PodIdentity, event: ManagerEvent) -> str:
    if event.kind != "attached":
        return event.detail
    start = f"resumes at step {event.steps_done}" if event.steps_done else "starts"
    return f"container {identity.container or '?'} {start} on {event.detail.replace(',', ', ') or 'CPUs only'}"
