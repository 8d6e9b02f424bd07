"""Runners and namespaces of runs as the controller reads them from the API's JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from operators.kube.documents import Key, condition_holds, condition_of, key_of, object_at, text_at, texts_of, whole_at
from operators.objects.names import EXPERIMENT_UID_LABEL, RUN_NAMESPACE_PREFIX


@dataclass(frozen=True, slots=True)
class RunnerJob:
    """A runner's Job. `owner`: the experiment's uid. Numbers of pods: `pods` live or are ending, `ready` run, `died` failed.

    `failure`: why it failed for good; `started`: when its present pods were requested, `ended`: when it failed or was complete,
    both RFC 3339.
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
    """A namespace with the label of runs. `owner`: the experiment's uid; empty if it isn't one of a run.

    Whoever may label its own namespace could else stop all experiments, and have it deleted; the names are reserved.
    """

    key: Key
    owner: str = ""
    deleting: bool = False


def runner_job_of(document: Mapping[str, Any]) -> RunnerJob:
    """A Job as the API server sends it."""
    metadata, status = object_at(document, "metadata"), object_at(document, "status")
    failed = condition_of(status, "Failed") if condition_holds(status, "Failed") else {}
    return RunnerJob(
        key=key_of(document),
        owner=texts_of(metadata, "labels").get(EXPERIMENT_UID_LABEL, ""),
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
    key, claimed = key_of(document), texts_of(metadata, "labels").get(EXPERIMENT_UID_LABEL, "")
    owner = claimed if key.name.startswith(RUN_NAMESPACE_PREFIX) else ""
    return RunNamespace(key, owner, "deletionTimestamp" in metadata)
