"""`kubectl emugpu experiment`: SchedulingExperiments, and EmuJobs with the label emugpu.dev/experiment, policy by policy.

`list` shows the job completion times of each run whose EmuJobs exist (of its finished jobs). `report ID` prints the comparison of
the policies and with --out writes report.html, jobs.csv and summary.json, as `emugpu compare` does. ID is the name of a
SchedulingExperiment, whose report has predicted and observed results so far; or that of another experiment as in the dashboard,
whose report has observed results only: the ID of `emugpu compare`, whose runs have the labels ID-1, ID-2; or NAMESPACE.LABEL, or
only the label where one experiment has it. All namespaces are searched unless -n names one.

exit status: 0, 1 if a job of the reported experiment failed or hasn't ended, 2 for an error
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from emugpu.comparison.arguments import folder
from emugpu.comparison.runs import check_out, write_results
from emugpu.kubectl import options, output
from emugpu.kubectl.cluster import NO_EMUJOBS, Cluster, listed
from emugpu.kubectl.label_experiments import ClusterNow, Run, finished_only, record_of, runs_named, runs_of
from emugpu.kubectl.output import Answer, Cell, count, seconds, timestamp
from emugpu.kubectl.scheduling_experiments import ExperimentView, experiment_named, experiments_in, report_records_of
from emulator_runtime.domain.errors import ClusterError, InputError, UnknownNameError
from operators.kube.api import EMUJOB, NODE, POOL, Api, NotThereError
from operators.objects.names import EXPERIMENT_LABEL
from operators.objects.node import Node
from operators.objects.pool import Pool
from scheduler_sims.reports.metrics import figures

VERBS = ("list", "report")
_HEADINGS = (
    "EXPERIMENT",
    "POLICY",
    "RUN",
    "JOBS",
    "DONE",
    "FAILED",
    "PREDICTED",
    "MEAN JCT",
    "MEDIAN",
    "P95",
    "MAKESPAN",
    "BEGUN (UTC)",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("verb", nargs="?", choices=VERBS, default="list", help="default: list")
    parser.add_argument("experiment", nargs="?", default="", metavar="ID", help="of report: which experiment")
    parser.add_argument("--out", type=folder, metavar="DIR", help="of report: where the three files go")
    options.add_output(parser, "wide", "json", "csv")


def run(args: argparse.Namespace) -> int:
    """The module's docstring has the exit status. Raises errors of the tree."""
    if args.verb == "list":
        if args.experiment or args.out:
            raise InputError("experiment list", "takes no ID and no --out; `experiment report ID --out DIR` does")
        return _list(args)
    if not args.experiment:
        raise InputError("experiment report", "name an experiment; `kubectl emugpu experiment list` shows them")
    if args.output not in ("", "json"):
        raise InputError("-o", f"a report has no form {args.output}; --out DIR writes jobs.csv")
    if args.out is not None:
        check_out(args.out)
    return _report(args)


def _list(args: argparse.Namespace) -> int:
    with options.cluster_of(args) as cluster:
        runs, cluster_now = _asked(cluster, args)
        found = cluster.ask(lambda api: experiments_in(api, args.namespace or "*", []))
        notes = [f"SchedulingExperiment {seen.key}: {_in_words(seen)}" for seen in found]
        shown = answer(runs, cluster_now, cluster.now_s(), wide=args.output == "wide")
        output.show(replace(shown, notes=notes, none="" if notes else shown.none), args.output)
    return 0


def _in_words(seen: ExperimentView) -> str:
    return f"{seen.phase}, {seen.doing}" if seen.doing else seen.phase


def _report(args: argparse.Namespace) -> int:
    args.json = args.output == "json"
    with options.cluster_of(args) as cluster:
        known = cluster.ask(lambda api: experiments_in(api, args.namespace or "*", []))
        one = experiment_named(known, args.experiment)
        if one is not None:
            kept = cluster.ask(lambda api: report_records_of(api, one))
            return write_results(args, kept.runs, dict(kept.meta))
        runs, cluster_now = _asked(cluster, args)
        own = runs_named(runs, args.experiment)
        if not own:
            names = {name for run in runs for name in (run.experiment, run.label)} | {seen.name for seen in known}
            raise UnknownNameError("experiment report", "experiment", args.experiment, names)
        records = [record_of(run, cluster_now, cluster.now_s()) for run in own]
    return write_results(args, records, meta_of(own, cluster_now))


