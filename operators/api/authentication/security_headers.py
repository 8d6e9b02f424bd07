"""Security headers on every reply, and a check of the request's Host header.

Without the check a page of another site could let its own name resolve to 127.0.0.1 and read the dashboard as its own origin
(DNS rebinding).
"""

from __future__ import annotations

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from operators.api.replies.problems import problem

NOTHING = "default-src 'none'; frame-ancestors 'none'"
PROBES = ("/healthz", "/readyz")
"""A kubelet requests these by the pod's address."""
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Content-Security-Policy": NOTHING,
}


class Guard:
    """ASGI middleware. `hosts`: the Host headers that are answered; empty: all."""

    def __init__(self, app: ASGIApp, hosts: frozenset[str]) -> None:
        self._app, self._hosts = app, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        host = Headers(scope=scope).get("host", "")
        if self._hosts and host not in self._hosts and scope["path"] not in PROBES:
            called = host or "a host without a name"
            refusal = problem(421, "misdirected-request", f"this is not {called}; use the link that was printed")
            await refusal(scope, receive, guarded)
        else:
            await self._app(scope, receive, guarded)
