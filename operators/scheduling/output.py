"""A decision as one line of text, or of JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Iterator

from operators.kube.timestamps import rfc3339_micro
from scheduler_sims.interface.plan import Allocation
from scheduler_sims.loop.strategies import Decision


def in_words(decision: Decision) -> str:
    """Which jobs stop, start (and where) and are resized; then how many wait and hold resources."""
    parts = [*_parts(decision)]
    done = "; ".join(parts) if parts else f"nothing to do ({', '.join(decision.triggers)})"
    return f"{decision.at_s:10.3f} s  {done}  [{decision.queued} wait, {decision.holding} run]"


def ready_as_json(name: str, policy: str, namespace: str, at_ns: int) -> str:
    """The first line: the first lists are complete, and the scheduler decides from now on. `at_ns`: wall clock."""
    document = {"at": rfc3339_micro(at_ns), "scheduler": name, "policy": policy, "namespace": namespace}
    return json.dumps(document, separators=(",", ":"))


def as_json(decision: Decision, epoch_ns: int) -> str:
    """One line."""
    document = {
        "at": rfc3339_micro(epoch_ns + round(decision.at_s * 1e9)),
        "at_s": round(decision.at_s, 6),
        "took_s": round(decision.took_s, 6),
        "triggers": list(decision.triggers),
        "started": {job_id: _document(allocation) for job_id, allocation in decision.started.items()},
        "stopped": decision.stopped,
        "resized": {job_id: _document(allocation) for job_id, allocation in decision.resized.items()},
        "refused": decision.refused,
        "queued": decision.queued,
        "holding": decision.holding,
    }
    return json.dumps(document, separators=(",", ":"))


def _parts(decision: Decision) -> Iterator[str]:
    for job_id in decision.stopped:
        yield f"stop {job_id}"
    for job_id, allocation in decision.started.items():
        yield f"start {job_id} on {_place(allocation)}"
    for job_id, allocation in decision.resized.items():
        each = " on each node" if len(allocation.tasks) > 1 else ""
        yield f"{job_id} gets {allocation.tasks[0].cpu_milli / 1000:g} CPUs{each}"
    for job_id in decision.refused:
        yield f"{job_id} can't start just now"


def _place(allocation: Allocation) -> str:
    gpus = f"{allocation.gpus} GPU{'s' if allocation.gpus > 1 else ''}" if allocation.gpus else "CPUs"
    return f"{', '.join(allocation.nodes)} ({gpus})"


def _document(allocation: Allocation) -> dict[str, object]:
    first = allocation.tasks[0]
    return {
        "configuration": allocation.configuration,
        "nodes": list(allocation.nodes),
        "gpus": allocation.gpus,
        "cpu_milli": first.cpu_milli,
        "memory_bytes": first.memory_bytes,
    }
