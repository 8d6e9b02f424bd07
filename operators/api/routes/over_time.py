"""Queue and occupancy over time, and figures of groups of jobs."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from operators.api.authentication.callers import NAMESPACE_PATTERN, CurrentServices, SignedIn, scope_of
from operators.api.model.snapshot import Job
from operators.api.model.statistics import holding, occupancy, queue_length, summarised
from operators.api.model.visibility import SIMULATED, matching, of_run, visible
from operators.api.replies.bodies import Group, MetricsSummary, Occupancy, Queue, json_reply
from operators.api.replies.problems import documented

MOST_SPANS = 6000
"""A browser becomes slow with more."""

router = APIRouter(tags=["over time"], responses=documented(401, 403, 404, 422, 503))


class WindowQuery(BaseModel):
    """A run and a window of time on its clock."""

    model_config = ConfigDict(extra="forbid")

    namespace: Annotated[
        str, Field(description="Only this namespace.", pattern=NAMESPACE_PATTERN, examples=["lab"])
    ] = ""
    run: Annotated[
        str,
        Field(
            description="A run of an experiment; empty: all jobs of a cluster, or the first observed run of a comparison.",
            examples=[""],
        ),
    ] = ""
    since_s: Annotated[float | None, Field(description="Begin of the window; default: the first submission.")] = None
    until_s: Annotated[
        float | None, Field(description="End of the window; default: now, or the last end of a job.")
    ] = None


class GroupQuery(BaseModel):
    """Which jobs are counted."""

    model_config = ConfigDict(extra="forbid")

    namespace: Annotated[
        str, Field(description="Only this namespace.", pattern=NAMESPACE_PATTERN, examples=["lab"])
    ] = ""
    experiment: str | None = None
    policy: str | None = None


@router.get("/queue", response_model=Queue, summary="Waiting jobs and held devices over time")
async def queue(services: CurrentServices, who: SignedIn, query: Annotated[WindowQuery, Query()]) -> Response:
    """Step lines of at most 600 points, each the highest value of its slice of time."""
    scope = await scope_of(services, who, query.namespace)
    snapshot = services.source.snapshot()
    view = of_run(snapshot, scope, query.run)
    window = view.window(query.since_s, query.until_s)
    reply = Queue(
        run=view.run,
        since_s=window.since_s,
        until_s=window.until_s,
        waiting=queue_length(view.jobs, snapshot.runs, window),
        held=holding(view.jobs, snapshot.runs, window),
        devices=view.gpus,
    )
    return json_reply(Queue, reply)


@router.get("/occupancy", response_model=Occupancy, summary="Which job held which device when")
async def occupied(services: CurrentServices, who: SignedIn, query: Annotated[WindowQuery, Query()]) -> Response:
    """All spans that overlap the window, uncut; of more than 6000 the longest."""
    scope = await scope_of(services, who, query.namespace)
    snapshot = services.source.snapshot()
    view = of_run(snapshot, scope, query.run)
    window = view.window(query.since_s, query.until_s)
    spans = occupancy(view.jobs, snapshot.runs, window)
    longest = sorted(spans, key=lambda span: span.from_s - (span.to_s or window.now_s))[:MOST_SPANS]
    kept = set(map(id, longest))
    reply = Occupancy(
        run=view.run,
        since_s=window.since_s,
        until_s=window.until_s,
        devices=[device.id for device in view.devices],
        spans=[span for span in spans if id(span) in kept],
        left_out=len(spans) - len(longest),
        held_share=view.held_share(window),
    )
    return json_reply(Occupancy, reply)


@router.get("/metrics-summary", response_model=MetricsSummary, summary="JCT quantiles and distributions")
async def metrics_summary(services: CurrentServices, who: SignedIn, query: Annotated[GroupQuery, Query()]) -> Response:
    """For all observed jobs, and for each experiment, policy and cluster."""
    scope = await scope_of(services, who, query.namespace)
    jobs = matching(
        visible(services.source.snapshot(), scope),
        (lambda job: job.experiment == query.experiment) if query.experiment is not None else None,
        (lambda job: job.policy == query.policy) if query.policy is not None else None,
    )
    groups: dict[tuple[str, str, str], list[Job]] = {}
    for job in jobs:
        groups.setdefault((job.experiment, job.policy, job.cluster), []).append(job)
    found = [
        Group(policy, cluster, experiment, summarised(own))
        for (experiment, policy, cluster), own in sorted(groups.items())
    ]
    observed = [job for job in jobs if job.cluster != SIMULATED]
    return json_reply(MetricsSummary, MetricsSummary(summarised(observed or jobs), found))
