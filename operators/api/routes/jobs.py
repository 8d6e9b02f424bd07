"""Jobs: a list to filter and page through, one job's story and steps, and the two things that can be done to one."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from operators.api.authentication.callers import (
    NAMESPACE_PATTERN,
    CurrentServices,
    SignedIn,
    readable_job,
    scope_of,
    writable_job,
)
from operators.api.model.snapshot import Job
from operators.api.model.visibility import matching, visible
from operators.api.replies.bodies import (
    JobField,
    JobPage,
    JobSteps,
    JobStory,
    Suspension,
    job_page,
    json_reply,
)
from operators.api.replies.problems import StoreAwayError, documented
from operators.kube.api import NotThereError
from operators.objects.names import Phase

MOST_ON_A_PAGE = 10_000
_CURSOR = re.compile(r"(-?[0-9]{1,20})\.([-0-9A-Za-z]{1,64})", re.ASCII)

router = APIRouter(tags=["jobs"], responses=documented(401, 403, 422, 503))


class JobQuery(BaseModel):
    """Which jobs, and what of them. Texts match as a whole; what isn't given is no condition."""

    model_config = ConfigDict(extra="forbid")

    namespace: Annotated[
        str, Field(description="Only this namespace.", pattern=NAMESPACE_PATTERN, examples=["lab"])
    ] = ""
    phase: Annotated[list[Phase], Field(description="In any of these phases.")] = []
    policy: Annotated[str | None, Field(description="Empty: jobs without a job-level scheduler.")] = None
    experiment: str | None = None
    run: Annotated[str | None, Field(description="Of this run of an experiment.", examples=["demo.1"])] = None
    cluster: Annotated[str | None, Field(description="kubernetes, local or simulated.")] = None
    name: Annotated[str, Field(description="Has this in its name, its tenant or its nodes, in any case.")] = ""
    order: Annotated[
        Literal["submitted", "newest", "ended"],
        Field(description="By submission, by submission backwards, or by their end, the last first."),
    ] = "submitted"
    fields: Annotated[list[JobField], Field(description="Only these fields of each job, and uid.")] = []
    limit: Annotated[int, Field(description="At most so many on one page.", ge=1, le=MOST_ON_A_PAGE)] = 200
    cursor: Annotated[
        str | None,
        Field(
            description="What the page before said as `next`.", pattern=f"^{_CURSOR.pattern}$", examples=["0.9f1c2b7a"]
        ),
    ] = None


@router.get("/jobs", response_model=JobPage, summary="Jobs, filtered, page by page")
async def jobs(services: CurrentServices, who: SignedIn, query: Annotated[JobQuery, Query()]) -> Response:
    """A page begins after the last job of the page before, so jobs that come meanwhile are told once or not at all."""
    scope = await scope_of(services, who, query.namespace)
    snapshot = services.source.snapshot()
    found, place = _filtered(visible(snapshot, scope), query), _PLACES[query.order]
    ordered = found if query.order == "submitted" else sorted(found, key=place)
    begin = 0 if query.cursor is None else bisect_right(ordered, _after(query.cursor), key=place)
    page = ordered[begin : begin + query.limit]
    following = _cursor(place(page[-1])) if begin + query.limit < len(found) else None
    return job_page(snapshot.version, len(found), page, query.fields, following)


@router.get(
    "/jobs/{uid}", response_model=JobStory, summary="One job: runs, conditions, notes", responses=documented(404)
)
async def job(services: CurrentServices, job: Annotated[Job, Depends(readable_job)]) -> Response:
    """Its stays on devices in order, how they ended, and what may distort its figures."""
    story = await services.source.timeline(job.uid)
    if story is None:
        raise NotThereError(f"there is no job {job.uid} any more")
    notes = [*story.notes, *([f"only what Kubernetes says: {story.missing}"] if story.missing else [])]
    return json_reply(JobStory, JobStory(story.job, list(story.runs), list(story.conditions), notes))


@router.get("/jobs/{uid}/steps", response_model=JobSteps, summary="One job's steps", responses=documented(404))
async def steps(services: CurrentServices, job: Annotated[Job, Depends(readable_job)]) -> Response:
    """How many steps were done between which times, on which node. In a cluster the operator's store tells: 503 without it."""
    story = await services.source.timeline(job.uid)
    if story is None:
        raise NotThereError(f"there is no job {job.uid} any more")
    if story.missing:
        raise StoreAwayError(f"steps of {job.name} can't be told: {story.missing}")
    return json_reply(JobSteps, JobSteps(job.uid, story.job.steps, list(story.progress)))


@router.post(
    "/jobs/{uid}/suspend", response_model=Suspension, summary="Hold a job", responses=documented(404, 409, 502)
)
async def suspend(services: CurrentServices, job: Annotated[Job, Depends(writable_job)]) -> Response:
    """Sets spec.suspend: its devices become free after the step that it is at, and it keeps its progress."""
    await services.source.suspend(job.uid, suspended=True)
    return json_reply(Suspension, Suspension(job.uid, suspended=True))


@router.post(
    "/jobs/{uid}/resume", response_model=Suspension, summary="Let a held job go on", responses=documented(404, 409, 502)
)
async def resume(services: CurrentServices, job: Annotated[Job, Depends(writable_job)]) -> Response:
    """Clears spec.suspend: it goes on at once, or when its scheduler says so."""
    await services.source.suspend(job.uid, suspended=False)
    return json_reply(Suspension, Suspension(job.uid, suspended=False))


def _filtered(jobs: Sequence[Job], query: JobQuery) -> Sequence[Job]:
    wanted, phases = query.name.casefold(), frozenset(query.phase)
    return matching(
        jobs,
        (lambda job: job.phase in phases) if phases else None,
        (lambda job: job.policy == query.policy) if query.policy is not None else None,
        (lambda job: job.experiment == query.experiment) if query.experiment is not None else None,
        (lambda job: job.run == query.run) if query.run is not None else None,
        (lambda job: job.cluster == query.cluster) if query.cluster is not None else None,
        (lambda job: wanted in " ".join((job.name, job.tenant, *job.nodes)).casefold()) if wanted else None,
    )


Place = tuple[int, str]
"""Where a job stands in an order: microseconds, since a cursor is a text, and its uid."""


def _submitted(job: Job) -> Place:
    return round(job.submitted_s * 1e6), job.uid


def _newest(job: Job) -> Place:
    return -round(job.submitted_s * 1e6), job.uid


def _ended(job: Job) -> Place:
    return _NEVER if job.finished_s is None else -round(job.finished_s * 1e6), job.uid


_NEVER = 10**19
_PLACES = {"submitted": _submitted, "newest": _newest, "ended": _ended}


def _cursor(place: Place) -> str:
    return f"{place[0]}.{place[1]}"


def _after(cursor: str) -> Place:
    micros, _, uid = cursor.partition(".")
    return int(micros), uid
