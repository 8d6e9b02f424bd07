"""`emugpu`: the command line. One module per command, in emugpu/commands or beside what only that command needs;
this file is the table of them.

Only the module of the command that is asked for is imported: in a job container there is nothing but the standard
library, and `emugpu train` starts there hundreds of times.
"""

from __future__ import annotations

import argparse
import errno
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from importlib import import_module
from io import TextIOWrapper

from emugpu import VERSION
from emugpu.interrupts import interruptible_once
from emulator_runtime.command_line import OneLineParser, piped
from emulator_runtime.domain.errors import EmuGpuError
from emulator_runtime.exit_codes import EXIT_WRONG

COMMANDS = {
    "compare": "compare policies: predicted and observed JCT",
    "simulate": "predict JCTs in virtual time",
    "sweep": "compare policies over loads and seeds, in parallel",
    "workload": "import traces, describe workloads, make and change them",
    "explain": "say why a job of a run waited",
    "dashboard": "show comparisons, or a cluster, in the browser",
    "policies": "list the scheduling policies and their options",
    "gpus": "list the GPU types that can be emulated",
    "profile": "show step times and memory of the models; make profiles of traced programs; train estimators",
    "scheduler": "schedule EmuJobs on Kubernetes by a policy",
    "cluster": "a Kubernetes cluster with emulated GPUs",
    "train": "train a model on the emulated GPUs of this container",
    "smi": "show the emulated GPUs of this container or run",
    "run": "run an unmodified CUDA program on emulated GPUs",
    "trace": "record what a CUDA program asks of its GPUs, to predict its time on others",
    "cuda": "the emulated CUDA libraries: compile them, scan a framework",
    "predict": "predict step time and memory of a traced program on other GPUs",
    "search": "find the fastest or cheapest configuration of a training program",
}
OTHER_ROOMS = {
    "trace": "prediction",
    "predict": "prediction",
    "search": "prediction",
    "sweep": "sweep",
    "workload": "workload",
}
"""The packages of commands that aren't in emugpu/commands, beside what only they need."""
OWN_SIGNALS = frozenset({"train", "scheduler", "dashboard", "trace"})
"""Commands that handle Ctrl-C and SIGTERM themselves, because stopping is a part of what they do."""
EXTRAS = {
    "scheduler": (
        "numpy",
        "scipy",
        "highspy",
        "rustworkx",
        "yaml",
        "rich",
        "plotly",
        "scheduler_sims",
        "cluster_harness",
    ),
    "node": ("grpc", "google", "prometheus_client", "redis", "sharing_manager", "deviceplugin"),
    "operator": ("fastapi", "pydantic", "annotated_types", "kubernetes", "starlette", "uvicorn", "operators"),
    "kubectl": ("kubernetes",),
    "search": ("optuna",),
    "parquet": ("pyarrow",),
    "learning": ("sklearn",),
}
"""What brings a package that is missing, by the name under which it is imported; ours may be missing in an image."""
EXIT_INTERRUPTED = 128 + signal.SIGINT


def main(argv: list[str] | None = None) -> int:
    """Run a command; errors are one line on stderr.

    0: done, 1: done but jobs failed, 2: an error, 130: interrupted, 141: whoever read the output left before its end;
    a command may have more (`emugpu train --help`).
    """
    arguments = sys.argv[1:] if argv is None else argv
    command = _command_of(arguments)

    def work() -> int:
        args = _parsed(command, arguments)
        return int(args.run(args))

    return ended("emugpu", work, interruptible=command not in OWN_SIGNALS)


def ended(program: str, work: Callable[[], int], *, interruptible: bool = True, extra: str = "") -> int:
    """The exit status of a program's work; what it raises becomes one line on stderr.

    `extra`: the extra of ours that has all its packages; else the one that has the missing package is named.
    """
    return piped(program, lambda: _worked(program, work, interruptible=interruptible, extra=extra))


def _worked(program: str, work: Callable[[], int], *, interruptible: bool, extra: str) -> int:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that lacks a sign shows '?', the result is not lost
    try:
        with interruptible_once() if interruptible else nullcontext():
            return work()
    except EmuGpuError as error:
        print(f"{program}: {error}", file=sys.stderr)
        return EXIT_WRONG
    except ModuleNotFoundError as error:
        print(f"{program}: {_missing(error.name or str(error), extra)}", file=sys.stderr)
        return EXIT_WRONG
    except KeyboardInterrupt:
        print(f"{program}: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        raise
    except OSError as error:
        fix = "; raise the limit (ulimit -n)" if error.errno == errno.EMFILE else ""
        print(f"{program}: {error.filename or 'this machine'}: {error.strerror}{fix}", file=sys.stderr)
        return EXIT_WRONG


def _missing(module: str, extra: str = "") -> str:
    """What to do about a module that can't be found."""
    package = module.partition(".")[0]
    extra = extra or next((extra for extra, packages in EXTRAS.items() if package in packages), "")
    return f"the package {package} is missing: pip install '{f'emugpu[{extra}]' if extra else package}'"


def module_of(command: str) -> str:
    """The module that has the command's `add_parser`."""
    return f"emugpu.{OTHER_ROOMS.get(command, 'commands')}.{command}"


def _command_of(arguments: Sequence[str]) -> str | None:
    """The command that these arguments name; the front door itself has no option that takes a value."""
    return next((argument for argument in arguments if not argument.startswith("-")), None)


def _parsed(command: str | None, arguments: Sequence[str]) -> argparse.Namespace:
    """The arguments; an unknown option is reported by its command."""
    args, unknown = _parser(command).parse_known_args(arguments)
    if unknown:
        args.parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    return args


def _parser(command: str | None) -> argparse.ArgumentParser:
    """The front door with all its commands by name, but only `command` with its arguments."""
    parser = OneLineParser(prog="emugpu", description="A GPU cluster that isn't there: emulate, schedule, compare.")
    parser.add_argument("--version", action="version", version=f"emugpu {VERSION}")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, line in COMMANDS.items():
        if name == command:
            import_module(module_of(name)).add_parser(subparsers)
        else:
            subparsers.add_parser(name, help=line)
        subparsers.choices[name].set_defaults(parser=subparsers.choices[name])
    return parser


if __name__ == "__main__":
    sys.exit(main())
