"""A Gantt chart in the characters of a terminal: a row per device or per job, time from left to right.

worker1/0  ├bert-1─────┤├res-2──────────▶      71%
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import ceil, floor
from operator import itemgetter

from rich.cells import cell_len
from rich.text import Text

from emugpu.smi.devices import clean

LEAST_WIDTH = 40
_TICK_STEPS_S = (
    *(0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 15.0, 30.0),
    *(60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0, 7200.0, 14400.0, 28800.0),
    *(86400.0 * days for days in (1, 2, 5, 10, 30, 100, 365)),
)


@dataclass(frozen=True, slots=True)
class Glyphs:
    """What bars are drawn with. `one`: a bar of one column."""

    left: str
    fill: str
    right: str
    on: str
    one: str
    wait: str
    tick: str


BOXES = Glyphs("├", "─", "┤", "▶", "│", "·", "╵")
ASCII = Glyphs("[", "-", "]", ">", "|", ".", "'")


@dataclass(frozen=True, slots=True)
class Bar:
    """From `begin_s` to `end_s`, seconds since the chart's beginning. `on`: it goes on; `waits`: nothing is held."""

    name: str
    begin_s: float
    end_s: float
    style: str = ""
    on: bool = False
    waits: bool = False


@dataclass(frozen=True, slots=True)
class Line:
    """A row; bars in it don't overlap. `note` stands at its right end."""

    label: str
    bars: tuple[Bar, ...]
    note: str = ""
    note_style: str = ""


def draw(lines: Sequence[Line], length_s: float, width: int, glyphs: Glyphs = BOXES) -> list[Text]:
    """The chart, `width` columns wide (LEAST_WIDTH for the bars at least), with an axis of `length_s` seconds above it."""
    labels = [clean(line.label) for line in lines]
    notes = [clean(line.note) for line in lines]
    label_width = max(map(cell_len, labels), default=0)
    note_width = max(map(cell_len, notes), default=0)
    columns = max(LEAST_WIDTH, width - label_width - note_width - 4)
    drawn = [_axis(length_s, columns, label_width + 2, glyphs)]
    for line, label, note in zip(lines, labels, notes, strict=True):
        text = Text(label + " " * (label_width - cell_len(label) + 2), no_wrap=True)
        text.append_text(_bars(line.bars, length_s, columns, glyphs))
        text.append("  " + " " * (note_width - cell_len(note))).append(note, line.note_style)
        text.rstrip()
        drawn.append(text)
    return drawn


def ticks(length_s: float, columns: int) -> list[float]:
    """Round times from 0 on, at least twelve columns apart."""
    most = max(1, columns // 12)
    step = next((step for step in _TICK_STEPS_S if length_s / step <= most), length_s)
    return [number * step for number in range(floor(length_s / step + 1e-9) + 1)]


def clock(at_s: float, longest_s: float) -> str:
    """A time on an axis that ends with `longest_s`: 2.5s, 12:05 (minutes), 3:07:00 (hours), 2d 05h."""
    if longest_s < 120:
        return f"{at_s:.6g}s"
    whole = round(at_s)
    if longest_s < 7200:
        return f"{whole // 60}:{whole % 60:02}"
    if longest_s < 3 * 86400:
        return f"{whole // 3600}:{whole % 3600 // 60:02}:{whole % 60:02}"
    return f"{whole // 86400}d {whole % 86400 // 3600:02}h"


def _axis(length_s: float, columns: int, indent: int, glyphs: Glyphs) -> Text:
    line = [" "] * (columns + 12)
    for at_s in ticks(length_s, columns):
        column = min(columns - 1, floor(at_s / length_s * columns))
        line[column : column + 1 + len(clock(at_s, length_s))] = glyphs.tick + clock(at_s, length_s)
    return Text(" " * indent + "".join(line).rstrip(), "dim", no_wrap=True)


def _bars(bars: Sequence[Bar], length_s: float, columns: int, glyphs: Glyphs) -> Text:
    """Each bar has one column at least; of two that want the same one, the later gets it."""
    cells: list[tuple[str, str]] = [(" ", "")] * columns
    for bar in sorted(bars, key=lambda bar: (not bar.waits, bar.begin_s)):
        begin = min(columns - 1, floor(bar.begin_s / length_s * columns))
        end = max(begin + 1, min(columns, ceil(bar.end_s / length_s * columns - 1e-9)))
        for column, sign in enumerate(_signs(bar, end - begin, glyphs), begin):
            cells[column] = sign, bar.style
    text = Text(no_wrap=True)
    for style, signs in groupby(cells, key=itemgetter(1)):
        text.append("".join(sign for sign, _ in signs), style)
    return text


def _signs(bar: Bar, length: int, glyphs: Glyphs) -> str:
    if bar.waits:
        return glyphs.wait * length
    end = glyphs.on if bar.on else glyphs.right
    if length == 1:
        return glyphs.on if bar.on else glyphs.one
    room = length - 2
    name = "".join(sign if sign.isascii() else "?" for sign in clean(bar.name))[:room]
    return glyphs.left + name + glyphs.fill * (room - len(name)) + end


def styles(jobs: Sequence[str], colours: Sequence[str]) -> Mapping[str, str]:
    """A background for each job, by its place among all."""
    return {job: f"white on {colours[place % len(colours)]}" for place, job in enumerate(jobs)}
