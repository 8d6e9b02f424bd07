"""`emugpu dashboard`: show jobs, devices and experiments of comparisons on this machine, or of a cluster, in the browser.

DIR is the output of `emugpu compare ... --out DIR` or `emugpu simulate ... --out DIR`, or a directory of several such outputs
(default: the newest one below out/). Only one browser gets access: the printed link works once.
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
import socket
import sys
import threading
import webbrowser
from collections.abc import Sequence
from pathlib import Path

from emulator_runtime.domain.errors import ClusterError, InputError
from emulator_runtime.timing.host import monotonic_ns, wall_ns
from operators.api.application import application
from operators.api.authentication.one_time_link import OneTimeAccess
from operators.api.authentication.sessions import Sessions
from operators.api.model.changes import Changes
from operators.api.replies.policies import bundled_policies
from operators.api.services import Services
from operators.api.sources.cluster import ClusterSource, Naming
from operators.api.sources.compare_output import CompareOutput
from operators.api.sources.output_files import SUMMARY
from operators.api.sources.source import Source
from operators.api.web_server import listening, serve
from operators.kube.client import KubeApi
from operators.kube.kubeconfig import connection

DEFAULT_PORT = 8765
LOOPBACK = "127.0.0.1"


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `dashboard` to the front door's commands."""
    parser = subparsers.add_parser(
        "dashboard",
        help="show comparisons, or a cluster, in the browser",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "directories", nargs="*", type=Path, metavar="DIR", help="output of compare or simulate (default: the newest)"
    )
    parser.add_argument("--port", type=int, metavar="N", help=f"on 127.0.0.1 (default: {DEFAULT_PORT}, or a free one)")
    parser.add_argument("--no-browser", action="store_true", help="only print the link")
    parser.add_argument("--kubeconfig", type=Path, metavar="FILE", help="show this cluster instead")
    parser.add_argument("--context", default="", help="a context of that file, or of the one that kubectl uses")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Returns 0 after Ctrl-C. Raises errors of the tree."""
    if args.directories and (args.kubeconfig or args.context):
        raise InputError("DIR", "names comparisons, --kubeconfig and --context name a cluster; give one of the two")
    if args.port is not None and not 0 <= args.port <= 65535:
        raise InputError("--port", f"must be from 0 to 65535, not {args.port}")
    directories = [] if args.kubeconfig or args.context else _outputs(args.directories)
    with _listener(args.port) as listener:
        asyncio.run(_dashboard(args, directories, listener))
    return 0


async def _dashboard(args: argparse.Namespace, directories: Sequence[Path], listener: socket.socket) -> None:
    port, token = listener.getsockname()[1], secrets.token_urlsafe(24)
    changes = Changes(secrets.token_hex(8))
    source = CompareOutput(directories, changes) if directories else _cluster(args, changes)
    services = Services(
        source=source,
        access=OneTimeAccess(token, writable=not directories),
        sessions=Sessions(secrets.token_bytes(32), monotonic_ns),
        policies=bundled_policies(),
        hosts=frozenset({f"{LOOPBACK}:{port}", f"localhost:{port}"}),
    )
    link = f"http://{LOOPBACK}:{port}/sign-in#token={token}"

    def started() -> None:
        what = ", ".join(map(str, directories)) or source.snapshot().cluster.title
        print(f"dashboard of {what}: {link}\n  the link works once; Ctrl-C ends the dashboard", flush=True)
        if not args.no_browser:
            threading.Thread(target=_open, args=(link,), daemon=True).start()

    await serve(application(services), listener, started)


def _cluster(args: argparse.Namespace, changes: Changes) -> Source:
    """The cluster of the kubeconfig. The API server authorises all requests as those of the kubeconfig's user."""
    target = connection(args.kubeconfig, args.context)
    naming = Naming(f"{target.context or 'cluster'} ({target.server})")
    return ClusterSource(KubeApi(target), changes, wall_ns, naming)


def _open(link: str) -> None:
    if not webbrowser.open(link):
        print("no browser was found; open the link yourself", file=sys.stderr, flush=True)


def _listener(port: int | None) -> socket.socket:
    """A socket on this port; without one on the default port, or a free one if that is in use."""
    if port is not None:
        return listening(LOOPBACK, port)
    try:
        return listening(LOOPBACK, DEFAULT_PORT)
    except ClusterError:
        return listening(LOOPBACK, 0)


def _outputs(given: Sequence[Path]) -> list[Path]:
    """The directories to show; a directory of several outputs stands for all of them. Raises InputError if there are none."""
    if not given:
        newest = sorted(Path("out").glob(f"*/{SUMMARY}"), key=lambda path: path.stat().st_mtime)
        if not newest:
            raise InputError(
                "out/", "has no comparison; run `make demo`, or name a DIR that `emugpu compare --out` wrote"
            )
        return [newest[-1].parent]
    found: list[Path] = []
    for directory in given:
        inside = (
            [directory] if (directory / SUMMARY).exists() else sorted(p.parent for p in directory.glob(f"*/{SUMMARY}"))
        )
        if not inside:
            raise InputError(str(directory), f"has no {SUMMARY}; name a directory that `emugpu compare --out` wrote")
        found += inside
    return found
