"""`emugpu workload`: jobs for `emugpu simulate`, `compare` and `sweep`, from traces or from generators."""

from __future__ import annotations

import argparse

from emugpu.workload import change, describe, generate, import_trace


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `workload import` and its neighbours to the front door's commands."""
    parser = subparsers.add_parser(
        "workload", help="import traces, describe workloads, make and change them", description=__doc__
    )
    commands = parser.add_subparsers(
        dest="workload_command", required=True, metavar="{import,describe,generate,change}"
    )
    import_trace.add_parser(commands)
    describe.add_parser(commands)
    generate.add_parser(commands)
    change.add_parser(commands)
