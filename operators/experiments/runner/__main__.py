"""`python -m operators.experiments.runner` runs one SchedulingExperiment, which the settings name; started by its controller."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from pathlib import Path
from types import FrameType

from emulator_runtime.domain.errors import EmuGpuError, InputError, PolicyError
from emulator_runtime.timing.host import wall_ns
from operators.experiments.controller.runner_job import EXIT_FINAL
from operators.experiments.runner.runner import Means, Runner
from operators.experiments.runner.settings import Settings
from operators.experiments.runner.status_writer import Teller
from operators.kube.api import ForbiddenError, NotThereError
from operators.kube.client import KubeApi
from operators.kube.kubeconfig import connection

_USAGE = """usage: python -m operators.experiments.runner

Runs one SchedulingExperiment, in a pod that its controller has made. Settings:
"""
EXIT_AGAIN = 1
EXIT_STOPPED = 143
_FINAL = (InputError, PolicyError, ForbiddenError, NotThereError)
"""What another attempt would only meet again."""


def main(argv: list[str]) -> int:
    """0: done, 1: another attempt may come further, 2: none would, 143: told to stop."""
    if argv in (["-h"], ["--help"]):
        print(_USAGE + Settings.help())
        return 0
    if argv:
        _say("takes no arguments; see --help")
        return EXIT_FINAL
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stop)
    try:
        return _attempt(Settings.from_env(os.environ))
    except KeyboardInterrupt:
        _say("told to stop")
        return EXIT_STOPPED
    except EmuGpuError as error:
        _say(str(error))
        return EXIT_FINAL if isinstance(error, _FINAL) else EXIT_AGAIN


def _attempt(settings: Settings) -> int:
    target = connection()
    with tempfile.TemporaryDirectory(prefix="emugpu-experiment-") as temporary:
        os.chdir(temporary)  # what is wrong with a text is told by the name of a file here
        means = Means(lambda: KubeApi(target), wall_ns, _say, Path(temporary))
        with Teller(settings, means.connect, wall_ns) as teller:
            try:
                Runner(settings, means, teller).run()
            except EmuGpuError as error:
                teller.tell(problem=str(error)[:1024])
                raise
            finally:
                os.chdir("/")
    return 0


def _stop(_number: int, _frame: FrameType | None) -> None:
    """Once: the run's namespace is cleared up then, which takes a while."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


def _say(text: str) -> None:
    print(f"experiment: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
