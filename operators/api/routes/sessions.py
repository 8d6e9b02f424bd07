"""Signing in and out: a token becomes a cookie that scripts can't read and other sites can't send."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Header, Request, Response, Security
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from operators.api.authentication.access import WHOLE_CLUSTER, Principal
from operators.api.authentication.callers import (
    CSRF_HEADER,
    LOOPBACK,
    CurrentServices,
    SignedIn,
    cookie_name,
    from_own_page,
    host_of,
)
from operators.api.replies.bodies import Session, json_reply
from operators.api.replies.problems import SignInError, documented
from operators.api.services import Services

router = APIRouter(tags=["session"], responses=documented(401, 503))
_token = HTTPBearer(scheme_name="token", auto_error=False, description="A token of the Kubernetes cluster.")


@router.post("/session", response_model=Session, status_code=201, summary="Sign in: a token for a cookie")
async def begin(
    request: Request,
    services: CurrentServices,
    bearer: Annotated[HTTPAuthorizationCredentials | None, Security(_token)],
) -> Response:
    """The cookie ends with the token, after 8 hours, or with the program. It is Secure except on loopback."""
    kept = await services.access.exchange(bearer.credentials) if bearer is not None else None
    principal = await services.access.authenticate(kept) if kept is not None else None
    if kept is None or principal is None:
        raise SignInError("the token is invalid or was used before; get a new one")
    reply = json_reply(Session, await _session(services, principal, services.sessions.lasts_s))
    reply.status_code = 201
    _set_cookie(reply, request, services.sessions.begin(principal.tenant, kept), services.sessions.lasts_s)
    return reply


@router.get("/session", response_model=Session, summary="Who is signed in")
async def shown(who: SignedIn, services: CurrentServices) -> Response:
    """The signed-in user, and whether they may read everything."""
    return json_reply(Session, await _session(services, who.principal, None))


@router.delete("/session", status_code=204, summary="Sign out", responses=documented(403, 422))
async def end(
    request: Request,
    who: SignedIn,
    services: CurrentServices,
    _own: Annotated[
        str | None, Header(alias=CSRF_HEADER, description="Any value; required if a cookie identifies the user.")
    ] = None,
) -> Response:
    """Ends the session of the cookie at once."""
    from_own_page(request, who)
    services.sessions.end(request.cookies.get(cookie_name(request), ""))
    reply = Response(status_code=204)
    _set_cookie(reply, request, "", 0)
    return reply


async def _session(services: Services, principal: Principal, lasts_s: int | None) -> Session:
    everything = await services.access.may(principal, "list", WHOLE_CLUSTER)
    return Session(principal.user, everything, lasts_s)


def _set_cookie(reply: Response, request: Request, value: str, lasts_s: int) -> None:
    secure = host_of(request)[0] not in LOOPBACK
    reply.set_cookie(
        cookie_name(request), value, max_age=lasts_s, path="/", secure=secure, httponly=True, samesite="strict"
    )
