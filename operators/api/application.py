"""The ASGI application: routes, security headers, and a source that runs from start-up to shutdown."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import APIRouter, FastAPI, Response
from fastapi.responses import PlainTextResponse
from starlette.middleware.gzip import GZipMiddleware

from operators.api.authentication.security_headers import Guard
from operators.api.replies import problems
from operators.api.replies.static_files import Pages, router_of
from operators.api.routes import clusters, events, experiments, jobs, over_time, sessions
from operators.api.routes.open_streams import OpenStreams
from operators.api.services import Services

PREFIX = "/api/v1"
VERSION = "1.0.0"
"""Version of the API. Within version 1, paths and fields are added and never changed."""
_ABOUT = """Jobs, emulated devices and experiments of an emugpu cluster, or of comparisons on a laptop.

Times are seconds on the clock that `GET /clusters` names: since 1970 (`wall`), or since a run's start (`emulated`).
Errors are `Problem`s. Fields may be added; clients must ignore unknown fields.
"""
_TAGS = [
    {"name": "cluster", "description": "The present state of nodes and emulated devices."},
    {"name": "jobs", "description": "Jobs, the history of one job, suspending and resuming."},
    {"name": "over time", "description": "Queue, occupancy and distributions."},
    {"name": "experiments", "description": "Runs of the same jobs under several policies."},
    {"name": "events", "description": "Changes as a stream."},
    {"name": "session", "description": "Cookies for browsers."},
]


def application(services: Services) -> FastAPI:
    """The ASGI application of these services."""

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        working = app.state.working = asyncio.create_task(services.source.run())
        try:
            yield
        finally:
            working.cancel()
            await asyncio.wait([working])

    app = FastAPI(
        title="emugpu",
        version=VERSION,
        description=_ABOUT,
        openapi_url=f"{PREFIX}/openapi.json",
        openapi_tags=_TAGS,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,  # a redirect would name the host that the client sent
        lifespan=lifespan,
    )
    app.state.services, app.state.working = services, None
    app.state.streams = OpenStreams(most=services.streams.most, most_each=services.streams.most_each)
    problems.install(app)
    api = APIRouter(prefix=PREFIX)
    for part in (clusters, jobs, over_time, experiments, events, sessions):
        api.include_router(part.router)
    app.include_router(api)
    app.include_router(_probes(app))
    app.include_router(router_of(Pages()))
    app.add_middleware(GZipMiddleware, minimum_size=1024, compresslevel=5)
    app.add_middleware(Guard, hosts=services.hosts)
    return app


def _probes(app: FastAPI) -> APIRouter:
    router = APIRouter(include_in_schema=False)

    @router.get("/healthz")
    async def healthy() -> Response:
        working: asyncio.Task[None] | None = app.state.working
        alive = working is not None and not working.done()
        return PlainTextResponse("ok\n" if alive else "the source has ended\n", 200 if alive else 503)

    @router.get("/readyz")
    async def ready() -> Response:
        services: Services = app.state.services
        missing = services.source.waits_for()
        return PlainTextResponse(f"waiting for {missing}\n" if missing else "ok\n", 503 if missing else 200)

    return router
