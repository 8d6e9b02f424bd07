"""Events on their way to the loop. An end is delivered when the devices are free (costs `finish_s`, `shared_stop_s`)."""

from __future__ import annotations

from dataclasses import replace

from scheduler_sims.clusters.base import Event, Happening


class Inbox:
    """Undelivered events. `finish_ns`: from the end of a job's last step until its devices are free."""

    def __init__(self, finish_ns: int) -> None:
        self._finish_ns = finish_ns
        self._pending: list[tuple[int, Event]] = []
        self._shared_ns: dict[str, int] = {}
        self._news = False

    def stopping(self, job_id: str, shared_ns: int) -> None:
        """The devices of this job, which is being stopped, are free `shared_ns` after its STOPPED event."""
        self._shared_ns[job_id] = shared_ns

    def add(self, event: Event) -> None:
        """Add an event; the delivery of an end may be delayed."""
        late_ns = self._finish_ns if event.what is Happening.FINISHED else 0
        delivery_ns = event.at_ns + late_ns if late_ns else 0
        if event.what is not Happening.STARTED:
            shared_ns = self._shared_ns.pop(event.job_id, 0)
            if shared_ns and event.what is Happening.STOPPED:
                delivery_ns = event.at_ns + shared_ns
                event = replace(event, at_ns=delivery_ns)
        self._pending.append((delivery_ns, event))
        self._news = True

    def has_news(self) -> bool:
        """Whether anything was added since the last `take`."""
        return self._news

    def due_ns(self) -> int | None:
        """When the next event is delivered; None without one."""
        return min((delivery_ns for delivery_ns, _ in self._pending), default=None)

    def pending_end(self, job_id: str) -> Event | None:
        """The undelivered end of this job."""
        ends = (Happening.FINISHED, Happening.STOPPED)
        return next((event for _, event in self._pending if event.job_id == job_id and event.what in ends), None)

    def take(self, now_ns: int) -> list[Event]:
        """The events that are due, in order."""
        self._news = False
        due = [event for delivery_ns, event in self._pending if delivery_ns <= now_ns]
        self._pending = [(delivery_ns, event) for delivery_ns, event in self._pending if delivery_ns > now_ns]
        return sorted(due, key=lambda event: event.order)
