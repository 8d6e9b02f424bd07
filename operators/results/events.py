"""One event of a job, reported by a node's manager or derived from the container states that Kubernetes reports.

This type needs no Redis client, so that results can be computed without importing one.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from emulator_runtime.exit_codes import EXIT_STOPPED
from operators.kube.timestamps import ns_of
from operators.objects.pod import ContainerRun, Pod

KUBERNETES = "kubernetes:"
"""Prefix of the streams of events that are derived from pods; their times have a resolution of one second."""

BEGINS = "attached"
PROGRESS = "progress"
FINISHED = "finished"
PREEMPTED = frozenset({"released", "gone", "fenced"})
"""Ends of a run after which the job continues later: it gave its devices back, or its pod was taken away."""
FAILED = "failed"
PAUSED = "suspended"
"""Another container of the same pod uses the devices: the run ends, but the job wasn't preempted."""
ENDS = frozenset({FINISHED, FAILED, PAUSED}) | PREEMPTED


@dataclass(frozen=True, slots=True)
class JobEvent:
    """An event of `job_key` that covers its steps [from_step, steps_done). Names as in sharing_manager.store.entries.

    `stream`, `epoch`, `sequence`: its place. `number`: its number on its node. `wall_ns`: the node's wall clock since 1970 (0:
    not known). `received_ns`: the operator's wall clock when it received the event first. `at_ns`: the manager's clock; of events
    from Kubernetes, when the API server created the pod (0: not known). `absorbed`: number of older events merged into this one;
    if this store merged them (thinning.py), the first of them had `since_number` and `since_ns` as `number` and `wall_ns`.
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
        """What happened, independent of the place: a node that was told to begin a new epoch may send an old event under a new id
        (sharing_manager.store.resume, after Redis has lost all its data)."""
        story = (self.job_key, self.from_step, self.steps_done, self.detail, self.namespace, self.pod)
        return (self.node, self.number, self.at_ns, self.wall_ns, self.kind, *story)

    def has(self, other: JobEvent) -> bool:
        """Whether the other event, a range of progress, is one of those that were merged into this one."""
        same = (self.node, self.job_key, self.pod) == (other.node, other.job_key, other.pod)
        number, wall_ns = other.since_number or other.number, other.since_ns or other.wall_ns
        numbered = self.since_number <= number and other.number <= self.number
        return (
            same and other.kind == PROGRESS and numbered and self.since_ns <= wall_ns and other.wall_ns <= self.wall_ns
        )

    @property
    def job_uid(self) -> str:
        """The uid in "<EmuJob or Job uid>/<completion index>"; the key itself if it is the uid of a pod of neither."""
        return self.job_key.partition("/")[0]

    @property
    def from_kubernetes(self) -> bool:
        return self.stream.startswith(KUBERNETES)


# --- container states as events --------------------------------------------------------------------------------------------

# They are the only source where there is no Redis, and the cross check where there is one. Their times are whole seconds of the
# kubelet's clock. The id of such an event derives from the pod and the start of its container, so that a pod that is seen again
# adds nothing.

_BEGIN, _END = 1, 2


def events_of_pod(pod: Pod) -> list[JobEvent]:
    """The events of the containers that request devices of emugpu, or of the first container if none does."""
    demanding = pod.demand.containers
    first = pod.runs[0].container if pod.runs else ""
    events: dict[tuple[str, int, int], JobEvent] = {}
    for run in pod.runs:
        if run.container in demanding or (not demanding and run.container == first):
            part = (
                "" if pod.asking < 2 else f"/{run.container}"
            )  # of several, the manager gives each a job key of its own
            for event in _events_of_run(pod, part, run):
                events[event.place] = event
    return list(events.values())


def _events_of_run(pod: Pod, part: str, run: ContainerRun) -> list[JobEvent]:
    """`part`: what the container's job key has after that of the pod."""
    started_ns, finished_ns = ns_of(run.started), ns_of(run.finished)
    if not started_ns:
        return []
    events = [_event(pod, part, started_ns, (_BEGIN, BEGINS, started_ns))]
    if finished_ns:
        events.append(_event(pod, part, started_ns, (_END, _end_of(pod, run), finished_ns)))
    return events


def _end_of(pod: Pod, run: ContainerRun) -> str:
    """A pod that is taken away was preempted, whatever its exit code: a killed container has none of its own."""
    if run.exit_code == 0:
        return FINISHED
    if run.exit_code == EXIT_STOPPED:
        return "released"
    return "gone" if pod.disrupted or pod.deleting else FAILED


def _event(pod: Pod, part: str, started_ns: int, moment: tuple[int, str, int]) -> JobEvent:
    sequence, kind, at_ns = moment
    return JobEvent(
        stream=f"{KUBERNETES}{pod.key.uid}{part}",
        epoch=started_ns // 1_000_000,
        sequence=sequence,
        node=pod.node,
        number=sequence,
        at_ns=ns_of(pod.created) or 0,
        wall_ns=at_ns,
        kind=kind,
        job_key=f"{pod.job_key}{part}",
        from_step=0,
        steps_done=0,
        namespace=pod.key.namespace,
        pod=pod.key.name,
        received_ns=pod.seen_ns,
    )
