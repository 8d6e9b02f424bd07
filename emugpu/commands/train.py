"""`emugpu train`: the front door to emulator_runtime/workloads/command/train.py, which also runs where only the library is."""

from __future__ import annotations

import argparse

from emulator_runtime.workloads.command import train
from emulator_runtime.workloads.command.arguments import add_arguments


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `train` to the front door's commands."""
    parser = subparsers.add_parser(
        "train",
        help="train a model on the emulated GPUs of this container",
        description=train.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_arguments(parser)
    parser.set_defaults(run=train.run)
