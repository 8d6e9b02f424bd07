"""`kubectl emugpu gantt`: which job had which emulated GPU when, from the runs in the EmuJobs' statuses (the last 20 of each).

By device, a bar is a job, and the figure at the right is the share of the time that the device was held. By job, dots are waiting
and a bar is a run on a node. --html writes the chart as a page that opens offline.
"""

from __future__ import annotations

import argparse
import asyncio
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from emugpu.kubectl import options, output
from emugpu.kubectl.cluster import if_allowed, listed
from emugpu.kubectl.gantt_chart import ASCII, BOXES, LEAST_WIDTH, by_device, by_job, draw, styles
from emugpu.kubectl.job_views import JobView, jobs_in
from emugpu.kubectl.output import Answer, duration, timestamp
from emugpu.kubectl.spans import Places, Window, clipped, live_record, shortened, window_of
from emulator_runtime.domain.errors import InputError
from operators.kube.api import NODE, Api, Json
from operators.objects.selectors import normalized_selector
from scheduler_sims.reports.page.html import write_gantt
from scheduler_sims.reports.page.palette import JOB_COLOURS

Seen = tuple[list[JobView], Places, list[str]]
"""The jobs, the places of devices, and what could not be read."""
_PIPE_WIDTH = 110
_SINCE = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s)?")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_everywhere(parser)
    options.add_selector(parser)
    parser.add_argument("--by", choices=("device", "job"), default="device", help="a row per what (default: device)")
    parser.add_argument("--since", default="", metavar="TIME", help="only the last 10m, 1h30m, 90s, 2d")
    parser.add_argument("--idle", action="store_true", help="by device: show those too that nobody held")
    page = "write a page instead of drawing here"
    parser.add_argument("--html", type=Path, metavar="FILE", help=page)
    options.add_output(parser, "json")
    options.add_watch(parser)


def run(args: argparse.Namespace) -> int:
    """0. Raises errors of the tree."""
    labels, since_s, every_s = normalized_selector(args.selector, "-l"), _since_s(args.since), options.every_s(args)
    with options.cluster_of(args) as cluster:
        namespace = options.scope(args, cluster)

        def look() -> Seen:
            return cluster.ask(lambda api: _look(api, namespace, labels))

        def answer() -> Answer:
            return _answer(look(), args, since_s, cluster.now_s())

        if args.html is not None:
            jobs, places, notes = look()
            _write(args.html, jobs, places, window_of(jobs, cluster.now_s(), since_s))
            output.show(
                Answer([Text(f"chart of {output.counted(len(jobs), 'job')}: {args.html}")], None, notes=notes), ""
            )
        elif args.watch:
            return output.watch(answer, args.output, every_s)
        else:
            output.show(answer(), args.output)
    return 0


async def _look(api: Api, namespace: str, labels: str) -> Seen:
    missing: list[str] = []
    none: list[Json] = []
    jobs, nodes = await asyncio.gather(
        jobs_in(api, namespace, labels), if_allowed(listed(api, NODE), otherwise=none, missing=missing)
    )
    notes = [f"devices have no index of their node: {reason}" for reason in missing]
    return jobs, Places.of_nodes(nodes), notes


def _answer(seen: Seen, args: argparse.Namespace, since_s: float | None, now_s: float) -> Answer:
    jobs, places, notes = seen
    shown = [job for job in jobs if _is_shown(job, window_of(jobs, now_s, since_s))]
    window, console = window_of(shown, now_s, since_s), output.stdout()
    none = "no EmuJobs found" if not jobs else "no EmuJob of that time"
    if args.all_namespaces is False and not jobs:
        none += " in this namespace; -A looks into all"
    assumed = sum(1 for job in shown if job.assumed_runs)
    if assumed:
        drawn = "drawn from start to end, without devices"
        notes.append(f"no manager reported the runs of {output.counted(assumed, 'job')}: {drawn}")
    lines = chart(shown, places, window, args, console) if shown else []
    return Answer(lines, _document(shown, window), none=none, notes=notes)


def chart(
    jobs: Sequence[JobView], places: Places, window: Window, args: argparse.Namespace, console: Console
) -> list[Text]:
    """The heading and the chart, as wide as the console."""
    named = shortened(jobs)
    look = styles([job.key for job in named], JOB_COLOURS)
    known = places.with_unknown(named)
    lines = by_job(named, window, look) if args.by == "job" else by_device(named, known, window, look, idle=args.idle)
    begin = (timestamp(window.begin_s) or "")[:19].replace("T", " ")
    heading = f"{duration(window.length_s)} from {begin} UTC on"
    if not lines:
        return [Text(f"{heading}: nothing ran")]
    width = console.width if console.is_terminal else _PIPE_WIDTH
    glyphs = BOXES if console.encoding.casefold().startswith("utf") else ASCII
    return [Text(heading, "dim"), *draw(lines, window.length_s, max(width, LEAST_WIDTH), glyphs)]


def _is_shown(job: JobView, window: Window) -> bool:
    ended = job.finished_s is not None and job.finished_s < window.begin_s
    return not ended and (job.submitted_s is None or job.submitted_s <= window.end_s)


def _document(jobs: Sequence[JobView], window: Window) -> dict[str, Any]:
    bars = [
        {
            "namespace": job.namespace,
            "job": job.name,
            "node": run.node,
            "devices": list(run.devices),
            "from": timestamp(run.from_s),
            "to": timestamp(run.to_s),
            "from_step": run.from_step,
            "to_step": run.to_step,
            "ended": run.ended,
        }
        for job in jobs
        for run, _, _ in clipped(job, window)
    ]
    return {"from": timestamp(window.begin_s), "to": timestamp(window.end_s), "runs": bars}


def _write(path: Path, jobs: Sequence[JobView], places: Places, window: Window) -> None:
    """Raises InputError if the file can't be written."""
    record = live_record(shortened(jobs), places.with_unknown(jobs), window)
    text = f"{len(jobs)} EmuJobs, time from {timestamp(window.begin_s)} on; a bar that reaches the right end goes on."
    write_gantt(path, record, "emugpu: who held which device when", text)


def _since_s(text: str) -> float | None:
    """Raises InputError for a text that is no time."""
    if not text:
        return None
    match = _SINCE.fullmatch(text)
    if match is None or not any(match.groups()):
        raise InputError("--since", f"{text!r} is no time; write 10m, 1h30m, 90s or 2d")
    days, hours, minutes, seconds = (float(part or 0) for part in match.groups())
    return max(1e-3, ((days * 24 + hours) * 60 + minutes) * 60 + seconds)
