"""A batch/v1 Job and a Service of an EmuJob as the API server sends them, read once for all programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from emulator_runtime.node.layout import JOB_LABEL
from operators.kube.documents import Key, condition_holds, condition_of, key_of, object_at, text_at, texts_of, whole_at
from operators.kube.timestamps import ns_of
from operators.objects.names import ALLOCATION, CONFIGURATION
from operators.objects.pod import NO_DEMAND, OWN_DOMAIN, Demand, controller_of, demand_of

_LATE_NS = 3_000_000_000
"""Creation times are cut to whole seconds, and a watch event takes a moment to arrive."""


@dataclass(frozen=True, slots=True)
class BatchJob:
    """One batch/v1 Job. `owner`: uid of its controller; `stopped`: the Job controller has seen that it is suspended.

    `failure`, `failure_reason`: why it has failed for good; empty: it hasn't. Times are RFC 3339. `tasks`: pods that do work of
    their own; `demand`: what each requests of emugpu, unless the Job is an EmuJob's. `annotations`: those of emugpu on the pod
    template. `seen_ns`: when this was received.
    """

    key: Key
    owner: str = ""
    deleting: bool = False
    suspended: bool = False
    stopped: bool = False
    started: str = ""
    active: int = 0
    terminating: int = 0
    failed: int = 0
    complete: bool = False
    completed: str = ""
    failure: str = ""
    failure_reason: str = ""
    annotations: Mapping[str, str] = field(default_factory=dict)
    created: str = ""
    tasks: int = 1
    demand: Demand = NO_DEMAND
    seen_ns: int = field(default=0, compare=False)

    @classmethod
    def read(cls, document: Mapping[str, Any], seen_ns: int = 0) -> BatchJob:
        """A Job as the API server sends it."""
        metadata, spec, status = (object_at(document, part) for part in ("metadata", "spec", "status"))
        annotations = texts_of(object_at(spec, "template", "metadata"), "annotations")
        failed = condition_of(status, "Failed") if condition_holds(status, "Failed") else {}
        of_emujob = JOB_LABEL in texts_of(metadata, "labels")
        return cls(
            key=key_of(document),
            owner=controller_of(metadata)[0],
            deleting="deletionTimestamp" in metadata,
            suspended=spec.get("suspend") is True,
            stopped=condition_holds(status, "Suspended"),
            started=text_at(status, "startTime"),
            active=whole_at(status, "active"),
            terminating=whole_at(status, "terminating"),
            failed=whole_at(status, "failed"),
            complete=condition_holds(status, "Complete"),
            completed=text_at(status, "completionTime") or text_at(failed, "lastTransitionTime"),
            failure=text_at(failed, "message"),
            failure_reason=text_at(failed, "reason") or ("Failed" if failed else ""),
            annotations={name: text for name, text in annotations.items() if name.startswith(OWN_DOMAIN)},
            created=text_at(metadata, "creationTimestamp"),
            tasks=max(1, whole_at(spec, "completions")) if spec.get("completionMode") == "Indexed" else 1,
            demand=NO_DEMAND if of_emujob else demand_of(object_at(spec, "template", "spec")),
            seen_ns=seen_ns,
        )

    @property
    def finished(self) -> bool:
        return self.complete or bool(self.failure_reason)

    @property
    def run(self) -> str:
        """When the present run began; empty while the Job is suspended or hasn't begun. Each resumption is another run."""
        return "" if self.suspended or self.stopped else self.started

    @property
    def configuration(self) -> str:
        """The name of the configuration that its pods run."""
        return self.annotations.get(CONFIGURATION, "")

    @property
    def allocation(self) -> str:
        """The annotation with the allocation that a job-level scheduler gave it (emulator_runtime/node/allocation.py)."""
        return self.annotations.get(ALLOCATION, "")


@dataclass(frozen=True, slots=True)
class Service:
    """The headless Service of an EmuJob of several nodes."""

    key: Key

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Service:
        return cls(key_of(document))


def submission_ns(created: str, seen_ns: int) -> int:
    """When an object was submitted, in nanoseconds since 1970.

    The time at which the controller saw it first is exact to the nanosecond; if the controller was away then, the creation time
    counts, which the API server gives in whole seconds.
    """
    created_ns = ns_of(created)
    late = created_ns is not None and seen_ns - created_ns >= _LATE_NS
    return created_ns if late and created_ns is not None else seen_ns
