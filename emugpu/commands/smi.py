"""`emugpu smi`: the emulated GPUs of this container, as nvidia-smi shows real ones; with --admin all of a node.

Job containers have the same as a static program at /usr/bin/nvidia-smi, for images without Python.
exit codes: 0, 2 for a wrong option, 6 where no GPU has the id that was asked for, 9 where the container has no GPU,
143 where SIGTERM ended it.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from emugpu.smi import program
from emugpu.smi.devices import Picture, container_picture, node_picture

NO_GPU = (
    "NVIDIA-SMI has failed because this container has no emulated GPU. "
    "Ask for emuGPU in the container's resources.limits."
)


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `smi` to the front door's commands."""
    parser = subparsers.add_parser(
        "smi",
        help="show the emulated GPUs of this container",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    program.add_arguments(parser)
    parser.add_argument("--admin", type=Path, metavar="SOCKET", help="all GPUs of this node, from its admin socket")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Prints what was asked for; the module's text says what the exit codes mean."""

    def picture() -> Picture | None:
        return node_picture(args.admin) if args.admin else container_picture(os.environ)

    return program.answered(args, "emugpu smi", picture, NO_GPU)
