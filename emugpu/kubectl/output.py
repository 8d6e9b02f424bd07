"""The forms of results: columns for people, JSON and CSV for programs. Colours only on a terminal."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rich.cells import cell_len
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from emugpu.smi.devices import clean
from emugpu.terminal.console import PipedConsole
from emulator_runtime.domain.errors import EmuGpuError
from emulator_runtime.domain.units import NS_PER_S
from emulator_runtime.timing.host import sleep_ns
from operators.kube.timestamps import rfc3339_micro

MISSING = "-"
_GAP = "   "


@dataclass(frozen=True, slots=True)
class Cell:
    """A text of one line, and a style of rich; `right`: numbers."""

    text: str
    style: str = ""
    right: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """A result in each form. `lines` make the table; `none` is printed on stderr if there is nothing to list.

    `document` is JSON; `rows` are for CSV, all with the same members. `notes` go to stderr.
    """

    lines: Sequence[Text]
    document: Any
    rows: Sequence[Mapping[str, Any]] = ()
    none: str = ""
    notes: Sequence[str] = ()


def columns(headings: Sequence[str], rows: Iterable[Sequence[Cell]]) -> list[Text]:
    """A table without rules, which other tools can cut; cells are never shortened."""
    cells = [[Cell(clean(cell.text), cell.style, cell.right) for cell in row] for row in rows]
    if not cells:
        return []
    right = [cell.right for cell in cells[0]]
    head = [Cell(heading, "bold", at) for heading, at in zip(headings, right, strict=True)]
    widths = [max(cell_len(row[at].text) for row in (head, *cells)) for at in range(len(head))]
    return [_line(row, widths) for row in (head, *cells)]


def _line(row: Sequence[Cell], widths: Sequence[int]) -> Text:
    line = Text(no_wrap=True)
    for cell, width in zip(row, widths, strict=True):
        space = " " * (width - cell_len(cell.text))
        line.append(space if cell.right else "").append(cell.text, cell.style)
        line.append("" if cell.right else space).append(_GAP)
    line.rstrip()
    return line


def stdout() -> Console:
    """The terminal; for a file or pipe, plain text."""
    return PipedConsole(highlight=False, soft_wrap=True)


def show(answer: Answer, form: str, *, console: Console | None = None) -> None:
    """Print it in the given form: json, csv, or the table for anything else."""
    for note in answer.notes:
        print(f"kubectl emugpu: {clean(note)}", file=sys.stderr)
    if form == "json":
        print(json.dumps(answer.document, indent=2))
    elif form == "csv":
        print(_csv(answer.rows), end="")
    elif answer.lines:
        (console or stdout()).print(*answer.lines, sep="\n", soft_wrap=True)
    else:
        print(answer.none, file=sys.stderr)


def watch(look: Callable[[], Answer], form: str, every_s: float) -> int:
    """Shows the newest answer until Ctrl-C: in place on a terminal, else as lines (one JSON document each). Always 0.

    Raises what the first request raises; if a later one fails and a retry helps, the last answer stays with a note.
    """
    console = stdout()
    try:
        if console.is_terminal and form not in ("json", "csv"):
            _watch_in_place(look, console, every_s)
        else:
            _watch_in_lines(look, form, every_s)
    except KeyboardInterrupt:
        pass
    return 0


def _watch_in_place(look: Callable[[], Answer], console: Console, every_s: float) -> None:
    answer = look()
    with Live(console=console, screen=True, auto_refresh=False, vertical_overflow="crop") as live:
        while True:
            notes = [Text(clean(note), "yellow") for note in answer.notes]
            live.update(Group(*(answer.lines or [Text(answer.none)]), *notes), refresh=True)
            sleep_ns(round(every_s * NS_PER_S))
            answer = _again(look, answer)


def _watch_in_lines(look: Callable[[], Answer], form: str, every_s: float) -> None:
    before: Answer | None = None
    answer = look()
    while True:
        if before is None or (answer.document, answer.notes) != (before.document, before.notes):
            if form == "json":
                print(json.dumps(answer.document), flush=True)
            else:
                if before is not None and form != "csv":
                    print()
                show(answer, form)
                sys.stdout.flush()
        before = answer
        sleep_ns(round(every_s * NS_PER_S))
        answer = _again(look, answer)


def _again(look: Callable[[], Answer], before: Answer) -> Answer:
    try:
        return look()
    except EmuGpuError as error:
        if not error.retry_helps:
            raise
        return replace(before, notes=[str(error)])


def _csv(rows: Sequence[Mapping[str, Any]]) -> str:
    text = io.StringIO()
    if rows:
        writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: _cell(value) for name, value in row.items()} for row in rows)
    return text.getvalue()


def _cell(value: Any) -> Any:
    """Lists are words with spaces between; true and false as in JSON; unknown values are empty."""
    if isinstance(value, bool):
        return str(value).lower()
    return " ".join(map(str, value)) if isinstance(value, (list, tuple)) else value


# -- words -------------------------------------------------------------------------------------------------------------


def number(value: float | None, decimals: int = 1) -> Cell:
    """A number, or `-`."""
    return Cell(MISSING if value is None else f"{value:.{decimals}f}", right=True)


def count(value: int | None) -> Cell:
    return Cell(MISSING if value is None else str(value), right=True)


def seconds(value: float | None) -> Cell:
    """Seconds as 0.42s, 37.1s, 5m12s, 3h07m, 2d05h: at most five places, so that columns stay narrow."""
    return Cell(MISSING if value is None else duration(value), right=True)


def duration(value_s: float) -> str:
    """See `seconds`."""
    if value_s < 0:
        return f"-{duration(-value_s)}"
    if round(value_s, 1) < 100:
        return f"{value_s:.2f}s" if value_s < 10 else f"{value_s:.1f}s"
    whole = round(value_s)
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02}s"
    if whole < 86400:
        return f"{whole // 3600}h{whole % 3600 // 60:02}m"
    return f"{whole // 86400}d{whole % 86400 // 3600:02}h"


def counted(amount: int, noun: str) -> str:
    """1 job, 2 jobs."""
    return f"{amount} {noun}{'' if amount == 1 else 's'}"


def percent(share: float | None) -> Cell:
    """From 0 to 1 as whole percent."""
    return Cell(MISSING if share is None else f"{100 * share:.0f}%", right=True)


def timestamp(at_s: float | None) -> str | None:
    """Seconds since 1970 as RFC 3339 with microseconds."""
    return None if at_s is None else rfc3339_micro(round(at_s * 1e6) * 1000)


PHASE_STYLES = {
    "Running": "green",
    "Starting": "cyan",
    "Succeeded": "dim",
    "Failed": "red",
    "Rejected": "red",
    "Preempted": "yellow",
}


def phase(name: str) -> Cell:
    return Cell(name or MISSING, PHASE_STYLES.get(name, ""))
