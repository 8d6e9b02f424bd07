"""`python -m operators.experiments.runner` runs the SchedulingExperiment that its settings name, in a pod."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from pathlib import Path
from types import FrameType

from emulator_runtime.domain.errors import EmuGpuError, InputError, PolicyError
from emulator_runtime.exit_codes import EXIT_STOPPED, EXIT_WRONG_IN_POD
from emulator_runtime.node.settings import run_daemon
from emulator_runtime.timing.host import wall_ns
from operators.experiments.runner.inputs import Settings
from operators.experiments.runner.runner import Runner, RunnerDependencies
from operators.experiments.runner.status_writer import StatusWriter
from operators.kube.api import ForbiddenError, NotThereError
from operators.kube.client import KubeApi
from operators.kube.kubeconfig import connection

EXIT_AGAIN = 1
_FINAL = (InputError, PolicyError, ForbiddenError, NotThereError)
"""Errors that another attempt would only repeat."""


def main(argv: list[str]) -> int:
    """0: done, 1: another attempt may succeed, 64: no attempt would, 143: stopped by a signal."""
    purpose = "Runs one SchedulingExperiment, in a pod that the controller creates."
    return run_daemon(
        argv, "operators.experiments.runner", purpose, Settings, _run, name="experiment", exit_wrong=EXIT_WRONG_IN_POD
    )


def _run(settings: Settings) -> int:
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stop)
    try:
        return _attempt(settings)
    except KeyboardInterrupt:
        _say("stopped by a signal")
        return EXIT_STOPPED
    except EmuGpuError as error:
        _say(str(error))
        return EXIT_WRONG_IN_POD if isinstance(error, _FINAL) else EXIT_AGAIN


def _attempt(settings: Settings) -> int:
    target = connection()
    with tempfile.TemporaryDirectory(prefix="emugpu-experiment-") as temporary:
        os.chdir(temporary)  # errors about workload.csv and cluster.yaml name them without a path
        dependencies = RunnerDependencies(lambda: KubeApi(target), wall_ns, _say, Path(temporary))
        with StatusWriter(settings, dependencies.connect, wall_ns) as writer:
            try:
                Runner(settings, dependencies, writer).run()
            except EmuGpuError as error:
                writer.update(problem=str(error)[:1024])
                raise
            finally:
                os.chdir("/")
    return 0


def _stop(_number: int, _frame: FrameType | None) -> None:
    """The first signal only: removing the run's namespace takes a while, and must not be interrupted."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def _say(text: str) -> None:
    print(f"experiment: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
