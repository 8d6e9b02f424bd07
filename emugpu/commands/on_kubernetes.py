"""`emugpu compare --on kubernetes`: the same comparison, observed on a real cluster that is like the cluster file.

What starting, stopping and handing over cost there is measured with probe jobs first, and goes into the prediction. Without a
cluster file the nodes of the cluster's pools are what is simulated.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emugpu.commands.runs import Bars, check_out, inputs_of, leave, load, meta_of, observed_title, write_files
from emulator_runtime.domain.errors import InputError
from emulator_runtime.timing.host import wall_ns
from scheduler_sims.experiment import Experiment

if TYPE_CHECKING:
    from operators.experiments.comparison import Line, Stage
    from operators.experiments.executor import Laboratory

_OPTIONS = {
    "--kubeconfig": "kubeconfig",
    "--context": "context",
    "--default-scheduler": "default_scheduler",
    "--scheduler-name": "scheduler_name",
    "--no-calibration": "no_calibration",
    "--keep": "keep",
    "--actuator": "actuator",
}
ACTUATORS = ("jobs", "gated", "binding")


def add_kubernetes(parser: argparse._ArgumentGroup) -> None:
    """The options of a comparison on a cluster."""
    parser.add_argument("--kubeconfig", type=Path, metavar="FILE", help="the cluster (default: $KUBECONFIG)")
    parser.add_argument("--context", default="", help="context of the kubeconfig (default: the current one)")
    parser.add_argument(
        "--default-scheduler",
        action="store_true",
        help="observe Kubernetes' own scheduler too: the GPU ways of the jobs, each pod placed as soon as there is room",
    )
    parser.add_argument(
        "--scheduler-name",
        action="append",
        default=[],
        metavar="NAME",
        help="observe another scheduler of pods too, which runs in the cluster under this name (schedulerName); repeatable",
    )
    parser.add_argument(
        "--no-calibration", action="store_true", help="predict with the costs of the cluster file, without probe jobs"
    )
    parser.add_argument(
        "--actuator", choices=ACTUATORS, help="how jobs are started and stopped (docs/schedulers.md; default: jobs)"
    )
    parser.add_argument("--keep", action="store_true", help="leave the namespaces of the runs for somebody to look at")


def refuse_kubernetes_options(args: argparse.Namespace) -> None:
    """Raises InputError for an option that would do nothing on this machine."""
    for flag, name in _OPTIONS.items():
        if getattr(args, name):
            raise InputError(flag, "belongs to --on kubernetes; add that, or leave this out")


def run_on_kubernetes(args: argparse.Namespace) -> int:
    """0: done, 1: a job failed. Raises errors of the tree, KeyboardInterrupt after Ctrl-C or SIGTERM."""
    for flag, given in (("--speed", args.speed is not None), ("--warp", args.warp), ("--realtime", args.realtime)):
        if given:
            raise InputError(
                flag, "is for this machine; on kubernetes time is the cluster's own (--stretch makes jobs longer)"
            )
    if args.out is not None:
        check_out(args.out, inputs_of(args))
    loaded = load(args) if args.cluster is not None else None
    with _laboratory(args) as laboratory:
        experiment, titles = loaded or load(args, laboratory.look().spec)
        return _compare(args, laboratory, experiment.in_pods(), titles)


def _compare(
    args: argparse.Namespace, laboratory: Laboratory, experiment: Experiment, titles: Mapping[str, str]
) -> int:
    from operators.experiments.comparison import KUBE_SCHEDULER, Comparison, Plans

    plans = Plans(
        policies=titles,
        pod_schedulers=[*([KUBE_SCHEDULER] if args.default_scheduler else []), *args.scheduler_name],
        repeats=args.repeat,
        calibrate=not args.no_calibration,
        derived=args.cluster is None,
        place=str(args.cluster),
    )

    def meta(comparison: Comparison) -> dict[str, Any]:
        return meta_of(args, comparison.experiment, "the cluster's own") | comparison.found()

    def changed(comparison: Comparison) -> None:
        if comparison.runs and comparison.runs[-1].repeat:  # what comes later may be interrupted
            write_files(args, comparison.runs, meta(comparison))

    with Bars(len(experiment.workload.jobs), explain=args.explain) as bars:
        comparison = Comparison(plans, laboratory, _Titles(bars, args.repeat), changed)
        comparison.prepare(experiment, laboratory.look())
        comparison.run()
    return leave(args, comparison.runs, meta(comparison))


@dataclass(frozen=True, slots=True)
class _Titles:
    """What goes on, as bars."""

    bars: Bars
    repeats: int

    def begin(self, stage: Stage, column: str, repeat: int) -> Line:
        titles = {
            "Calibrating": "calibration",
            "Predicting": f"{column}: predicted",
            "Observing": observed_title(column, repeat, self.repeats),
        }
        return self.bars.bar(titles[stage])


@contextmanager
def _laboratory(args: argparse.Namespace) -> Iterator[Laboratory]:
    """The scheduler's lines are kept beside the report; without --out they go with the run."""
    from operators.experiments.executor import Laboratory, Tools
    from operators.kube.client import KubeApi
    from operators.kube.kubeconfig import connection

    target = connection(args.kubeconfig, args.context)
    with tempfile.TemporaryDirectory(prefix="emugpu-experiment-") as temporary:
        directory = Path(temporary) if args.out is None else args.out / "scheduler"
        directory.mkdir(exist_ok=True)
        tools = Tools(
            api=lambda: KubeApi(target),
            wall_ns=wall_ns,
            directory=directory,
            say=_say,
            scheduler_options=_scheduler_options(args),
            keep=args.keep,
            actuator=args.actuator or ACTUATORS[0],
        )
        yield Laboratory(f"{wall_ns() // 10**9:x}", tools)


def _scheduler_options(args: argparse.Namespace) -> list[str]:
    """What every scheduler program is told: the cluster, and what policies know of run times."""
    given = {"--kubeconfig": args.kubeconfig, "--context": args.context, "--profiles": args.profiles}
    named = [part for flag, value in given.items() if value for part in (flag, str(value))]
    return [*named, "--estimates", args.estimates, "--seed", str(args.seed)]


def _say(text: str) -> None:
    print(f"emugpu: {text}", file=sys.stderr, flush=True)
