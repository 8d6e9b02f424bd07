"""The dashboard's files: pages under fixed paths, assets under paths that change with their content.

Assets are below /assets/<digest of all of them>/, so browsers may cache them for ever and never mix two versions; modules import
each other by relative names. The chart library is the file in the package plotly, compressed at the first request.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from importlib.resources import files
from importlib.resources.abc import Traversable
from importlib.util import find_spec
from pathlib import Path

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response

from operators.api.replies.problems import problem

CHARTS = "plotly.min.js"
SHARED = "shared"
"""The folder with what all pages share."""
KINDS = {".html": "text/html; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml"} | {
    ".js": "text/javascript; charset=utf-8"
}
PLAIN = "'self'"
DRAWN = "'self' 'unsafe-inline'"
"""plotly.js adds style rules to the page. Inline scripts are forbidden on all pages."""
WITH_CHARTS = frozenset({"index", "nodes", "job", "experiments"})
_FOR_EVER = "public, max-age=31536000, immutable"
TITLES = {
    "index": "Overview",
    "nodes": "Nodes and devices",
    "jobs": "Jobs",
    "job": "Job",
    "experiments": "Experiments",
    "policies": "Policies",
    "sign-in": "Sign in",
}
"""Titles of the pages; NAME.html is the body of a page, shared/shell.html the frame around it."""


class Pages:
    """All files, read once. Without the package plotly the pages show a message instead of charts."""

    def __init__(self) -> None:
        folder = files("operators.api") / "pages"
        texts = dict(_texts(folder, "")) | dict(_texts(folder / SHARED, f"{SHARED}/"))
        self._charts = _charts_file()
        size = self._charts.stat().st_size if self._charts is not None else 0
        self.digest = _digest(texts, size)
        prefix = f"/assets/{self.digest}"
        shell = texts[f"{SHARED}/shell.html"].decode()
        self.pages = {
            name: _filled(shell, page=name, title=title, body=texts[f"{name}.html"].decode(), assets=prefix)
            for name, title in TITLES.items()
        }
        self.assets = {name: text for name, text in texts.items() if not name.endswith(".html")}
        self._packed: bytes | None = None

    async def charts(self, *, packed: bool) -> bytes | None:
        """The chart library; None if it isn't installed."""
        if self._charts is None:
            return None
        if not packed:
            return await asyncio.to_thread(self._charts.read_bytes)
        if self._packed is None:
            self._packed = await asyncio.to_thread(_pack, self._charts)
        return self._packed


def router_of(pages: Pages) -> APIRouter:
    """The routes /, /jobs, ... and /assets/. They are not in the OpenAPI document, and need no authentication."""
    router = APIRouter(include_in_schema=False)

    def page(name: str) -> Response:
        headers = {"Cache-Control": "no-cache", "Content-Security-Policy": _policy(name)}
        return Response(pages.pages[name], media_type=KINDS[".html"], headers=headers)

    @router.get("/")
    async def index() -> Response:
        return page("index")

    @router.get("/favicon.ico")
    async def icon() -> Response:
        return RedirectResponse(f"/assets/{pages.digest}/{SHARED}/icon.svg", 307)

    @router.get("/assets/{digest}/{name:path}")
    async def asset(request: Request, digest: str, name: str) -> Response:
        if digest != pages.digest:
            return problem(404, "not-there", "these files are of another version; load the page again")
        if name == CHARTS:
            return await _charts(request, pages)
        body = pages.assets.get(name)
        if body is None:
            return problem(404, "not-there", f"there is no file {name}")
        return Response(body, media_type=KINDS[Path(name).suffix], headers={"Cache-Control": _FOR_EVER})

    for each in pages.pages:
        if each != "index":
            router.add_api_route(f"/{each}", _answering(page, each), methods=["GET"])
    return router


def _texts(folder: Traversable, prefix: str) -> Iterator[tuple[str, bytes]]:
    """The files of one folder by their names in URLs."""
    for file in folder.iterdir():
        if Path(file.name).suffix in KINDS:
            yield f"{prefix}{file.name}", file.read_bytes()


def _answering(page: Callable[[str], Response], name: str) -> Callable[[], Awaitable[Response]]:
    async def answer() -> Response:
        return page(name)

    return answer


async def _charts(request: Request, pages: Pages) -> Response:
    packed = "gzip" in request.headers.get("accept-encoding", "")
    body = await pages.charts(packed=packed)
    if body is None:
        return problem(404, "not-there", "charts need the package plotly: pip install plotly")
    headers = {"Cache-Control": _FOR_EVER, "Vary": "Accept-Encoding"} | ({"Content-Encoding": "gzip"} if packed else {})
    return Response(body, media_type=KINDS[".js"], headers=headers)


def _policy(name: str) -> str:
    style = DRAWN if name in WITH_CHARTS else PLAIN
    images = "'self' data: blob:" if name in WITH_CHARTS else "'self'"
    return (
        f"default-src 'none'; script-src 'self'; style-src {style}; img-src {images}; connect-src 'self';"
        " base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    )


def _charts_file() -> Path | None:
    """The path of the chart library, found without importing plotly."""
    found = find_spec("plotly")
    places = found.submodule_search_locations if found is not None else None
    paths = [Path(place) / "package_data" / CHARTS for place in places or ()]
    return next((path for path in paths if path.exists()), None)


def _filled(shell: str, **parts: str) -> bytes:
    for name, text in parts.items():
        shell = shell.replace("{{" + name + "}}", text)
    return shell.encode()


def _pack(path: Path) -> bytes:
    return gzip.compress(path.read_bytes(), compresslevel=6, mtime=0)


def _digest(texts: Mapping[str, bytes], size: int) -> str:
    digest = hashlib.sha256(str(size).encode())
    for name in sorted(texts):
        digest.update(name.encode() + b"\0" + texts[name] + b"\0")
    return digest.hexdigest()[:16]
