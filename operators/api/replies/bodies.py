"""The bodies of replies, and how they are written as JSON: in one pass, also for ten thousand jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, fields
from functools import cache
from typing import Annotated, Any, cast, get_type_hints

from fastapi import Response
from pydantic import AfterValidator, Field, TypeAdapter, WithJsonSchema, create_model

from operators.api.model.snapshot import Cluster, Condition, Device, Experiment, Job, JobRun, Node, Progress, Run
from operators.api.model.statistics import Line, Span, Summary

JOB_FIELDS = tuple(field.name for field in fields(Job))


def _known_field(name: str) -> str:
    if name not in JOB_FIELDS:
        raise ValueError(f"{name!r} is not a field of a job; known: {', '.join(JOB_FIELDS)}")
    return name


JobField = Annotated[str, AfterValidator(_known_field), WithJsonSchema({"type": "string", "enum": list(JOB_FIELDS)})]
_HINTS = get_type_hints(Job, include_extras=True)
_PARTS: dict[str, Any] = {name: (hint, ... if name == "uid" else None) for name, hint in _HINTS.items()}
PartOfJob = create_model("PartOfJob", __doc__="The requested fields of a job, and always its uid.", **_PARTS)


@dataclass(frozen=True, slots=True)
class ClusterState:
    """A cluster and its present figures."""

    cluster: Cluster
    version: Annotated[int, Field(description="Grows with every change of anything.")]
    now_s: Annotated[float, Field(description="The present time on the cluster's clock.")]
    event: Annotated[
        str,
        Field(description="The newest event's id: a stream of the events after it is complete.", examples=["8f3a-17"]),
    ]
    jobs: Annotated[dict[str, int], Field(description="Number of jobs by phase.", examples=[{"Running": 3}])]
    nodes: int
    devices: int
    held: Annotated[int, Field(description="Devices that jobs hold now.")]
    unhealthy: int


@dataclass(frozen=True, slots=True)
class Clusters:
    items: list[ClusterState]


@dataclass(frozen=True, slots=True)
class Nodes:
    items: list[Node]


@dataclass(frozen=True, slots=True)
class Devices:
    items: list[Device]


@dataclass(frozen=True, slots=True)
class JobPage:
    """One page of jobs, in order of submission. `total` counts all that match, on all pages."""

    version: int
    total: int
    items: list[PartOfJob]  # type: ignore[valid-type]  # made of Job's fields
    next: Annotated[str | None, Field(description="The cursor of the next page; null: this is the last page.")]


@dataclass(frozen=True, slots=True)
class JobStory:
    """One job with its runs, conditions and notes."""

    job: Job
    runs: list[JobRun]
    conditions: list[Condition]
    notes: list[str]


@dataclass(frozen=True, slots=True)
class JobSteps:
    """The progress of one job over time; empty for jobs of a comparison."""

    uid: str
    steps: int | None
    progress: list[Progress]


@dataclass(frozen=True, slots=True)
class Suspension:
    """The requested value of spec.suspend; the job's phase follows."""

    uid: str
    suspended: bool


@dataclass(frozen=True, slots=True)
class Queue:
    """How many jobs waited and how many devices were held, over time. `run` null: all jobs of the cluster."""

    run: Run | None
    since_s: float
    until_s: float
    waiting: Line
    held: Line
    devices: int


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Which job held which device when. `left_out`: number of spans that are not among the longest MOST_SPANS."""

    run: Run | None
    since_s: float
    until_s: float
    devices: list[str]
    spans: list[Span]
    left_out: int
    held_share: Annotated[float | None, Field(description="Share of the devices' time in which a job held them.")]


@dataclass(frozen=True, slots=True)
class Experiments:
    items: list[Experiment]


@dataclass(frozen=True, slots=True)
class RunFigures:
    """One run of an experiment with its figures."""

    run: Run
    summary: Summary
    held_share: float | None


@dataclass(frozen=True, slots=True)
class ExperimentFigures:
    """An experiment with the figures of all its runs."""

    experiment: Experiment
    runs: list[RunFigures]


@dataclass(frozen=True, slots=True)
class Group:
    """The jobs of one policy on one kind of cluster, with their figures."""

    policy: str
    cluster: str
    experiment: str
    summary: Summary


@dataclass(frozen=True, slots=True)
class MetricsSummary:
    """The figures of all observed jobs (of the predicted ones if none was observed), and by experiment, policy and cluster."""

    all: Summary
    groups: list[Group]


@dataclass(frozen=True, slots=True)
class Policy:
    """A bundled scheduling policy."""

    name: Annotated[str, Field(examples=["allox"])]
    summary: str
    preemptive: bool
    needs_estimates: bool
    options: dict[str, bool | int | float | str]


@dataclass(frozen=True, slots=True)
class Policies:
    items: list[Policy]


@dataclass(frozen=True, slots=True)
class Session:
    """The signed-in user and their rights."""

    user: str
    everything: Annotated[bool, Field(description="Whether they may list jobs of all namespaces.")]
    lasts_s: Annotated[int | None, Field(description="How long the new session lasts; null in the answer to GET.")]


def json_reply(kind: Hashable, value: Any) -> Response:
    """`value` as JSON of this type."""
    return Response(
        _adapter(kind).dump_json(value), media_type="application/json", headers={"Cache-Control": "no-store"}
    )


def job_page(version: int, total: int, jobs: Sequence[Job], wanted: Iterable[str], following: str | None) -> Response:
    """A JobPage with the wanted fields of the jobs."""
    names = {"uid", *wanted} if wanted else set(JOB_FIELDS)
    items = _adapter(list[Job]).dump_json(list(jobs), include={"__all__": names})
    head = _adapter(dict[str, Any]).dump_json({"version": version, "total": total, "next": following})
    body = head[:-1] + b',"items":' + items + b"}"
    return Response(body, media_type="application/json", headers={"Cache-Control": "no-store"})


def job_json(job: Job) -> str:
    """One job as one line of JSON."""
    return _adapter(Job).dump_json(job).decode()


@cache
def _adapter(kind: Hashable) -> TypeAdapter[Any]:
    return TypeAdapter(cast(Any, kind))


def by_phase(jobs: Iterable[Job]) -> dict[str, int]:
    """The number of jobs by phase."""
    return dict(Counter(job.phase for job in jobs))
