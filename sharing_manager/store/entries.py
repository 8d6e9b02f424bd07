"""The data in Redis: the names of the keys, and an event as the fields of a stream entry.

Writers (this package) and readers (operators, dashboards, programs in other languages) share only this format.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import NamedTuple

from emulator_runtime.domain.errors import ProtocolError

NODES = "emugpu:nodes"
"""Set: the names of the nodes that have a stream."""
PROGRESS = "emugpu:progress"
"""Sorted set: job key with its namespace (Entry.progress_key) -> steps done, which only grows. A score is a double: exact up to
2^53 steps."""
SEEN = "emugpu:progress:seen"
"""Sorted set: the same keys -> wall clock of its last event in milliseconds since 1970, so that old keys can be forgotten."""
_STREAM = "emugpu:events:"


def stream_of(node: str) -> str:
    """The key of a node's event stream."""
    return f"{_STREAM}{node}"


class EntryId(NamedTuple):
    """The id of a stream entry: when its outbox was created (milliseconds since 1970), and its number in that outbox."""

    epoch: int
    sequence: int

    def __str__(self) -> str:
        return f"{self.epoch}-{self.sequence}"

    @classmethod
    def parse(cls, text: str) -> EntryId:
        """Raises ProtocolError for anything but `<number>-<number>`."""
        epoch, _, sequence = text.partition("-")
        if not (epoch.isdecimal() and sequence.isdecimal()):
            raise ProtocolError(f"{text!r} is not the id of a stream entry (<milliseconds>-<sequence>)")
        return cls(int(epoch), int(sequence))


@dataclass(frozen=True, slots=True)
class Entry:
    """An event of a node, covering the steps [from_step, steps_done) of its job.

    `at_ns` is the manager's (possibly emulated) clock, `wall_ns` the host's wall clock since 1970; 0: unknown.
    `job_key` identifies the job within `namespace`: "<Job UID>/<completion index>".
    `absorbed`: the number of older entries of this job that were merged into this one because the outbox was full.
    """

    node: str
    sequence: int
    at_ns: int
    wall_ns: int
    kind: str
    job_id: str
    job_key: str
    from_step: int
    steps_done: int
    detail: str = ""
    namespace: str = ""
    pod: str = ""
    absorbed: int = 0

    def to_fields(self) -> list[str | int]:
        """Names and values in turn, as arguments of XADD. `absorbed` is left out if it is 0."""
        flat: list[str | int] = []
        for name in _FIELDS:
            flat += (name, getattr(self, name))
        if self.absorbed:
            flat += ("absorbed", self.absorbed)
        return flat

    @property
    def progress_key(self) -> str:
        """The member of PROGRESS (PodIdentity.job_key): two namespaces' pods may claim the same `job_key`."""
        return f"{self.namespace}/{self.job_key}" if self.namespace and "/" in self.job_key else self.job_key

    @classmethod
    def from_fields(cls, place: str, given: Mapping[str, str]) -> Entry:
        """Raises ProtocolError that names the entry (`place`) and the field."""
        texts = {name: given.get(name, "") for name in TEXTS}
        return cls(**texts, **{name: _whole(place, given, name) for name in _NUMBERS})  # type: ignore[arg-type]


_NUMBERS = ("sequence", "at_ns", "wall_ns", "from_step", "steps_done", "absorbed")
_FIELDS = tuple(f.name for f in fields(Entry) if f.name != "absorbed")
TEXTS = frozenset(name for name in _FIELDS if name not in _NUMBERS)


def _whole(place: str, given: Mapping[str, str], name: str) -> int:
    value = given.get(name, "0" if name == "absorbed" else "")
    try:
        return int(value)
    except ValueError:
        raise ProtocolError(f"{place}: field {name!r} must be a whole number, not {value!r}") from None


def furthest(entries: Iterable[Entry]) -> dict[str, tuple[int, int]]:
    """Per progress key: the most steps done, and the latest wall clock in milliseconds."""
    known: dict[str, tuple[int, int]] = {}
    for entry in entries:
        if entry.job_key:
            steps, seen_ms = known.get(entry.progress_key, (0, 0))
            known[entry.progress_key] = max(steps, entry.steps_done), max(seen_ms, entry.wall_ns // 1_000_000)
    return known
