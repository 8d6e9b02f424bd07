"""`kubectl emugpu`: the program kubectl-emugpu, which kubectl finds on the PATH. This file is the table of its commands.

It only reads. Its commands are modules of emugpu/kubectl/commands; only the requested one is imported: `gantt` and `experiment`
import NumPy, which takes several times longer than everything that `jobs` or `top` needs.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING

from emugpu import VERSION
from emugpu.__main__ import ended
from emulator_runtime.command_line import OneLineParser

if TYPE_CHECKING:
    from emugpu.kubectl.options import Connect

PROGRAM = "kubectl emugpu"
COMMANDS = {
    "top": "emulated GPUs: which pods hold them, load and memory",
    "jobs": "EmuJobs: progress, predicted and observed completion times",
    "gantt": "which job held which GPU when, as a chart in the terminal or a page",
    "explain": "the history of one job in time order, and why it waits",
    "experiment": "experiments: job completion times per policy, their report",
    "smi": "the output of nvidia-smi for a node or a pod",
}
_EPILOG = """exit status: 0 done, 1 a job of the experiment failed, 2 an error (one line says what and where), 130 interrupted,
141 the reader of the output (head) closed it early

examples:
  kubectl emugpu top devices --watch
  kubectl emugpu jobs -A --phase Running,Queued -o wide
  kubectl emugpu gantt --since 10m --by job
  kubectl emugpu explain bert-1
  kubectl emugpu experiment report a7 --out out/a7
"""


def main(argv: list[str] | None = None, connect: Connect | None = None) -> int:
    """Run a command; errors, a missing package too, are one line on stderr. Tests replace `connect`."""
    arguments = sys.argv[1:] if argv is None else argv

    def work() -> int:
        from emugpu.kubectl import options

        args, unknown = parser(command_in(arguments)).parse_known_args(
            arguments, argparse.Namespace(**options.DEFAULTS)
        )
        if unknown:
            args.parser.error(f"unrecognized arguments: {' '.join(unknown)}")
        args.connect = connect or options.connect
        return int(args.run(args))

    return ended(PROGRAM, work, extra="kubectl")


def command_in(arguments: Sequence[str]) -> str | None:
    """The first word that names a command; the value of an option may stand before it and have a command's name."""
    takes_value = {"--kubeconfig", "--context", "-n", "--namespace"}
    before = ""
    for word in arguments:
        if word in COMMANDS and before not in takes_value:
            return word
        before = word
    return None


def parser(command: str | None) -> argparse.ArgumentParser:
    """The program with all its commands by name, but only `command` with its arguments."""
    from emugpu.kubectl import options

    connection = options.connection()
    front = OneLineParser(
        prog=PROGRAM,
        description="Shows the state of emulated GPUs and EmuJobs. Nothing is changed.",
        epilog=_EPILOG,
        parents=[connection],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    front.add_argument("--version", action="version", version=f"{PROGRAM} {VERSION}")
    commands = front.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, line in COMMANDS.items():
        if name == command:
            module = import_module(f"emugpu.kubectl.commands.{name}")
            own = commands.add_parser(
                name,
                help=line,
                description=module.__doc__,
                parents=[connection],
                formatter_class=argparse.RawDescriptionHelpFormatter,
            )
            module.add_arguments(own)
            own.set_defaults(run=module.run, parser=own)
        else:
            commands.add_parser(name, help=line, add_help=False)
    return front


if __name__ == "__main__":
    sys.exit(main())
