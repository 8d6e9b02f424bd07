"""Events on their way to the loop: it hears of an end once the devices are free (costs `finish_s`, `shared_stop_s`)."""

from __future__ import annotations

from dataclasses import replace

from scheduler_sims.clusters.base import Event, Happening


class Inbox:
    """`finish_ns`: from the end of a job's last step until its devices are free."""

    def __init__(self, finish_ns: int) -> None:
        self._finish_ns = finish_ns
        self._held: list[tuple[int, Event]] = []
        self._longer_ns: dict[str, int] = {}
        self._news = False

    def stopping(self, job_id: str, longer_ns: int) -> None:
        """The devices of this job, which is being stopped, are free so much later than it says."""
        self._longer_ns[job_id] = longer_ns

    def add(self, event: Event) -> None:
        """Something happened; an end may be held back."""
        late_ns = self._finish_ns if event.what is Happening.FINISHED else 0
        told_ns = event.at_ns + late_ns if late_ns else 0
        if event.what is not Happening.STARTED:
            longer_ns = self._longer_ns.pop(event.job_id, 0)
            if longer_ns and event.what is Happening.STOPPED:
                told_ns = event.at_ns + longer_ns
                event = replace(event, at_ns=told_ns)
        self._held.append((told_ns, event))
        self._news = True

    def has_news(self) -> bool:
        """Whether anything was added since the last `take`."""
        return self._news

    def due_ns(self) -> int | None:
        """When the next event is to be told; None: there is none."""
        return min((told_ns for told_ns, _ in self._held), default=None)

    def held(self, job_id: str) -> Event | None:
        """The end of this job that is not told yet."""
        ends = (Happening.FINISHED, Happening.STOPPED)
        return next((event for _, event in self._held if event.job_id == job_id and event.what in ends), None)

    def take(self, now_ns: int) -> list[Event]:
        """What is to be told by now, in order."""
        self._news = False
        due = [event for told_ns, event in self._held if told_ns <= now_ns]
        self._held = [(told_ns, event) for told_ns, event in self._held if told_ns > now_ns]
        return sorted(due, key=lambda event: event.order)
