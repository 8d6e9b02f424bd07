"""Reads the managers' events (Redis Streams) and checks two promises: each step is done once, and each device has one holder."""

from __future__ import annotations

import json
from dataclasses import dataclass

from e2e.cases.kube import SYSTEM, Kubectl


@dataclass(frozen=True)
class Reported:
    """One event of a node's stream; `number` is its position."""

    node: str
    number: int
    kind: str
    job_key: str
    from_step: int
    steps_done: int
    at_ns: int
    wall_ns: int
    namespace: str
    detail: str


class Ledger:
    """The streams of all nodes."""

    def __init__(self, kubectl: Kubectl, redis_pod: str = "emugpu-redis-0") -> None:
        self._kubectl = kubectl.within(SYSTEM)
        self._redis_pod = redis_pod

    def redis(self, *args: str) -> object:
        return json.loads(self._kubectl("exec", self._redis_pod, "--", "redis-cli", "--json", *args))

    def events(self) -> list[Reported]:
        streams = self.redis("KEYS", "emugpu:events:*")
        assert isinstance(streams, list)
        events = []
        for stream in sorted(streams):
            entries = self.redis("XRANGE", stream, "-", "+")
            assert isinstance(entries, list)
            for _, fields in entries:
                field = dict(zip(fields[::2], fields[1::2], strict=True)) if isinstance(fields, list) else fields
                events.append(
                    Reported(
                        field["node"],
                        int(field["sequence"]),
                        field["kind"],
                        field.get("job_key", field["job_id"]),
                        int(field["from_step"]),
                        int(field["steps_done"]),
                        int(field["at_ns"]),
                        int(field["wall_ns"]),
                        field.get("namespace", ""),
                        field.get("detail", ""),
                    )
                )
        return events

    def of(self, job_key_prefix: str) -> list[Reported]:
        return [event for event in self.events() if event.job_key.startswith(job_key_prefix)]


def check_every_step_once(events: list[Reported], steps: int) -> None:
    """The ranges [from_step, steps_done) of one job key must cover [0, steps) without gap or overlap.

    A run goes on on another node where the last one stopped, so ranges are sorted by where they begin.
    """
    ranges = sorted((e.from_step, e.steps_done) for e in events if e.steps_done != e.from_step)
    at = 0
    for begin, end in ranges:
        assert begin == at, f"steps {at}..{begin} are {'missing' if begin > at else 'doubled'}: {ranges}"
        assert end > begin, f"steps went back: {ranges}"
        at = end
    assert at == steps, f"{at} of {steps} steps: {ranges}"
