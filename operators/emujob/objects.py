"""What controller and scheduler know of EmuJobs: the border where the API's JSON becomes types."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from operators.kube.documents import Key, key_of, object_at, text_at, texts_of, whole_at
from operators.objects.names import EXPERIMENT_LABEL, POLICY, PREDICTED
from operators.objects.scheduling_problem import ANNOTATION as SCHEDULING_PROBLEM


@dataclass(frozen=True, slots=True)
class EmuJobFacts:
    """One EmuJob; `created` is RFC 3339, `status` what the API server has. `predicted`: its annotation of a forecast.

    `policy`: the annotation with the policy's title, in a run of an experiment.
    `seen_ns`: when this was received, in nanoseconds since 1970.
    """

    key: Key
    created: str = ""
    generation: int = 1
    deleting: bool = False
    spec: Mapping[str, Any] = field(default_factory=dict)
    status: Mapping[str, Any] = field(default_factory=dict)
    predicted: str = ""
    scheduling_problem: str = ""
    experiment: str = ""
    policy: str = ""
    seen_ns: int = field(default=0, compare=False)


def emujob_facts(document: Mapping[str, Any], seen_ns: int = 0) -> EmuJobFacts:
    """An EmuJob as the API server sends it."""
    metadata = object_at(document, "metadata")
    return EmuJobFacts(
        key=key_of(document),
        created=text_at(metadata, "creationTimestamp"),
        generation=whole_at(metadata, "generation"),
        deleting="deletionTimestamp" in metadata,
        spec=object_at(document, "spec"),
        status=object_at(document, "status"),
        predicted=texts_of(metadata, "annotations").get(PREDICTED, ""),
        scheduling_problem=texts_of(metadata, "annotations").get(SCHEDULING_PROBLEM, ""),
        experiment=texts_of(metadata, "labels").get(EXPERIMENT_LABEL, ""),
        policy=texts_of(metadata, "annotations").get(POLICY, ""),
        seen_ns=seen_ns,
    )
