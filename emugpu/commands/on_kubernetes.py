"""`emugpu compare --on kubernetes`: the same comparison, observed on a real cluster that is like the cluster file.

What starting, stopping and handing over cost there is measured with probe jobs first, and goes into the prediction.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emugpu.commands.runs import Bars, leave, load, meta_of, observed_title, write_files
from emulator_runtime.domain.errors import InputError
from emulator_runtime.timing.host import wall_ns
from scheduler_sims.experiment import Experiment
from scheduler_sims.record import RunRecord
from scheduler_sims.reports.metrics import figures

if TYPE_CHECKING:
    from operators.experiments.calibrate import Calibration
    from operators.experiments.laboratory import Laboratory, Setting

KUBE_SCHEDULER = "default-scheduler"
_OPTIONS = {
    "--kubeconfig": "kubeconfig",
    "--context": "context",
    "--default-scheduler": "default_scheduler",
    "--scheduler-name": "scheduler_name",
    "--no-calibration": "no_calibration",
    "--keep": "keep",
}


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
    experiment, titles = load(args)
    with _laboratory(args) as laboratory:
        comparison = _Comparison(args, laboratory, experiment)
        with Bars(len(experiment.workload.jobs), explain=args.explain) as bars:
            comparison.prepare(bars)
            for policy, title in titles.items():
                comparison.run_policy(bars, policy, title)
                write_files(args, comparison.runs, comparison.meta())  # what comes later may be interrupted
            for name in comparison.pod_schedulers:
                comparison.run_pod_scheduler(bars, name)
    return leave(args, comparison.runs, comparison.meta())


class _Comparison:
    """What has been found out so far, run by run."""

    def __init__(self, args: argparse.Namespace, laboratory: Laboratory, experiment: Experiment) -> None:
        self._args, self._laboratory, self._experiment = args, laboratory, experiment
        self._calibration: Calibration | None = None
        self._names: Mapping[str, str] = {}
        self._longest_s = 0.0
        self.pod_schedulers = [*([KUBE_SCHEDULER] if args.default_scheduler else []), *args.scheduler_name]
        self.runs: list[RunRecord] = []

    def prepare(self, bars: Bars) -> None:
        """Check that the cluster is the one of the file, and measure what acting on it costs."""
        from operators.experiments.laboratory import GATHER_S
        from operators.experiments.matching import match

        jobs, file_spec = self._experiment.workload.jobs, self._experiment.spec
        for by_kubernetes in (False, *([True] if self.pod_schedulers else [])):
            self._laboratory.check_jobs(jobs, by_kubernetes=by_kubernetes)
        present = self._laboratory.look()
        self._names = match(file_spec, present.spec, str(self._args.cluster))
        present.check_idle()
        costs = file_spec.costs
        if not self._args.no_calibration:
            bar = bars.bar("calibration")
            gather_s = max(costs.coalesce_s, GATHER_S)
            self._calibration = self._laboratory.calibrate(present.spec, gather_s, bar.tell)
            costs = self._calibration.costs(gather_s)
            bar.update(len(jobs), 0.0)
        self._experiment = self._experiment.on(replace(present.spec, costs=costs))

    def run_policy(self, bars: Bars, policy: str, title: str) -> None:
        """Its prediction, then what is observed."""
        predicted = self._predict(bars, policy, title)
        self.runs.append(predicted)
        found = figures(predicted)
        self._longest_s = max(self._longest_s, found.makespan_s or 0.0)
        notes = self._warning(found.mean_jct_s)
        costs = self._experiment.spec.costs
        for repeat in range(1, self._args.repeat + 1):
            setting = self._setting(title, repeat, found.makespan_s or 0.0)
            observed = self._observe(bars, replace(setting, policy=policy, gather_s=costs.coalesce_s))
            self.runs.append(replace(observed, notes=(*observed.notes, *notes)))

    def run_pod_scheduler(self, bars: Bars, name: str) -> None:
        """A scheduler of pods is observed only: nobody can predict it."""
        for repeat in range(1, self._args.repeat + 1):
            setting = self._setting(name, repeat, self._longest_s)
            self.runs.append(self._observe(bars, replace(setting, pod_scheduler=name)))

    def meta(self) -> dict[str, Any]:
        """For the report's header and the summary."""
        found = self._calibration
        calibration = "none: the costs are the cluster file's" if found is None else found.figures()
        return {
            **meta_of(self._args, self._experiment, "the cluster's own"),
            "experiment": self._laboratory.experiment,
            "calibration": calibration,
            "nodes by name": self._names,
        }

    def _predict(self, bars: Bars, policy: str, title: str) -> RunRecord:
        from operators.experiments.calibrate import as_submitted

        bar = bars.bar(f"{title}: predicted")
        run = replace(self._experiment.simulate(policy, progress=bar.update, explain=bar.explain), policy=title)
        return run if self._calibration is None else as_submitted(run, self._calibration.arrive_s)

    def _setting(self, title: str, repeat: int, makespan_s: float) -> Setting:
        from operators.experiments.arena import limit_s
        from operators.experiments.laboratory import Setting

        return Setting(title, self._experiment.workload.jobs, limit_s(makespan_s), repeat=repeat)

    def _observe(self, bars: Bars, setting: Setting) -> RunRecord:
        bar = bars.bar(observed_title(setting.title, setting.repeat, self._args.repeat))
        return self._laboratory.observe(setting, self._experiment.spec, bar.update)

    def _warning(self, mean_jct_s: float | None) -> list[str]:
        from operators.experiments.calibrate import warning

        line = warning(self._calibration, mean_jct_s) if self._calibration is not None else None
        return [line] if line is not None else []


@contextmanager
def _laboratory(args: argparse.Namespace) -> Iterator[Laboratory]:
    """The scheduler's lines are kept beside the report; without --out they go with the run."""
    from operators.experiments.laboratory import Laboratory, Tools
    from operators.kube import KubeApi, configured

    config = configured(args.kubeconfig, args.context)
    with tempfile.TemporaryDirectory(prefix="emugpu-experiment-") as temporary:
        directory = Path(temporary) if args.out is None else args.out / "scheduler"
        directory.mkdir(exist_ok=True)
        tools = Tools(
            api=lambda: KubeApi(config),
            wall_ns=wall_ns,
            directory=directory,
            say=_say,
            scheduler_options=_scheduler_options(args),
            keep=args.keep,
        )
        yield Laboratory(f"{wall_ns() // 10**9:x}", tools)


def _scheduler_options(args: argparse.Namespace) -> list[str]:
    """What every scheduler program is told: the cluster, and what policies know of run times."""
    given = {"--kubeconfig": args.kubeconfig, "--context": args.context, "--profiles": args.profiles}
    named = [part for flag, value in given.items() if value for part in (flag, str(value))]
    return [*named, "--estimates", args.estimates, "--seed", str(args.seed)]


def _say(text: str) -> None:
    print(f"emugpu: {text}", file=sys.stderr, flush=True)
