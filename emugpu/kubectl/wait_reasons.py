"""Why a job doesn't run, in sentences: messages of conditions and pods, jobs before it in the queue, free devices."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from emugpu.kubectl.job_views import JobView
from emugpu.kubectl.node_views import NodeView
from emugpu.kubectl.output import counted
from operators.kube.api import Json
from operators.kube.documents import condition_of, object_at, objects_in, text_at, texts_of
from operators.objects.names import GATE

_QUEUED = ("Queued", "Preempted")


def reasons(
    job: JobView,
    document: Mapping[str, Any],
    pods: Iterable[Json],
    others: Sequence[JobView],
    nodes: Sequence[NodeView],
) -> list[str]:
    """Sentences; none for a job that runs or has ended. `others` are EmuJobs of all namespaces that may be read."""
    if not job.waits:
        return []
    if not job.conditions:
        return ["the job controller has not seen it yet; `kubectl -n emugpu-system get pods` shows whether it runs"]
    refused = next((c for c in job.conditions if c.kind == "Accepted" and not c.holds), None)
    if refused is not None:
        return [f"it can't run here: {refused.message or refused.reason}"]
    found = list(_own_words(job, document))
    found += [line for pod in pods for line in _of_pod(pod)]
    found += _queue(job, others)
    found += _free(nodes)
    return found


def _own_words(job: JobView, document: Mapping[str, Any]) -> Iterator[str]:
    if object_at(document, "spec").get("suspend") is True:
        yield "it is held: spec.suspend is true"
    for kind in ("Progressing", "Scheduled"):
        condition = next((c for c in job.conditions if c.kind == kind), None)
        if condition is not None and not condition.holds and condition.message and condition.reason != "Held":
            yield condition.message
    if job.phase == "Preempted":
        often = counted(job.preemptions, "time")
        yield f"its GPUs were taken away, {often} so far; the {job.steps_done} {job.unit} that are done are kept"


def _of_pod(pod: Json) -> Iterator[str]:
    name, spec, status = text_at(object_at(pod, "metadata"), "name"), object_at(pod, "spec"), object_at(pod, "status")
    if text_at(status, "phase") != "Pending":
        return
    if "deletionTimestamp" in object_at(pod, "metadata"):
        yield f"pod {name} is still ending"
        return
    if any(text_at(gate, "name") == GATE for gate in objects_in(spec, "schedulingGates")):
        yield f"pod {name} waits for its scheduler to open the gate {GATE}"
        return
    bound = condition_of(status, "PodScheduled")
    if bound.get("status") == "False" and text_at(bound, "message"):
        yield f"pod {name}: {text_at(bound, 'message')}"
    for container in objects_in(status, "containerStatuses"):
        waiting = object_at(container, "state", "waiting")
        if waiting:
            message = f": {text_at(waiting, 'message')}" if text_at(waiting, "message") else ""
            yield f"pod {name}: container {text_at(container, 'name')} waits, {text_at(waiting, 'reason')}{message}"


def _queue(job: JobView, others: Sequence[JobView]) -> Iterator[str]:
    """Number of jobs that wait for the same scheduler; its order may be another one."""
    if not job.scheduler:
        return
    same = [o for o in others if o.scheduler == job.scheduler and o.uid != job.uid and o.phase in _QUEUED]
    earlier = sum(1 for o in same if (o.submitted_s or 0) < (job.submitted_s or 0))
    if same:
        others_wait = f"{counted(len(same), 'other job')} {'waits' if len(same) == 1 else 'wait'}"
        yield f"{others_wait} for scheduler {job.scheduler}, {earlier} of them submitted earlier"


def _free(nodes: Sequence[NodeView]) -> Iterator[str]:
    free = {node.name: node.allocatable - node.allocated for node in nodes if node.ready and node.allocatable}
    left = {name: count for name, count in free.items() if count > 0}
    if not free:
        return
    if not left:
        yield f"no GPU is free: all {sum(node.allocatable for node in nodes if node.ready)} are allocated"
        return
    most = max(left, key=lambda name: left[name])
    total = sum(left.values())
    where = f"on {most}" if len(left) == 1 else f"on {len(left)} nodes, at most {left[most]} on one ({most})"
    yield f"{counted(total, 'GPU')} {'is' if total == 1 else 'are'} free {where}"


def pods_of(documents: Iterable[Json], uid: str, label: str) -> list[Json]:
    """The pods whose label names this EmuJob."""
    return [pod for pod in documents if texts_of(object_at(pod, "metadata"), "labels").get(label) == uid]
