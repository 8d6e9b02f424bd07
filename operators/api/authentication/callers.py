"""The callers of paths as dependencies: signed in or 401, allowed or 403, and which namespaces they see."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Header, Path, Query, Request, Security
from fastapi.security import APIKeyCookie, HTTPAuthorizationCredentials, HTTPBearer

from operators.api.authentication.access import WHOLE_CLUSTER, Principal
from operators.api.model.snapshot import Job
from operators.api.replies.problems import ForbiddenError, SignInError, StoreAwayError
from operators.api.services import Services, services
from operators.kube.api import NotThereError

CSRF_HEADER = "X-Emugpu-Request"
"""Set by our pages on every write: no other site's page can, without a preflight that is never answered."""
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
    """Who asks; `by_cookie`: a browser that sends the cookie by itself."""

    principal: Principal
    by_cookie: bool


@dataclass(frozen=True, slots=True)
class Scope:
    """What may be shown: one namespace, or WHOLE_CLUSTER."""

    namespace: str

    def shows(self, job: Job) -> bool:
        return self.namespace in (WHOLE_CLUSTER, job.namespace)


def host_of(request: Request) -> tuple[str, str]:
    """Name and port that the request was sent to."""
    name, separator, port = request.headers.get("host", "").rpartition(":")
    if not separator or "]" in port:
        name, port = request.headers.get("host", ""), ""
    return name, port


def cookie_name(request: Request) -> str:
    """Browsers don't keep the cookies of one host's ports apart, so on loopback the port is in the name."""
    name, port = host_of(request)
    return f"emugpu-{port or '80'}" if name in LOOPBACK else SECURE_COOKIE


async def caller(
    request: Request,
    known: Annotated[Services, Depends(services)],
    bearer: Annotated[HTTPAuthorizationCredentials | None, Security(_bearer)],
    _documented: Annotated[str | None, Security(_cookie)],
) -> Caller:
    """Raises SignInError. A header goes before a cookie."""
    if "authorization" in request.headers:
        principal = await known.access.authenticate(bearer.credentials) if bearer is not None else None
        if principal is None:
            raise SignInError("the token is not good, or has run out; get a new one (kubectl create token ...)")
        return Caller(principal, by_cookie=False)
    token = known.sessions.token(request.cookies.get(cookie_name(request), ""))
    if token is None:
        raise SignInError("nobody is signed in; send Authorization: Bearer TOKEN, or sign in")
    principal = await known.access.authenticate(token)
    if principal is None:
        raise SignInError("the token of this session has run out; sign in again")
    return Caller(principal, by_cookie=True)


SignedIn = Annotated[Caller, Depends(caller)]
Known = Annotated[Services, Depends(services)]
Namespace = Annotated[
    str,
    Query(
        description="Only this namespace, for callers who may not read all; empty: all of them.",
        pattern=NAMESPACE_PATTERN,
        examples=["lab"],
    ),
]


async def reader(who: SignedIn, known: Known, namespace: Namespace = "") -> Scope:
    """As `scope_of`."""
    return await scope_of(known, who, namespace)


async def scope_of(known: Services, who: Caller, namespace: str) -> Scope:
    """Raises ForbiddenError unless the caller may get EmuJobs of the namespace, or list those of all."""
    verb = "get" if namespace else "list"
    if not await known.access.may(who.principal, verb, namespace):
        where = f"in namespace {namespace}" if namespace else "in all namespaces; name one (?namespace=...)"
        raise ForbiddenError(f"{who.principal.user} may not {verb} emujobs.emugpu.dev {where}")
    return Scope(namespace)


Reader = Annotated[Scope, Depends(reader)]
JobUid = Annotated[str, Path(description="The job's uid.", pattern="^[0-9A-Za-z][-0-9A-Za-z]{0,63}$")]


async def readable_job(uid: JobUid, who: SignedIn, known: Known) -> Job:
    """Raises NotThereError, ForbiddenError, StoreAwayError."""
    snapshot = known.source.snapshot()
    job = snapshot.job(uid)
    if job is None and snapshot.missing:
        raise StoreAwayError(f"no EmuJob is job {uid}; whether another job is can't be said: {snapshot.missing}")
    if job is None:
        raise NotThereError(f"there is no job {uid}")
    await _demand(known, who, "get", job)
    return job


async def writable_job(
    request: Request,
    job: Annotated[Job, Depends(readable_job)],
    who: SignedIn,
    known: Known,
    _own: Annotated[
        str | None, Header(alias=CSRF_HEADER, description="Any value; needed where a cookie says who asks.")
    ] = None,
) -> Job:
    """Raises NotThereError, ForbiddenError."""
    from_own_page(request, who)
    await _demand(known, who, "patch", job)
    return job


def from_own_page(request: Request, who: Caller) -> None:
    """A browser sends its cookie with other sites' forms too, but not this header. Raises ForbiddenError."""
    site = request.headers.get("sec-fetch-site", "same-origin")
    if who.by_cookie and (CSRF_HEADER.casefold() not in request.headers or site not in ("same-origin", "none")):
        raise ForbiddenError(f"a change needs the header {CSRF_HEADER}, from a page of this site")


async def _demand(known: Services, who: Caller, verb: str, job: Job) -> None:
    if not await known.access.may(who.principal, verb, job.namespace):
        where = f"in namespace {job.namespace}" if job.namespace else "here"
        raise ForbiddenError(f"{who.principal.user} may not {verb} emujobs.emugpu.dev {where}")
