"""Experiments and policies."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Response

from operators.api.authentication.callers import CurrentServices, Reader
from operators.api.model.snapshot import Job, Run, Snapshot
from operators.api.model.statistics import summarised
from operators.api.model.visibility import View, experiment_view, visible
from operators.api.replies.bodies import (
    ExperimentFigures,
    Experiments,
    Policies,
    RunFigures,
    json_reply,
)
from operators.api.replies.problems import documented
from operators.kube.api import NotThereError

router = APIRouter(tags=["experiments"], responses=documented(401, 403, 422, 503))


@router.get("/experiments", response_model=Experiments, summary="Experiments and their runs")
async def experiments(services: CurrentServices, scope: Reader) -> Response:
    """On a cluster, those of EmuJobs with the label emugpu.dev/experiment; on a laptop, one for each comparison."""
    return json_reply(Experiments, Experiments(experiment_view(services.source.snapshot(), scope)))


@router.get(
    "/experiments/{experiment}",
    response_model=ExperimentFigures,
    summary="One experiment with the figures of its runs",
    responses=documented(404),
)
async def experiment(
    services: CurrentServices,
    scope: Reader,
    experiment: Annotated[str, Path(description="The experiment's id.", max_length=253)],
) -> Response:
    """The completion times of each run, their distribution, and the errors of predictions."""
    snapshot = services.source.snapshot()
    found = next((each for each in experiment_view(snapshot, scope) if each.id == experiment), None)
    if found is None:
        raise NotThereError(f"there is no experiment {experiment}; GET /api/v1/experiments lists them")
    by_run: dict[str, list[Job]] = {}
    for job in visible(snapshot, scope):
        by_run.setdefault(job.run, []).append(job)
    figures = [_figures(snapshot, run, by_run.get(run.id, [])) for run in found.runs]
    return json_reply(ExperimentFigures, ExperimentFigures(found, figures))


@router.get("/policies", response_model=Policies, summary="The scheduling policies of emugpu")
async def policies(services: CurrentServices, _scope: Reader) -> Response:
    """Names, summaries, and options with their defaults."""
    return json_reply(Policies, Policies(list(services.policies)))


def _figures(snapshot: Snapshot, run: Run, jobs: list[Job]) -> RunFigures:
    view = View(snapshot, jobs, run)
    return RunFigures(run, summarised(jobs), view.held_share(view.window(None, None)))
