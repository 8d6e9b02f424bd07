"""`kubectl emugpu explain JOB`: what happened to an EmuJob, in time order, and why it waits.

The command combines the status with its conditions and runs, the pods, and the events about all of these. Kubernetes keeps events
for an hour; the times of pods and conditions are whole seconds.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from rich.text import Text

from emugpu.kubectl import options, output
from emugpu.kubectl.cluster import if_allowed, listed
from emugpu.kubectl.commands.jobs import row
from emugpu.kubectl.job_views import JobView, job_view, jobs_in
from emugpu.kubectl.node_views import NodeView, nodes_with_gpus
from emugpu.kubectl.output import PHASE_STYLES, Answer, Cell, duration, timestamp
from emugpu.kubectl.spans import Places
from emugpu.kubectl.story import Objects, StoryLine, story, without_repetitions
from emugpu.kubectl.wait_reasons import pods_of, reasons
from emugpu.smi.devices import clean
from emulator_runtime.domain.errors import UnknownNameError
from emulator_runtime.node.layout import JOB_LABEL
from operators.kube.api import EMUJOB, EVENT, NODE, POD, Api, Json, NotThereError

_DAY_S = 86400.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job", metavar="JOB", help="the EmuJob's name")
    options.add_output(parser, "json")


@dataclass(frozen=True, slots=True)
class Explained:
    """All collected information."""

    job: JobView
    lines: Sequence[StoryLine]
    why: Sequence[str]
    missing: Sequence[str]


def run(args: argparse.Namespace) -> int:
    """0. Raises errors of the tree."""
    with options.cluster_of(args) as cluster:
        found = cluster.ask(lambda api: _explained(api, args.job, cluster.namespace))
        output.show(answer(found, cluster.now_s()), args.output)
    return 0


async def _explained(api: Api, name: str, namespace: str) -> Explained:
    """Raises UnknownNameError if there is no such EmuJob, ClusterError if there are no EmuJobs at all."""
    try:
        document = await api.get(EMUJOB, name, namespace)
    except NotThereError as error:
        known = [job.name for job in await jobs_in(api, namespace)]
        raise UnknownNameError(f"namespace {namespace}", "EmuJob", name, known) from error
    job, missing = job_view(document), list[str]()
    none: list[Json] = []
    pods, events, nodes = await asyncio.gather(
        if_allowed(listed(api, POD, namespace=namespace), otherwise=none, missing=missing),
        if_allowed(listed(api, EVENT, namespace=namespace), otherwise=none, missing=missing),
        if_allowed(listed(api, NODE), otherwise=none, missing=missing),
    )
    own = pods_of(pods, name, JOB_LABEL)
    objects = Objects(tuple(own), tuple(events), Places.of_nodes(nodes))
    why = reasons(job, document, own, *await _around(api, job, missing))
    return Explained(job, without_repetitions(story(job, objects)), why, list(dict.fromkeys(missing)))


async def _around(api: Api, job: JobView, missing: list[str]) -> tuple[list[JobView], list[NodeView]]:
    """The other jobs and the nodes, if the job waits."""
    if not job.waits:
        return [], []
    no_jobs: list[JobView] = []
    no_nodes: list[NodeView] = []
    return await asyncio.gather(
        if_allowed(jobs_in(api, "*" if job.scheduler else job.namespace), otherwise=no_jobs, missing=missing),
        if_allowed(nodes_with_gpus(api), otherwise=no_nodes, missing=missing),
    )


def answer(found: Explained, now_s: float) -> Answer:
    """A heading, why it waits, and the story with the seconds since the submission."""
    job = found.job
    lines = [_heading(job, now_s)]
    lines += [Text(f"  {clean(line)}", "yellow") for line in found.why]
    lines += [Text(), *_table(found.lines, job.submitted_s)]
    document = {
        "job": row(job),
        "why": list(found.why),
        "story": [
            {"at": timestamp(line.at_s), "source": line.source, "text": line.text, "warning": line.warning}
            for line in found.lines
        ],
    }
    return Answer(lines, document, notes=[f"not seen: {reason}" for reason in found.missing])


def _heading(job: JobView, now_s: float) -> Text:
    share = f" ({100 * job.steps_done / job.steps:.0f}%)" if job.steps else ""
    text = Text(f"EmuJob {job.key}: ", no_wrap=True).append(
        job.phase or "not seen yet", PHASE_STYLES.get(job.phase, "bold")
    )
    text.append(f", {job.steps_done}/{job.steps} {job.unit}{share}")
    took_s = job.observed_jct_s if job.observed_jct_s is not None else job.age_s(now_s)
    if took_s is not None:
        text.append(f", {duration(took_s)} {'in all' if job.finished_s is not None else 'so far'}")
    if job.predicted_jct_s is not None:
        text.append(f", {duration(job.predicted_jct_s)} predicted")
    return text


def _table(story: Sequence[StoryLine], submitted_s: float | None) -> list[Text]:
    days = bool(story) and story[-1].at_s - story[0].at_s > _DAY_S
    rows = [
        [
            Cell(_time(line, days=days)),
            Cell(_since(line, submitted_s), right=True),
            Cell(line.source),
            Cell(line.text, "red" if line.warning else ""),
        ]
        for line in story
    ]
    return output.columns(("TIME (UTC)", "SINCE", "WHO", "WHAT"), rows)


def _time(line: StoryLine, *, days: bool) -> str:
    text = timestamp(line.at_s) or ""
    return text[5 if days else 11 : 19 if line.coarse else 23].replace("T", " ")


def _since(line: StoryLine, submitted_s: float | None) -> str:
    """Seconds after the submission, with no more digits than the source has."""
    if submitted_s is None:
        return output.MISSING
    since_s = line.at_s - submitted_s
    return f"+{max(0.0, since_s):.0f}s    " if line.coarse else f"{since_s:+.3f}s"
