"""`emugpu smi`: show the emulated GPUs of this container, or of `emugpu run`, in the format of nvidia-smi; with --admin those of
a node.

Programs of `emugpu run` and `emugpu trace` find it as nvidia-smi. Job containers have a static program with the same output at
/usr/bin/nvidia-smi, for images without Python.
exit codes: 0, 2 for a wrong option, 6 if no GPU has the requested id, 9 if there is no GPU, 143 after SIGTERM.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from emugpu.smi import program
from emugpu.smi.devices import Picture, container_picture, node_picture
from emugpu.smi.emulated_run import run_picture

NO_GPU = (
    "NVIDIA-SMI has failed because there is no emulated GPU here. "
    "A container gets one by emuGPU in its resources.limits, other programs by emugpu run."
)


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `smi` to the front door's commands."""
    parser = subparsers.add_parser(
        "smi",
        help="show the emulated GPUs of this container or run",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    program.add_arguments(parser)
    parser.add_argument(
        "--admin", type=Path, metavar="SOCKET", help="show all GPUs of this node, from its admin socket"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Prints the requested output. The module's docstring has the exit codes."""

    def picture() -> Picture | None:
        if args.admin:
            return node_picture(args.admin)
        return run_picture(os.environ) or container_picture(os.environ)

    return program.run_smi(args, "emugpu smi", picture, NO_GPU)
