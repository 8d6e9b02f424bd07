"""The kernel table: measured times of kernels, from traces that torch.profiler wrote on a real GPU.

A table is text. Its first line is `emugpu-kernels 1`; each other line has, with tabs between them, the median time in
nanoseconds of the launches of a kernel with one grid and block, the grid, the block, and the kernel's name as the profiler
shows it. The core reads it (src/core/kernel_table.c).
"""

from __future__ import annotations

import gzip
import json
import re
import statistics
import zlib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from emulator_runtime.domain.errors import InputError

_FIRST_LINE = "emugpu-kernels 1"
_SIZES = re.compile(r"[1-9]\d{0,9},[1-9]\d{0,9},[1-9]\d{0,9}")
_COLUMNS = 4
_LONGEST_NS = 1e15

Sizes = tuple[int, int, int]


@dataclass(frozen=True, slots=True, order=True)
class Launch:
    """A kernel with a grid and a block; `name` is the demangled one."""

    name: str
    grid: Sizes
    block: Sizes


def read_document(path: Path) -> tuple[Mapping[str, object], Sequence[object]]:
    """A Chrome trace of torch.profiler (JSON, or gzipped JSON), and its events. Raises InputError and OSError."""
    try:
        data = path.read_bytes()
        if data[:2] == b"\x1f\x8b":
            data = gzip.decompress(data)
        document = json.loads(data)
    except (ValueError, EOFError, RecursionError, zlib.error, gzip.BadGzipFile) as error:
        raise InputError(str(path), f"is not a Chrome trace in JSON: {error}") from error
    events = document.get("traceEvents") if isinstance(document, dict) else document
    if not isinstance(events, list):
        raise InputError(str(path), "is not a Chrome trace: it has no traceEvents")
    return document if isinstance(document, dict) else {}, events


def read_trace(path: Path) -> Iterator[tuple[Launch, float]]:
    """Each kernel in a Chrome trace of torch.profiler, and how many nanoseconds it took.

    Raises InputError for a file that isn't such a trace, or that has no kernels, and OSError.
    """
    found = False
    for number, event in enumerate(read_document(path)[1]):
        if isinstance(event, dict) and event.get("cat") == "kernel":
            found = True
            yield read_kernel(event, f"{path}: traceEvents[{number}]")
    if not found:
        raise no_kernels(path)


def no_kernels(path: Path) -> InputError:
    """The error of a trace without kernels."""
    return InputError(
        str(path), "has no kernels; record it with activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]"
    )


def read_kernel(event: Mapping[str, object], place: str) -> tuple[Launch, float]:
    """An event of the category kernel, and how many nanoseconds it took. Raises InputError naming `place`."""
    name, duration_us, arguments = event.get("name"), event.get("dur"), event.get("args")
    if not isinstance(name, str) or not name.strip() or any(character in name for character in "\t\n"):
        raise InputError(f"{place}.name", "must be the kernel's name")
    if isinstance(duration_us, bool) or not isinstance(duration_us, int | float) or not 0 <= duration_us < 1e12:
        raise InputError(f"{place}.dur", "must be a duration in microseconds")
    if not isinstance(arguments, dict):
        raise InputError(f"{place}.args", "must have the kernel's grid and block")
    grid, block = (_sizes(arguments.get(key), f"{place}.args.{key}") for key in ("grid", "block"))
    return Launch(name.strip(), grid, block), duration_us * 1000


def _sizes(value: object, place: str) -> Sizes:
    if isinstance(value, list) and len(value) == 3 and all(type(each) is int and each > 0 for each in value):
        return value[0], value[1], value[2]
    raise InputError(place, f"must be three whole numbers above 0, not {value!r}")


def table_text(measured: Iterable[tuple[Launch, float]]) -> str:
    """The table of these launches and their times in nanoseconds: the median of each kernel and grid, sorted by name. Times of
    0 (a profiler that lost an end) are left out."""
    times: dict[Launch, list[float]] = defaultdict(list)
    for launch, ns in measured:
        if ns > 0:
            times[launch].append(ns)
    lines = [_FIRST_LINE]
    for launch in sorted(times):
        columns = (f"{statistics.median(times[launch]):.0f}", _text(launch.grid), _text(launch.block), launch.name)
        lines.append("\t".join(columns))
    return "\n".join(lines) + "\n"


def _text(sizes: Sizes) -> str:
    return ",".join(map(str, sizes))


def check_table(path: Path) -> int:
    """How many kernels a table has. Raises InputError naming the line that is wrong, and OSError."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise InputError(str(path), "is not a kernel table: it isn't text") from error
    if lines[:1] != [_FIRST_LINE]:
        raise InputError(
            f"{path}, line 1", f"must be '{_FIRST_LINE}'; `emugpu cuda kernels TRACE` writes a table from a trace"
        )
    names = [
        _check_line(line, f"{path}, line {number}")
        for number, line in enumerate(lines[1:], start=2)
        if line and not line.startswith("#")
    ]
    return sum(1 for _ in groupby(sorted(names)))


def _check_line(line: str, place: str) -> str:
    columns = line.split("\t", _COLUMNS - 1)
    if len(columns) < _COLUMNS:
        raise InputError(place, "needs a time in nanoseconds, a grid, a block and a name, with tabs between them")
    ns, grid, block, name = columns
    try:
        valid = 0 < float(ns) <= _LONGEST_NS
    except ValueError:
        valid = False
    if not valid:
        raise InputError(place, f"the time must be a number of nanoseconds above 0, not {ns}")
    for sizes in (grid, block):
        if not _SIZES.fullmatch(sizes):
            raise InputError(place, f"a grid and a block are three numbers above 0, such as 256,1,1, not {sizes}")
    if not name.strip():
        raise InputError(place, "the name is empty")
    return name
