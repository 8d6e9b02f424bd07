"""`python -m operators.api` serves the API and the dashboard of the cluster that it runs in."""

from __future__ import annotations

import asyncio
import secrets
import sys
from pathlib import Path

from emulator_runtime.node.settings import run_daemon
from emulator_runtime.timing.host import monotonic_ns, wall_ns
from operators.api.application import application
from operators.api.authentication.sessions import Sessions
from operators.api.authentication.token_reviews import ReviewAccess
from operators.api.model.changes import Changes
from operators.api.replies.policies import bundled_policies
from operators.api.services import Services
from operators.api.settings import Settings
from operators.api.sources.cluster import ClusterSource, Naming
from operators.api.sources.stored_results import StoredResults
from operators.api.web_server import listening, serve
from operators.kube.client import KubeApi
from operators.results_feed.client import HttpFeed


def main(argv: list[str]) -> int:
    """Returns 0 after a signal, 2 if a setting is wrong."""
    purpose = "Serves jobs, devices and experiments of its cluster below /api/v1/, and pages that show them."
    return run_daemon(argv, "operators.api", purpose, Settings, lambda settings: asyncio.run(_serve(settings)))


async def _serve(settings: Settings) -> None:
    api = KubeApi()
    feed = HttpFeed(settings.results_url, Path(settings.results_token)) if settings.results_url else None
    results = StoredResults(feed) if feed is not None else None
    services = Services(
        source=ClusterSource(api, Changes(secrets.token_hex(8)), wall_ns, Naming(settings.title), results),
        access=ReviewAccess(api, monotonic_ns),
        sessions=Sessions(secrets.token_bytes(32), monotonic_ns, lasts_s=settings.session_s),
        policies=bundled_policies(),
        hosts=frozenset(name.strip() for name in settings.hosts.split(",") if name.strip()),
    )
    try:
        with listening(settings.host, settings.port) as listener:
            await serve(application(services), listener)
    finally:
        await api.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
