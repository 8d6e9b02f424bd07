"""Deletes the events that every reader has acknowledged: `python -m sharing_manager.store.trim`.

Each manager trims the stream of its own node. This command is for the streams of removed nodes, for other lengths, and for
the progress of old jobs.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence

from emulator_runtime.domain.errors import EmuGpuError, InputError
from emulator_runtime.timing.host import wall_ns
from sharing_manager.settings import Settings
from sharing_manager.store.client import client_of, place_of
from sharing_manager.store.entries import NODES, PROGRESS
from sharing_manager.store.redis_errors import translated
from sharing_manager.store.trimming import forget_progress, trim

URL_VARIABLE = Settings.variable("redis_url")
_DAY_MS = 24 * 3600 * 1000


def main(argv: Sequence[str], environ: Mapping[str, str], now_ns: Callable[[], int] = wall_ns) -> int:
    """Returns 0, or 1 after one line on stderr."""
    parser = argparse.ArgumentParser(prog="python -m sharing_manager.store.trim", description=__doc__)
    parser.add_argument("--url", default=environ.get(URL_VARIABLE, ""), help=f"Redis (default: ${URL_VARIABLE})")
    parser.add_argument("--node", action="append", help="only this node's stream; may be given again (default: all)")
    parser.add_argument("--max-length", type=int, help="if no group reads a stream, keep about this many entries")
    parser.add_argument(
        "--forget-days", type=float, help="also delete the progress of jobs without an event for this many days"
    )
    options = parser.parse_args(argv)
    try:
        _check(options)
        _run(options, now_ns() // 1_000_000)
    except EmuGpuError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _check(options: argparse.Namespace) -> None:
    if not options.url:
        raise InputError("--url", f"is missing: give Redis's address there or in {URL_VARIABLE}")
    if options.max_length is not None and options.max_length < 0:
        raise InputError("--max-length", f"must be at least 0, got {options.max_length}")
    if options.forget_days is not None and not options.forget_days > 0:
        raise InputError("--forget-days", f"must be above 0, got {options.forget_days:g}")


def _run(options: argparse.Namespace, now_ms: int) -> None:
    client, place = client_of(options.url, "--url"), place_of(options.url)
    try:
        with translated(place):
            nodes = options.node or sorted(client.execute_command("SMEMBERS", NODES))
        for node in nodes:
            done = trim(client, place, node, max_length=options.max_length)
            print(f"{done.stream}: {done.removed} entries deleted; {done.reason}")
        if options.forget_days is not None:
            forgotten = forget_progress(client, place, now_ms - round(options.forget_days * _DAY_MS))
            print(f"{PROGRESS}: {forgotten} jobs forgotten")
    finally:
        client.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
