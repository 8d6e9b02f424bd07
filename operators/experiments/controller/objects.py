"""Experiments, runners and run namespaces as the controller reads them from the API's JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from operators.experiments.controller.names import FINALIZER, PROGRESS, UID_LABEL
from operators.experiments.controller.progress import RunnerProgress, progress_of
from operators.kube.documents import Key, condition_holds, condition_of, key_of, object_at, text_at, texts_of, whole_at


@dataclass(frozen=True, slots=True)
class ExperimentFacts:
    """One SchedulingExperiment; `created` is RFC 3339. `begun`: it has the finalizer. `finalizers`: all of them."""

    key: Key
    created: str = ""
    generation: int = 1
    deleting: bool = False
    finalizers: tuple[str, ...] = ()
    spec: Mapping[str, Any] = field(default_factory=dict)
    status: Mapping[str, Any] = field(default_factory=dict)
    progress: RunnerProgress = field(default_factory=RunnerProgress)

    @property
    def begun(self) -> bool:
        return FINALIZER in self.finalizers

    @property
    def phase(self) -> str:
        return text_at(self.status, "phase")


@dataclass(frozen=True, slots=True)
class RunnerFacts:
    """A runner's Job. `owner`: the experiment's uid. `pods`: how many live or are ending; `died`: how many failed.

    `failure`: why it has failed for good; `started`: when its present pods were wanted, `ended`: when it failed or was complete,
    both RFC 3339. `ready`: how many pods run.
    """

    key: Key
    owner: str = ""
    deleting: bool = False
    suspended: bool = False
    pods: int = 0
    died: int = 0
    complete: bool = False
    failed: bool = False
    failure: str = ""
    started: str = ""
    ended: str = ""
    ready: int = 0

    @property
    def finished(self) -> bool:
        return self.complete or self.failed

    @property
    def works(self) -> bool:
        """Whether it uses the cluster, or may start to at any moment."""
        return self.pods > 0 or not (self.finished or self.suspended)


@dataclass(frozen=True, slots=True)
class RunNamespace:
    """The namespace of a run. `owner`: the experiment's uid."""

    key: Key
    owner: str = ""
    deleting: bool = False


def experiment_facts(document: Mapping[str, Any]) -> ExperimentFacts:
    """A SchedulingExperiment as the API server sends it."""
    metadata = object_at(document, "metadata")
    finalizers = metadata.get("finalizers")
    return ExperimentFacts(
        key=key_of(document),
        created=text_at(metadata, "creationTimestamp"),
        generation=whole_at(metadata, "generation"),
        deleting="deletionTimestamp" in metadata,
        finalizers=tuple(str(each) for each in finalizers) if isinstance(finalizers, list) else (),
        spec=object_at(document, "spec"),
        status=object_at(document, "status"),
        progress=progress_of(texts_of(metadata, "annotations").get(PROGRESS, "")),
    )


def runner_facts(document: Mapping[str, Any]) -> RunnerFacts:
    """A Job as the API server sends it."""
    metadata, status = object_at(document, "metadata"), object_at(document, "status")
    failed = condition_of(status, "Failed") if condition_holds(status, "Failed") else {}
    return RunnerFacts(
        key=key_of(document),
        owner=texts_of(metadata, "labels").get(UID_LABEL, ""),
        deleting="deletionTimestamp" in metadata,
        suspended=object_at(document, "spec").get("suspend") is True,
        pods=whole_at(status, "active") + whole_at(status, "terminating"),
        died=whole_at(status, "failed"),
        complete=condition_holds(status, "Complete"),
        failed=bool(failed),
        failure=text_at(failed, "message") or text_at(failed, "reason"),
        started=text_at(status, "startTime"),
        ready=whole_at(status, "ready"),
        ended=text_at(status, "completionTime") or text_at(failed, "lastTransitionTime"),
    )


def run_namespace_of(document: Mapping[str, Any]) -> RunNamespace:
    """A Namespace as the API server sends it."""
    metadata = object_at(document, "metadata")
    labels = texts_of(metadata, "labels")
    return RunNamespace(key_of(document), labels.get(UID_LABEL, ""), "deletionTimestamp" in metadata)
