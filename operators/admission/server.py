"""Serves `review` over HTTPS. A certificate that changes on disk is used without a restart."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from emulator_runtime.domain.errors import InputError, ProtocolError
from operators.admission.review import review

MAX_BODY_BYTES = 8 * 1024 * 1024
"""Two objects of etcd's limit of 1.5 MiB each, as JSON, fit with room to spare; more is no request of an API server."""
RELOAD_S = 10.0
"""Interval at which the certificate's files are checked (host seconds)."""
DRAIN_S = 5


def application(alias: str, resource: str) -> Starlette:
    """POST /review answers AdmissionReviews; GET /healthz and /readyz answer ok."""

    async def answer(request: Request) -> Response:
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > MAX_BODY_BYTES:
                return PlainTextResponse(f"more than {MAX_BODY_BYTES} bytes are no AdmissionReview\n", 413)
        try:
            return JSONResponse(review(json.loads(body), alias, resource))
        except (ProtocolError, ValueError, RecursionError) as error:
            return PlainTextResponse(f"{error}\n", 400)

    async def ok(_request: Request) -> Response:
        return PlainTextResponse("ok\n")

    return Starlette(
        routes=[
            Route("/review", answer, methods=["POST"]),
            Route("/healthz", ok),
            Route("/readyz", ok),
        ]
    )


class Webhook:
    """The application behind TLS on `port`; `serve` runs until a signal and drains for DRAIN_S."""

    def __init__(self, app: Starlette, certificates: Path, port: int) -> None:
        self._certificates = certificates
        config = uvicorn.Config(
            app,
            host="0.0.0.0",
            port=port,
            log_level="warning",
            access_log=False,
            timeout_graceful_shutdown=DRAIN_S,
            ssl_certfile=str(certificates / "tls.crt"),
            ssl_keyfile=str(certificates / "tls.key"),
        )
        try:
            config.load()
        except (OSError, ssl.SSLError) as error:
            raise InputError(str(certificates), f"has no usable tls.crt and tls.key: {error}") from error
        self.server = uvicorn.Server(config)

    async def serve(self) -> None:
        reloading = asyncio.create_task(self.reload_for_ever(asyncio.sleep))
        try:
            await self.server.serve()
        finally:
            reloading.cancel()

    async def reload_for_ever(self, sleep: Callable[[float], Awaitable[None]]) -> None:
        """New connections get the new certificate; a pair that doesn't fit (half written) is tried again."""
        context, seen = self.server.config.ssl, self._stamp()
        assert context is not None
        while True:
            await sleep(RELOAD_S)
            stamp = self._stamp()
            if stamp != seen:
                files = self._certificates / "tls.crt", self._certificates / "tls.key"
                try:
                    # A pair that doesn't fit would leave the serving context with half of it, so another one tries first.
                    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(*files)
                    context.load_cert_chain(*files)
                except (OSError, ssl.SSLError):
                    continue
                seen = stamp

    def _stamp(self) -> tuple[bytes, ...]:
        try:
            return tuple((self._certificates / name).read_bytes() for name in ("tls.crt", "tls.key"))
        except OSError:
            return ()
