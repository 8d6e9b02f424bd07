"""Turns every error of a request into the same kind of reply, a `Problem`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from http import HTTPStatus
from typing import Annotated, Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import Field
from starlette.exceptions import HTTPException

from emulator_runtime.domain.errors import EmuGpuError, InputError, RefusedError
from operators.kube.api import ApiAwayError, ConflictError, NotThereError

RETRY_S = 2


class SignInError(EmuGpuError):
    """The request has no valid token or session."""

    code = "sign-in"


class ForbiddenError(EmuGpuError):
    """The user lacks the right."""

    code = "forbidden"


class BusyError(EmuGpuError):
    """Too many requests at the same time."""

    code = "busy"
    retry_helps = True


class StoreAwayError(EmuGpuError):
    """Only the results store has the answer, and it can't be read."""

    code = "store-away"
    retry_helps = True


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a request was not answered."""

    code: Annotated[str, Field(description="Identifies the kind of error for programs.", examples=["not-there"])]
    message: Annotated[str, Field(description="For people: what is wrong, where, and what to do.")]
    status: Annotated[int, Field(description="The HTTP status of the reply.", examples=[404])]


_STATUS: Mapping[type[EmuGpuError], HTTPStatus] = {
    SignInError: HTTPStatus.UNAUTHORIZED,
    ForbiddenError: HTTPStatus.FORBIDDEN,
    BusyError: HTTPStatus.SERVICE_UNAVAILABLE,
    StoreAwayError: HTTPStatus.SERVICE_UNAVAILABLE,
    NotThereError: HTTPStatus.NOT_FOUND,
    ConflictError: HTTPStatus.CONFLICT,
    RefusedError: HTTPStatus.CONFLICT,
    InputError: HTTPStatus.UNPROCESSABLE_ENTITY,
    ApiAwayError: HTTPStatus.SERVICE_UNAVAILABLE,
}
_EXAMPLES: Mapping[int, tuple[str, str, str]] = {
    401: (
        "sign-in",
        "The request has no valid token or session.",
        "no token; send Authorization: Bearer TOKEN, or sign in",
    ),
    403: (
        "forbidden",
        "The user lacks the right.",
        "ann may not list emujobs.emugpu.dev in all namespaces; name one",
    ),
    404: ("not-there", "The object doesn't exist.", "there is no job 9f1c2b7a4d5e6f708192"),
    409: ("conflict", "The object can't be changed now.", "apply emujobs bert-1: the object has been modified"),
    422: ("input", "The request is invalid.", "query limit: Input should be less than or equal to 10000"),
    502: (
        "cluster",
        "The API server refused the request.",
        "apply emujobs bert-1: admission webhook denied the request",
    ),
    503: (
        "api-away",
        "A server can't be reached or is busy; a retry helps.",
        "review tokens: the API server can't be reached",
    ),
}


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The OpenAPI descriptions of these statuses, each with an example."""
    found: dict[int | str, dict[str, Any]] = {}
    for status in statuses:
        code, description, message = _EXAMPLES[status]
        example = asdict(Problem(code, message, status))
        content = {"application/json": {"example": example}}
        found[status] = {"model": Problem, "description": description, "content": content}
    return found


def status_of(error: EmuGpuError) -> HTTPStatus:
    """The status of the error's class, or of its nearest base class that has one; other errors of the API server are a 502."""
    return next((_STATUS[kind] for kind in type(error).__mro__ if kind in _STATUS), HTTPStatus.BAD_GATEWAY)


def install(app: FastAPI) -> None:
    """Makes the application answer every error with a Problem."""
    app.add_exception_handler(EmuGpuError, _of_ours)
    app.add_exception_handler(RequestValidationError, _of_validation)
    app.add_exception_handler(HTTPException, _of_routing)


def problem(status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """A reply with a Problem as its body."""
    return JSONResponse(asdict(Problem(code, message, status)), status, headers)


async def _of_ours(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, EmuGpuError)
    status = status_of(error)
    headers = {}
    if status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    if error.retry_helps:
        headers["Retry-After"] = str(RETRY_S)
    return problem(status, error.code, str(error), headers)


async def _of_validation(_request: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    place = " ".join(str(part) for part in first["loc"])
    return problem(HTTPStatus.UNPROCESSABLE_ENTITY, "input", f"{place}: {first['msg']}")


async def _of_routing(request: Request, error: Exception) -> JSONResponse:
    """The path doesn't exist, or not with this method."""
    assert isinstance(error, HTTPException)
    code = HTTPStatus(error.status_code).phrase.casefold().replace(" ", "-")
    headers = dict(error.headers or {})
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        headers["Allow"] = ", ".join(_methods(request))
    return problem(error.status_code, code, str(error.detail), headers)


def _methods(request: Request) -> list[str]:
    """The methods of all routes of the path; the exception names those of one route only."""
    app: FastAPI = request.app
    operations = app.openapi()["paths"]
    for path, methods in operations.items():
        pattern = re.sub(r"\\{\w+\\}", "[^/]+", re.escape(path))
        if re.fullmatch(pattern, request.url.path):
            return sorted(method.upper() for method in methods)
    return ["GET"]
