"""The dependencies of the routes: one object that is passed to the application, so a process may have several applications."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from fastapi import Request

from operators.api.authentication.access import Access
from operators.api.authentication.sessions import Sessions
from operators.api.replies.bodies import Policy
from operators.api.sources.source import Source


@dataclass(frozen=True, slots=True)
class Streams:
    """Settings of event streams. `lasts_s`: a stream ends after this time, and its client's rights are checked at the next
    one; `heartbeat_s`: the pause after which a stream without events sends a comment; `gather_s`: events within this time are
    sent together; `most` and `most_each`: how many streams may be open, in all and of one tenant."""

    lasts_s: float = 300.0
    heartbeat_s: float = 15.0
    gather_s: float = 0.25
    most: int = 200
    most_each: int = 20


@dataclass(frozen=True, slots=True)
class Services:
    """`hosts`: the Host headers that are accepted; empty: any. `policies`: the answer to GET /policies."""

    source: Source
    access: Access
    sessions: Sessions
    policies: Sequence[Policy] = ()
    hosts: frozenset[str] = frozenset()
    streams: Streams = field(default_factory=Streams)


def services_of(request: Request) -> Services:
    """The application's services, as a dependency of routes."""
    found: Services = request.app.state.services
    return found
