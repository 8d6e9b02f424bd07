"""One event of a job as everything in here knows it, whether a node's manager told it or Kubernetes did.

A type of its own, so that what is computed from events needs no Redis client to be imported.
"""

from __future__ import annotations

from dataclasses import dataclass, field

KUBERNETES = "kubernetes:"
"""Streams of what the API server tells of a pod begin with it; their times have a resolution of one second."""

BEGINS = "attached"
PROGRESS = "progress"
FINISHED = "finished"
PREEMPTED = frozenset({"released", "gone", "fenced"})
"""Ends of a run after which the job goes on later: it gave its devices back, or its pod was taken away."""
FAILED = "failed"
PAUSED = "suspended"
"""Another container of the same pod works with the devices: the run ends, but nobody preempted the job."""
ENDS = frozenset({FINISHED, FAILED, PAUSED}) | PREEMPTED


@dataclass(frozen=True, slots=True)
class JobEvent:
    """An event about `job_key`, covering its steps [from_step, steps_done). Names as in sharing_manager.store.entries.

    `stream`, `epoch` and `sequence` are its place; `number` is its number on its node. `wall_ns`: the node's wall clock since
    1970 (0: not known), `received_ns`: the operator's when it first saw it. `absorbed`: so many older events are in it.
    Where this store did that (thinning.py), the first of them had `since_number` and `since_ns` for `number` and `wall_ns`.
    `at_ns`: the manager's clock; of events from Kubernetes, when the API server created the pod (0: not known).
    """

    stream: str
    epoch: int
    sequence: int
    node: str
    number: int
    at_ns: int
    wall_ns: int
    kind: str
    job_key: str
    from_step: int
    steps_done: int
    detail: str = ""
    namespace: str = ""
    pod: str = ""
    absorbed: int = 0
    received_ns: int = field(default=0, compare=False)
    since_number: int = 0
    since_ns: int = 0

    @property
    def place(self) -> tuple[str, int, int]:
        return (self.stream, self.epoch, self.sequence)

    @property
    def content(self) -> tuple[object, ...]:
        """What happened, wherever it stands: a node that was told to begin a new epoch may send an old event under a new id
        (sharing_manager.store.resume, where Redis has lost everything)."""
        story = (self.job_key, self.from_step, self.steps_done, self.detail, self.namespace, self.pod)
        return (self.node, self.number, self.at_ns, self.wall_ns, self.kind, *story)

    def has(self, other: JobEvent) -> bool:
        """Whether the other one, a range of progress, is among those that went into this one."""
        same = (self.node, self.job_key, self.pod) == (other.node, other.job_key, other.pod)
        number, wall_ns = other.since_number or other.number, other.since_ns or other.wall_ns
        numbered = self.since_number <= number and other.number <= self.number
        return (
            same and other.kind == PROGRESS and numbered and self.since_ns <= wall_ns and other.wall_ns <= self.wall_ns
        )

    @property
    def job_uid(self) -> str:
        """The UID in "<EmuJob or Job UID>/<completion index>"; the key itself where it names a pod of neither."""
        return self.job_key.partition("/")[0]

    @property
    def from_kubernetes(self) -> bool:
        return self.stream.startswith(KUBERNETES)
