"""`emugpu compare --on kubernetes`: the same comparison, observed on a real cluster that is like the cluster file.

Probe jobs measure first what scheduling actions take there; the predictions contain these costs. Without a cluster file the
simulated cluster has the nodes of the real cluster's pools.
"""

from __future__ import annotations

import argparse
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emugpu.comparison.runs import (
    check_out,
    check_parquet,
    inputs_of,
    load,
    meta_of,
    observed_title,
    write_files,
    write_results,
)
from emugpu.terminal.console import ProgressBars
from emulator_runtime.domain.errors import InputError
from emulator_runtime.profiles.table import ProfileTable
from emulator_runtime.timing.host import wall_ns
from operators.objects.names import DEFAULT_SCHEDULER, SCHEDULER_ACTUATORS
from scheduler_sims.experiment import Experiment

if TYPE_CHECKING:
    from operators.experiments.comparison import Comparison, Step
    from operators.experiments.executor import Executor, StepReporter

_OPTIONS = {
    "--kubeconfig": "kubeconfig",
    "--context": "context",
    "--default-scheduler": "default_scheduler",
    "--scheduler-name": "scheduler_name",
    "--no-calibration": "no_calibration",
    "--program-files": "program_files",
    "--keep": "keep",
    "--actuator": "actuator",
}
_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}", re.ASCII)
_MOST_FILES_BYTES = 900 * 1024
LOG, SCHEDULERS = "experiment.log", "scheduler"
"""In the output directory: every message with its time, and the directory of the schedulers' own output."""


def add_kubernetes(parser: argparse._ArgumentGroup) -> None:
    """The options of a comparison on a cluster."""
    parser.add_argument("--kubeconfig", type=Path, metavar="FILE", help="the cluster (default: $KUBECONFIG)")
    parser.add_argument("--context", default="", help="context of the kubeconfig (default: the current one)")
    parser.add_argument(
        "--default-scheduler",
        action="store_true",
        help="also observe Kubernetes' own scheduler: it places each pod as soon as there is room; jobs use only their GPU "
        "configurations",
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
        "--actuator",
        choices=SCHEDULER_ACTUATORS,
        help="how jobs are started and stopped (docs/schedulers.md; default: jobs)",
    )
    parser.add_argument(
        "--program-files",
        type=Path,
        metavar="FOLDER",
        help="files of the workload's programs, which pods have in /program, where the programs run",
    )
    parser.add_argument("--keep", action="store_true", help="keep the namespaces of the runs")


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
    if args.services is not None:
        raise InputError("--services", "is for this machine; replicas on kubernetes have no stated end")
    check_parquet(args)
    if args.out is not None:
        check_out(args.out, inputs_of(args), parquet=args.parquet)
    loaded = load(args) if args.cluster is not None else None
    log = args.out / LOG if args.out is not None else None
    files = read_program_files(args.program_files) if args.program_files is not None else {}
    with ProgressBars(explain=args.explain, log=log) as bars, _executor(args, bars.say, files) as executor:
        if loaded is None:
            from operators.fitting.remedy import remedy

            loaded = load(args, executor.cluster_state().spec, remedy)
        experiment, titles = loaded
        comparison = _compare(args, executor, bars, (experiment.in_pods(), titles))
    return write_results(args, comparison.runs, _meta(args, comparison))


def _compare(
    args: argparse.Namespace, executor: Executor, bars: ProgressBars, loaded: tuple[Experiment, Mapping[str, str]]
) -> Comparison:
    from operators.experiments.comparison import Comparison, ComparisonPlan

    experiment, titles = loaded
    plan = ComparisonPlan(
        policies=titles,
        pod_schedulers=[*([DEFAULT_SCHEDULER] if args.default_scheduler else []), *args.scheduler_name],
        repeats=args.repeat,
        calibrate=not args.no_calibration,
        derived=args.cluster is None,
        place=str(args.cluster),
    )

    def changed(comparison: Comparison) -> None:
        if comparison.runs and comparison.runs[-1].repeat:  # the next run may be interrupted
            write_files(args, comparison.runs, _meta(args, comparison))

    comparison = Comparison(plan, executor, _Titles(bars, args.repeat), changed)
    state = executor.cluster_state()
    if args.out is not None:
        bars.say(f"messages are written to {args.out / LOG} too, the schedulers' output to {args.out / SCHEDULERS}/")
    comparison.prepare(experiment, state)
    comparison.run()
    return comparison


def _meta(args: argparse.Namespace, comparison: Comparison) -> dict[str, Any]:
    return meta_of(args, comparison.experiment, "the cluster's own") | comparison.meta()


@dataclass(frozen=True, slots=True)
class _Titles:
    """A progress bar for each step of the comparison."""

    bars: ProgressBars
    repeats: int

    def begin(self, step: Step) -> StepReporter:
        titles = {
            "Calibrating": "calibration",
            "Predicting": f"{step.column}: predicted",
            "Observing": observed_title(step.column, step.repeat, self.repeats),
        }
        return self.bars.bar(titles[step.stage], step.jobs)


@contextmanager
def _executor(
    args: argparse.Namespace, say: Callable[[str], None], program_files: Mapping[str, str]
) -> Iterator[Executor]:
    """The schedulers' output is kept in the output directory; without --out it is deleted."""
    from operators.experiments.executor import Executor, ExecutorSettings
    from operators.kube import kubeconfig
    from operators.kube.client import KubeApi

    config = kubeconfig.connection(args.kubeconfig, args.context)
    with tempfile.TemporaryDirectory(prefix="emugpu-experiment-") as temporary:
        directory = Path(temporary) if args.out is None else args.out / SCHEDULERS
        directory.mkdir(exist_ok=True)
        settings = ExecutorSettings(
            api=lambda: KubeApi(config),
            wall_ns=wall_ns,
            directory=directory,
            say=say,
            scheduler_options=_scheduler_options(args),
            keep=args.keep,
            actuator=args.actuator or SCHEDULER_ACTUATORS[0],
            profiles=ProfileTable.bundled().with_file(args.profiles) if args.profiles is not None else None,
            program_files=program_files,
        )
        yield Executor(f"{wall_ns() // 10**9:x}", settings)


def read_program_files(folder: Path) -> dict[str, str]:
    """The files of a folder, by name, for a ConfigMap. Raises InputError for what can't be one."""
    if not folder.is_dir():
        raise InputError("--program-files", f"there is no folder {folder}")
    files: dict[str, str] = {}
    for path in sorted(path for path in folder.iterdir() if path.is_file()):
        if not _KEY.fullmatch(path.name):
            raise InputError(
                "--program-files", f"{path}: a ConfigMap's keys are letters, digits, -, _ and .; rename it"
            )
        try:
            files[path.name] = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise InputError("--program-files", f"{path} is no text that can be read: {error}") from error
    if not files:
        raise InputError("--program-files", f"{folder} has no files; name the folder of the programs")
    size = sum(len(name) + len(text.encode()) for name, text in files.items())
    if size > _MOST_FILES_BYTES:
        problem = f"{folder} has {size} bytes, a ConfigMap at most {_MOST_FILES_BYTES}; put the rest into the image"
        raise InputError("--program-files", problem)
    return files


def _scheduler_options(args: argparse.Namespace) -> list[str]:
    """For every scheduler program: the cluster, and what policies know of run times."""
    given = {"--kubeconfig": args.kubeconfig, "--context": args.context, "--profiles": args.profiles}
    named = [part for flag, value in given.items() if value for part in (flag, str(value))]
    return [*named, "--estimates", args.estimates, "--seed", str(args.seed)]
