"""Events on their way to the loop: it hears of a job's end once the devices are free again (cost `finish_s`), else at once."""

from __future__ import annotations

from scheduler_sims.clusters.base import Event, Happening


class Inbox:
    """`finish_ns`: from the end of a job's last step until its devices are free."""

    def __init__(self, finish_ns: int) -> None:
        self._finish_ns = finish_ns
        self._held: list[tuple[int, Event]] = []
        self._news = False

    def add(self, event: Event) -> None:
        """Something happened; an end may be held back."""
        late = self._finish_ns if event.what is Happening.FINISHED else 0
        self._held.append((event.at_ns + late if late else 0, event))
        self._news = True

    def has_news(self) -> bool:
        """Whether anything was added since the last `take`."""
        return self._news

    def due_ns(self) -> int | None:
        """When the next event is to be told; None: there is none."""
        return min((told_ns for told_ns, _ in self._held), default=None)

    def held(self, job_id: str) -> Event | None:
        """The end of this job that is not told yet."""
        return next((e for _, e in self._held if e.job_id == job_id and e.what is Happening.FINISHED), None)

    def take(self, now_ns: int) -> list[Event]:
        """What is to be told by now, in order."""
        self._news = False
        due = [event for told_ns, event in self._held if told_ns <= now_ns]
        self._held = [(told_ns, event) for told_ns, event in self._held if told_ns > now_ns]
        return sorted(due, key=lambda event: event.order)
