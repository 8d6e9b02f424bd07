"""Deletes what every reader has acknowledged: `python -m sharing_manager.store.trim`.

Redis would keep all events for ever; MAXLEN at each write would delete what a slow reader hasn't seen.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from emulator_runtime.domain.errors import EmuGpuError, InputError
from emulator_runtime.timing.host import wall_ns
from sharing_manager.store.entries import NODES, PROGRESS, SEEN, EntryId, stream_of
from sharing_manager.store.server import Client, client_of, place_of
from sharing_manager.store.troubles import translated

URL_VARIABLE = "EMUGPU_MANAGER_REDIS_URL"
_DAY_MS = 24 * 3600 * 1000


@dataclass(frozen=True, slots=True)
class Trimmed:
    """What was done to one stream: so many entries deleted, and why no more."""

    stream: str
    removed: int
    reason: str


def slowest(groups: Sequence[tuple[EntryId, EntryId | None]]) -> EntryId | None:
    """The id below which every group has acknowledged all. Each group: last delivered id, oldest pending id or None."""
    return min(
        (delivered if pending is None else min(delivered, pending) for delivered, pending in groups), default=None
    )


def trim(client: Client, place: str, node: str, *, max_length: int | None = None) -> Trimmed:
    """Trim one node's stream; `max_length` counts only where no group reads it. Raises StoreAwayError.

    XTRIM's `~` deletes whole blocks of the stream only, which is cheap: up to a hundred entries more stay.
    """
    stream = stream_of(node)
    with translated(place):
        if not client.execute_command("EXISTS", stream):
            return Trimmed(stream, 0, "there is no such stream")
        limit = slowest([_group(client, stream, group) for group in client.execute_command("XINFO GROUPS", stream)])
        if limit is not None:
            removed = int(client.execute_command("XTRIM", stream, "MINID", "~", str(limit)))
            return Trimmed(stream, removed, f"all groups have acknowledged what is before {limit}")
        if max_length is None:
            return Trimmed(stream, 0, "no group reads it; --max-length would trim it all the same")
        removed = int(client.execute_command("XTRIM", stream, "MAXLEN", "~", max_length))
        return Trimmed(stream, removed, f"no group reads it; about {max_length} entries stay")


def _group(client: Client, stream: str, group: Mapping[str, Any]) -> tuple[EntryId, EntryId | None]:
    pending = client.execute_command("XPENDING", stream, group["name"])
    oldest = EntryId.parse(pending["min"]) if pending["pending"] else None
    return EntryId.parse(group["last-delivered-id"]), oldest


def forget_progress(client: Client, place: str, before_ms: int) -> int:
    """Delete the progress of jobs that were last heard of before `before_ms`; answers of how many.

    A job that comes back at the same moment loses nothing: its next event tells all its steps. Raises StoreAwayError.
    """
    with translated(place):
        keys = client.execute_command("ZRANGEBYSCORE", SEEN, "-inf", f"({before_ms}")
        for start in range(0, len(keys), 500):
            pipeline = client.pipeline(transaction=True)
            pipeline.execute_command("ZREM", PROGRESS, *keys[start : start + 500])
            pipeline.execute_command("ZREM", SEEN, *keys[start : start + 500])
            pipeline.execute()
        return len(keys)


def main(argv: Sequence[str], environ: Mapping[str, str], now_ns: Callable[[], int] = wall_ns) -> int:
    """0, or 1 with one line on stderr."""
    parser = argparse.ArgumentParser(prog="python -m sharing_manager.store.trim", description=__doc__)
    parser.add_argument("--url", default=environ.get(URL_VARIABLE, ""), help=f"Redis (default: ${URL_VARIABLE})")
    parser.add_argument("--node", action="append", help="only this node's stream; may be given again (default: all)")
    parser.add_argument("--max-length", type=int, help="where no group reads a stream, leave about so many entries")
    parser.add_argument("--forget-days", type=float, help="also forget progress of jobs not heard of for so many days")
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
