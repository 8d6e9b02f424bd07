"""Dependencies of routes: the caller (else 401), their rights (else 403), and the namespaces that they may see."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Header, Path, Query, Request, Security
from fastapi.security import APIKeyCookie, HTTPAuthorizationCredentials, HTTPBearer

from operators.api.authentication.access import WHOLE_CLUSTER, Principal
from operators.api.model.snapshot import Job
from operators.api.replies.problems import ForbiddenError, SignInError, StoreAwayError
from operators.api.services import Services, services_of
from operators.kube.api import NotThereError

CSRF_HEADER = "X-Emugpu-Request"
"""Sent by the dashboard's pages with every write; browsers let no other site's page send it (CORS preflight)."""
SECURE_COOKIE = "__Host-emugpu"
"""The prefix makes browsers insist on Secure, Path=/ and no Domain (RFC 6265bis, 4.1.3.2)."""
LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
NAMESPACE_PATTERN = "^([a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)?$"

_bearer = HTTPBearer(
    scheme_name="token",
    auto_error=False,
    description="A token of the Kubernetes cluster, such as `kubectl create token ACCOUNT` prints.",
)
_cookie = APIKeyCookie(
    name=SECURE_COOKIE,
    scheme_name="session",
    auto_error=False,
    description="What POST /api/v1/session sets (on loopback, without TLS, its name is emugpu-PORT).",
)


@dataclass(frozen=True, slots=True)
class Caller:
    """The user of a request. `by_cookie`: authenticated by the cookie, which browsers send on their own."""

    principal: Principal
    by_cookie: bool


@dataclass(frozen=True, slots=True)
class Scope:
    """The namespace whose jobs may be shown, or WHOLE_CLUSTER."""

    namespace: str

    def shows(self, job: Job) -> bool:
        return self.namespace in (WHOLE_CLUSTER, job.namespace)


def host_of(request: Request) -> tuple[str, str]:
    """Host name and port to which the request was sent."""
    name, separator, port = request.headers.get("host", "").rpartition(":")
    if not separator or "]" in port:
        name, port = request.headers.get("host", ""), ""
    return name, port


def cookie_name(request: Request) -> str:
    """The cookie's name. Browsers share cookies among all ports of a host, so on loopback the name contains the port."""
    name, port = host_of(request)
    return f"emugpu-{port or '80'}" if name in LOOPBACK else SECURE_COOKIE


async def caller(
    request: Request,
    services: Annotated[Services, Depends(services_of)],
    bearer: Annotated[HTTPAuthorizationCredentials | None, Security(_bearer)],
    _documented: Annotated[str | None, Security(_cookie)],
) -> Caller:
    """The caller, by the header Authorization or else by the cookie. Raises SignInError."""
    if "authorization" in request.headers:
        principal = await services.access.authenticate(bearer.credentials) if bearer is not None else None
        if principal is None:
            raise SignInError("the token is invalid or has expired; get a new one (kubectl create token ...)")
        return Caller(principal, by_cookie=False)
    token = services.sessions.token(request.cookies.get(cookie_name(request), ""))
    if token is None:
        raise SignInError("no token and no session; send Authorization: Bearer TOKEN, or sign in")
    principal = await services.access.authenticate(token)
    if principal is None:
        raise SignInError("the token of this session has expired; sign in again")
    return Caller(principal, by_cookie=True)


SignedIn = Annotated[Caller, Depends(caller)]
CurrentServices = Annotated[Services, Depends(services_of)]
Namespace = Annotated[
    str,
    Query(
        description="Only this namespace, for callers who may not read all of them; empty: all.",
        pattern=NAMESPACE_PATTERN,
        examples=["lab"],
    ),
]


async def reader(who: SignedIn, services: CurrentServices, namespace: Namespace = "") -> Scope:
    """See `scope_of`."""
    return await scope_of(services, who, namespace)


async def scope_of(services: Services, who: Caller, namespace: str) -> Scope:
    """Raises ForbiddenError unless the caller may get EmuJobs of the namespace, or list those of all."""
    verb = "get" if namespace else "list"
    if not await services.access.may(who.principal, verb, namespace):
        where = f"in namespace {namespace}" if namespace else "in all namespaces; name one (?namespace=...)"
        raise ForbiddenError(f"{who.principal.user} may not {verb} emujobs.emugpu.dev {where}")
    return Scope(namespace)


Reader = Annotated[Scope, Depends(reader)]
JobUid = Annotated[str, Path(description="The job's uid.", pattern="^[0-9A-Za-z][-0-9A-Za-z]{0,63}$")]


async def readable_job(uid: JobUid, who: SignedIn, services: CurrentServices) -> Job:
    """Raises NotThereError, ForbiddenError, StoreAwayError."""
    snapshot = services.source.snapshot()
    job = snapshot.job(uid)
    if job is None and snapshot.missing:
        raise StoreAwayError(f"there is no EmuJob {uid}; jobs without an EmuJob are not known: {snapshot.missing}")
    if job is None:
        raise NotThereError(f"there is no job {uid}")
    await _demand(services, who, "get", job)
    return job


async def writable_job(
    request: Request,
    job: Annotated[Job, Depends(readable_job)],
    who: SignedIn,
    services: CurrentServices,
    _own: Annotated[
        str | None, Header(alias=CSRF_HEADER, description="Any value; required if a cookie identifies the user.")
    ] = None,
) -> Job:
    """Raises NotThereError, ForbiddenError."""
    from_own_page(request, who)
    await _demand(services, who, "patch", job)
    return job


def from_own_page(request: Request, who: Caller) -> None:
    """Refuses requests that another site made a browser send: they have the cookie but not CSRF_HEADER. Raises ForbiddenError."""
    site = request.headers.get("sec-fetch-site", "same-origin")
    if who.by_cookie and (CSRF_HEADER.casefold() not in request.headers or site not in ("same-origin", "none")):
        raise ForbiddenError(f"a change needs the header {CSRF_HEADER}, from a page of this site")


async def _demand(services: Services, who: Caller, verb: str, job: Job) -> None:
    if not await services.access.may(who.principal, verb, job.namespace):
        where = f"in namespace {job.namespace}" if job.namespace else "here"
        raise ForbiddenError(f"{who.principal.user} may not {verb} emujobs.emugpu.dev {where}")
