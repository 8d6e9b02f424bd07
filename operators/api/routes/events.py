"""Changes as server-sent events: https://html.spec.whatwg.org/multipage/server-sent-events.html."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Send
from starlette.types import Scope as ASGIScope

from operators.api.authentication.callers import CurrentServices, Reader, Scope, SignedIn
from operators.api.model.changes import Change
from operators.api.model.snapshot import Snapshot
from operators.api.replies.bodies import job_json
from operators.api.replies.problems import documented
from operators.api.routes.open_streams import OpenStream, OpenStreams
from operators.api.services import Services

router = APIRouter(tags=["events"], responses=documented(401, 403, 422, 503))
RETRY_MS = 2000
_EVENT = {
    "type": "object",
    "description": "data: the job, or its uid and `gone`; the id of a device or node; nothing for a reset.",
    "required": ["id"],
    "properties": {
        "event": {"type": "string", "enum": ["job", "device", "node", "reset"]},
        "data": {"type": "string", "contentMediaType": "application/json"},
        "id": {"type": "string"},
        "retry": {"type": "integer"},
    },
}
_STREAM: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "Changes; after a reset, all data must be read again.",
        "content": {"text/event-stream": {"schema": _EVENT}},
    }
}


class _EventStream(StreamingResponse):
    """Frees its place however it ends, also if its client disconnects before the first event."""

    def __init__(self, content: AsyncIterator[str], closed: Callable[[], None]) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(content, media_type="text/event-stream", headers=headers)
        self._closed = closed

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._closed()


@router.get("/events", response_class=StreamingResponse, responses=_STREAM, summary="Changes as they happen")
async def events(
    request: Request,
    services: CurrentServices,
    who: SignedIn,
    scope: Reader,
    after: Annotated[
        str | None,
        Query(
            description="Like the header, for the first request of a stream; the header has precedence.", max_length=80
        ),
    ] = None,
    last_event_id: Annotated[
        str | None,
        Header(
            description="Continue after this event; if later events were dropped, a `reset` follows.", max_length=80
        ),
    ] = None,
) -> StreamingResponse:
    """Ends after some minutes. A client that reconnects is authorised again and misses no event.

    One user may have 20 streams. When all places are taken, the user with most streams loses the oldest one.
    """
    open_streams: OpenStreams = request.app.state.streams
    tenant = who.principal.tenant
    stream = open_streams.enter(tenant)
    content = _limited(services, scope, last_event_id or after, stream)
    return _EventStream(content, lambda: open_streams.leave(tenant, stream))


async def _limited(services: Services, scope: Scope, after: str | None, stream: OpenStream) -> AsyncIterator[str]:
    """The events until the stream's time limit, or until another user gets its place."""
    if stream.evicted:
        return
    try:
        async with asyncio.timeout(services.streams.lasts_s) as stream.deadline:
            async for text in _endless(services, scope, after):
                yield text
    except TimeoutError:
        return


async def _endless(services: Services, scope: Scope, after: str | None) -> AsyncIterator[str]:
    changes = services.source.changes
    number = changes.last if after is None else changes.number_of(after)
    if number is None:
        number = changes.last
        yield f"retry: {RETRY_MS}\nid: {changes.id_of(number)}\nevent: reset\ndata: {{}}\n\n"
    else:
        yield f"retry: {RETRY_MS}\nid: {changes.id_of(number)}\n\n"
    while True:
        try:
            async with asyncio.timeout(services.streams.heartbeat_s):
                await changes.wait(number)
        except TimeoutError:
            yield ": still here\n\n"
            continue
        await asyncio.sleep(services.streams.gather_s)
        found, number_then = changes.after(number), changes.last
        if found is None:
            yield f"id: {changes.id_of(number_then)}\nevent: reset\ndata: {{}}\n\n"
        else:
            snapshot = services.source.snapshot()
            for change in _newest(found):
                text = _data(snapshot, scope, change)
                if text:
                    yield f"id: {changes.id_of(change.number)}\nevent: {change.kind}\ndata: {text}\n\n"
        number = number_then


def _newest(changes: Iterable[Change]) -> list[Change]:
    """The last change of each subject: an event carries its present state."""
    latest: dict[tuple[str, str], Change] = {}
    for change in changes:
        latest.pop((change.kind, change.subject), None)
        latest[change.kind, change.subject] = change
    return list(latest.values())


def _data(snapshot: Snapshot, scope: Scope, change: Change) -> str:
    """The data of an event; empty if the caller may not see it."""
    if change.kind != "job":
        return json.dumps({"id": change.subject})
    if scope.namespace not in ("", change.namespace):
        return ""
    job = snapshot.job(change.subject)
    return job_json(job) if job is not None else json.dumps({"uid": change.subject, "gone": True})
