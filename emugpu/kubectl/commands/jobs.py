"""`kubectl emugpu jobs`: EmuJobs with predicted and observed completion times."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from emugpu.kubectl import options, output
from emugpu.kubectl.cluster import Cluster
from emugpu.kubectl.job_views import JobView, jobs_in
from emugpu.kubectl.output import Answer, Cell, count, number, phase, seconds, timestamp
from emulator_runtime.domain.errors import UnknownNameError
from operators.objects.names import PHASES
from operators.objects.selectors import normalized_selector

_HEADINGS = (
    "NAME",
    "PHASE",
    "GPUS",
    "PROGRESS",
    "NODE",
    "PREDICTED",
    "OBSERVED",
    "QUEUEING",
    "PREEMPTIONS",
    "SLOWDOWN",
    "ELAPSED",
)
_WIDE = ("SERVICE", "FAIRNESS", "REJECTIONS", "SCHEDULER", "PREDICTED BY", "EXPERIMENT", "REASON")
_TIMES = ("submitted", "started", "finished")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options.add_everywhere(parser)
    options.add_selector(parser)
    parser.add_argument(
        "--phase",
        action="append",
        default=[],
        metavar="PHASE",
        help=f"only jobs in this phase (repeatable, or comma-separated): {', '.join(PHASES)}",
    )
    options.add_output(parser, "wide", "json", "csv")
    options.add_watch(parser)


def run(args: argparse.Namespace) -> int:
    """0. Raises errors of the tree."""
    labels, phases, every_s = normalized_selector(args.selector, "-l"), _phases(args.phase), options.every_s(args)
    with options.cluster_of(args) as cluster:

        def look() -> Answer:
            namespace = options.scope(args, cluster)
            found = cluster.ask(lambda api: jobs_in(api, namespace, labels))
            chosen = [job for job in found if not phases or job.phase in phases]
            return answer(chosen, namespace, cluster.now_s(), wide=args.output == "wide")

        if args.watch:
            return output.watch(look, args.output, every_s)
        output.show(look(), args.output)
    return 0


def answer(jobs: Sequence[JobView], namespace: str, now_s: float, *, wide: bool) -> Answer:
    """The jobs in each form; `namespace` `*`: all namespaces."""
    everywhere = namespace == "*"
    headings = (*(["NAMESPACE"] if everywhere else []), *_HEADINGS, *(_WIDE if wide else ()))
    table = [_cells(job, now_s, everywhere=everywhere, wide=wide) for job in jobs]
    rows = [row(job) for job in jobs]
    none = f"no EmuJobs found{'' if everywhere else f' in namespace {namespace}'}"
    flat = [
        {name: value for name, value in each.items() if name not in ("labels", "runs", "conditions")} for each in rows
    ]
    return Answer(output.columns(headings, table), rows, flat, none)


def row(job: JobView) -> dict[str, Any]:
    """For programs: names with units, points in time as RFC 3339."""
    members = asdict(job)
    del members["assumed_runs"]  # nobody has observed them
    for name in _TIMES:
        members[name] = timestamp(members.pop(f"{name}_s"))
    for run in members["runs"]:
        run["from"], run["to"] = timestamp(run.pop("from_s")), timestamp(run.pop("to_s"))
    for condition in members["conditions"]:
        condition["since"] = timestamp(condition.pop("since_s"))
    return {**members, "experiment": job.experiment}


def _cells(job: JobView, now_s: float, *, everywhere: bool, wide: bool) -> list[Cell]:
    cells = [
        *([Cell(job.namespace)] if everywhere else []),
        Cell(job.name),
        phase(job.phase),
        count(job.gpus),
        Cell(f"{job.steps_done}/{job.steps}", right=True),
        Cell(job.nodes or output.MISSING),
        seconds(job.predicted_jct_s),
        seconds(job.observed_jct_s),
        seconds(job.queueing_delay_s),
        count(job.preemptions),
        number(job.slowdown, 2),
        seconds(job.age_s(now_s)),
    ]
    if wide:
        words = (job.scheduler, job.predicted_by, job.experiment, job.reason)
        cells += [seconds(job.service_s), number(job.fairness, 2), count(job.rejections)]
        cells += [Cell(word or output.MISSING) for word in words]
    return cells


def _phases(given: Sequence[str]) -> set[str]:
    """Raises UnknownNameError for an unknown phase; case doesn't matter."""
    known = {name.casefold(): name for name in PHASES}
    words = [word.strip() for each in given for word in each.split(",")]
    for word in words:
        if word.casefold() not in known:
            raise UnknownNameError("--phase", "phase", word, PHASES)
    return {known[word.casefold()] for word in words}


def names(cluster: Cluster) -> list[str]:
    """For completion: the EmuJobs of the namespace."""
    return [job.name for job in cluster.ask(lambda api: jobs_in(api, cluster.namespace))]
