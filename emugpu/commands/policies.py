"""`emugpu policies`: which scheduling policies there are and what can be set on them, read from the policies themselves."""

from __future__ import annotations

import argparse
import inspect
import json
from typing import Any

from rich import box
from rich.table import Table

from emugpu.terminal.console import result_console
from scheduler_sims.policies import POLICIES
from scheduler_sims.policies.resolve import options_of


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the command to the front door."""
    parser = subparsers.add_parser(
        "policies",
        help="list the scheduling policies and their options",
        description="The policies that --policy knows. Your own: --policy path/to/file.py:ClassName",
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Prints the table of policies; 0."""
    entries = describe_policies()
    if args.json:
        print(json.dumps(entries, indent=2))
    else:
        result_console().print(_rich_table(entries))
    return 0


def describe_policies() -> list[dict[str, Any]]:
    """One entry per policy: name, summary (first sentence of its docstring), properties, options with defaults."""
    return [_describe(name, policy_class) for name, policy_class in POLICIES.items()]


def _describe(name: str, policy_class: type[Any]) -> dict[str, Any]:
    summary = (inspect.getdoc(policy_class) or "").partition("\n\n")[0].replace("\n", " ")
    return {
        "name": name,
        "summary": summary.partition(". ")[0].removesuffix("."),
        "preemptive": policy_class.preemptive,
        "needs_estimates": policy_class.needs_estimates,
        "options": {option.name: option.default for option in options_of(policy_class)},
    }


def _rich_table(entries: list[dict[str, Any]]) -> Table:
    caption = "Set options with --policy NAME:OPTION=VALUE,OPTION=VALUE. Your own policy: --policy FILE.py:CLASS"
    table = Table(
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
        show_edge=False,
        caption=caption,
        caption_justify="left",
    )
    for column in ("policy", "what it does", "preemptive", "estimates"):
        table.add_column(column, no_wrap=column != "what it does")
    for entry in entries:
        options = ", ".join(f"{name}={value}" for name, value in entry["options"].items())
        summary = entry["summary"] + (f"\noptions: {options}" if options else "")
        estimates = "needed" if entry["needs_estimates"] else "-"
        table.add_row(entry["name"], summary, _yes(flag=entry["preemptive"]), estimates)
    return table


def _yes(*, flag: bool) -> str:
    return "yes" if flag else "-"
