"""Turns the container states of a pod into events of the same form as the managers' events.

They are the only source where there is no Redis, and the cross check where there is one. Container times are whole seconds of the
kubelet's clock. The id of such an event derives from the pod and the start of its container, so that a pod that is seen
again adds nothing.
"""

from __future__ import annotations

from operators.kube.timestamps import ns_of
from operators.objects.pod import ContainerRun, Pod
from operators.results.events import BEGINS, FAILED, FINISHED, KUBERNETES, JobEvent

EXIT_STOPPED = 143
"""The exit code of a trainer that was asked to stop (128 + SIGTERM); it has written its checkpoint."""
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