def meta_of(runs: Sequence[Run], cluster_now: ClusterNow) -> dict[str, Any]:
    """The header of the report and the summary: what was compared."""
    predicted = {
        run.policy: f"{run.predicted_mean_jct_s:.1f} s" for run in runs if run.predicted_mean_jct_s is not None
    }
    return {
        "workload": f"EmuJobs of experiment {', '.join(dict.fromkeys(run.label for run in runs))}",
        "jobs": max(len(run.members) for run in runs),
        "cluster": f"namespace {', '.join(dict.fromkeys(run.namespace for run in runs))}",
        "nodes": len(cluster_now.cluster.nodes),
        "gpus": cluster_now.cluster.gpus,
        "clock": "real time",
        **({"predicted mean JCT": predicted} if predicted else {}),
    }


def _asked(cluster: Cluster, args: argparse.Namespace) -> tuple[list[Run], ClusterNow]:
    return cluster.ask(lambda api: _look(api, args.namespace or "*"))


async def _look(api: Api, namespace: str) -> tuple[list[Run], ClusterNow]:
    """Raises ClusterError if there are no EmuJobs."""
    try:
        jobs, pools, nodes = await asyncio.gather(
            listed(api, EMUJOB, namespace=namespace, labels=EXPERIMENT_LABEL),
            listed(api, POOL),
            listed(api, NODE),
        )
    except NotThereError as error:
        raise ClusterError(NO_EMUJOBS) from error
    return runs_of(jobs), ClusterNow.of([Pool.read(pool) for pool in pools], [Node.read(node) for node in nodes])


# -- list --------------------------------------------------------------------------------------------------------------


def answer(runs: Sequence[Run], cluster_now: ClusterNow, now_s: float, *, wide: bool) -> Answer:
    """A line per run."""
    rows = [row(run, cluster_now, now_s) for run in runs]
    headings = (*_HEADINGS, *(("NAMESPACE", "QUEUEING", "PREEMPTIONS") if wide else ()))
    none = f"no EmuJob has the label {EXPERIMENT_LABEL}"
    return Answer(output.columns(headings, [_cells(each, wide=wide) for each in rows]), rows, rows, none)


def row(run: Run, cluster_now: ClusterNow, now_s: float) -> dict[str, Any]:
    """For programs. Times are of the jobs that have finished; the makespan only if all have ended."""
    found = {
        name: None if value is None else round(value, 6) for name, value in _figures(run, cluster_now, now_s).items()
    }
    return {
        "experiment": run.label,
        "policy": run.policy,
        "repeat": run.repeat,
        "namespace": run.namespace,
        "jobs": len(run.members),
        "finished": run.count("Succeeded"),
        "failed": run.count("Failed", "Rejected"),
        "going": run.unfinished,
        "predicted_mean_jct_s": None if run.predicted_mean_jct_s is None else round(run.predicted_mean_jct_s, 6),
        "mean_jct_s": found["mean_jct_s"],
        "median_jct_s": found["median_jct_s"],
        "p95_jct_s": found["p95_jct_s"],
        "makespan_s": None if run.unfinished else found["makespan_s"],
        "mean_queueing_delay_s": found["mean_queueing_delay_s"],
        "preemptions": sum(member.job.preemptions for member in run.members),
        "begun": timestamp(run.begun_s),
    }


def _figures(run: Run, cluster_now: ClusterNow, now_s: float) -> dict[str, float | None]:
    return figures(finished_only(record_of(run, cluster_now, now_s))).as_dict()


def _cells(row: dict[str, Any], *, wide: bool) -> list[Cell]:
    cells = [
        Cell(row["experiment"]),
        Cell(row["policy"]),
        count(row["repeat"]),
        count(row["jobs"]),
        count(row["finished"]),
        Cell(str(row["failed"]), "red" if row["failed"] else "", right=True),
        *(
            seconds(row[name])
            for name in ("predicted_mean_jct_s", "mean_jct_s", "median_jct_s", "p95_jct_s", "makespan_s")
        ),
        Cell(str(row["begun"])[:19].replace("T", " ")),
    ]
    if wide:
        cells += [Cell(row["namespace"]), seconds(row["mean_queueing_delay_s"]), count(row["preemptions"])]
    return cells
