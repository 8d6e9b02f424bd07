"""Jobs: a filtered list in pages, one job's history and steps, and suspending and resuming it."""

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
    """Filters, order and fields. Texts must be equal, except for `name`; an absent filter matches all jobs."""

    model_config = ConfigDict(extra="forbid")

    namespace: Annotated[
        str, Field(description="Only this namespace.", pattern=NAMESPACE_PATTERN, examples=["lab"])
    ] = ""
    phase: Annotated[list[Phase], Field(description="In any of these phases.")] = []
    policy: Annotated[str | None, Field(description="Empty: jobs without a job-level scheduler.")] = None
    experiment: str | None = None
    run: Annotated[str | None, Field(description="Of this run of an experiment.", examples=["demo.1"])] = None
    cluster: Annotated[str | None, Field(description="kubernetes, local or simulated.")] = None
    name: Annotated[str, Field(description="Contained in its name, its tenant or its nodes (case-insensitive).")] = ""
    order: Annotated[
        Literal["submitted", "newest", "ended"],
        Field(description="By submission, newest submission first, or latest end first."),
    ] = "submitted"
    fields: Annotated[list[JobField], Field(description="Only these fields of each job, and uid.")] = []
    limit: Annotated[int, Field(description="Maximum number of jobs on a page.", ge=1, le=MOST_ON_A_PAGE)] = 200
    cursor: Annotated[
        str | None,
        Field(description="`next` of the preceding page.", pattern=f"^{_CURSOR.pattern}$", examples=["0.9f1c2b7a"]),
    ] = None


@router.get("/jobs", response_model=JobPage, summary="Jobs, filtered, page by page")
async def jobs(services: CurrentServices, who: SignedIn, query: Annotated[JobQuery, Query()]) -> Response:
    """A page begins after the last job of the page before, so a job that is submitted meanwhile appears once or not at all."""
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
    """The job's runs in order, how they ended, and what may distort its figures."""
    story = await services.source.timeline(job.uid)
    if story is None:
        raise NotThereError(f"job {job.uid} no longer exists")
    notes = [*story.notes, *([f"only the data of Kubernetes: {story.missing}"] if story.missing else [])]
    return json_reply(JobStory, JobStory(story.job, list(story.runs), list(story.conditions), notes))


@router.get("/jobs/{uid}/steps", response_model=JobSteps, summary="One job's steps", responses=documented(404))
async def steps(services: CurrentServices, job: Annotated[Job, Depends(readable_job)]) -> Response:
    """How many steps were done when and on which node. In a cluster they come from the results store: 503 without it."""
    story = await services.source.timeline(job.uid)
    if story is None:
        raise NotThereError(f"job {job.uid} no longer exists")
    if story.missing:
        raise StoreAwayError(f"the steps of {job.name} are not known: {story.missing}")
    return json_reply(JobSteps, JobSteps(job.uid, story.job.steps, list(story.progress)))


@router.post(
    "/jobs/{uid}/suspend", response_model=Suspension, summary="Suspend a job", responses=documented(404, 409, 502)
)
async def suspend(services: CurrentServices, job: Annotated[Job, Depends(writable_job)]) -> Response:
    """Sets spec.suspend: the job releases its devices after the current step and keeps its progress."""
    await services.source.suspend(job.uid, suspended=True)
    return json_reply(Suspension, Suspension(job.uid, suspended=True))


@router.post(
    "/jobs/{uid}/resume",
    response_model=Suspension,
    summary="Resume a suspended job",
    responses=documented(404, 409, 502),
)
async def resume(services: CurrentServices, job: Annotated[Job, Depends(writable_job)]) -> Response:
    """Clears spec.suspend: the job continues at once, or when its scheduler starts it."""
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
"""The position of a job in an order: microseconds (exact as the text of a cursor) and uid."""


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
