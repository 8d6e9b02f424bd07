"""The options of every smi program, and their output."""

from __future__ import annotations

import argparse
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from emugpu import VERSION
from emugpu.smi.columns import APP_COLUMNS, GPU_COLUMNS, Row, chosen, csv_lines
from emugpu.smi.devices import Gpu, Picture, Whole
from emugpu.smi.table import table
from emulator_runtime.domain.mig import TYPE_SEPARATOR
from emulator_runtime.domain.units import MAX_SECONDS, NS_PER_S
from emulator_runtime.timing.host import sleep_ns

EXIT_USAGE = 2
EXIT_NOT_FOUND = 6
EXIT_NO_DRIVER = 9
NOT_FOUND = "No devices were found"
_ONCE = ("id", "query_gpu", "query_compute_apps", "format", "loop")
_FORMATS = {"csv", "noheader", "nounits"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds options that nvidia-smi has too."""
    parser.add_argument("-L", "--list-gpus", action="store_true", help="one line per GPU: name and UUID")
    parser.add_argument(
        "-i", "--id", action="append", metavar="ID", help="only these GPUs: indexes or UUIDs, comma-separated"
    )
    query = parser.add_mutually_exclusive_group()
    fields = "these fields of each GPU, comma-separated"
    query.add_argument("--query-gpu", action="append", metavar="FIELDS", help=fields)
    fields = "these fields of each process on a GPU"
    query.add_argument("--query-compute-apps", action="append", metavar="FIELDS", help=fields)
    query.add_argument("--help-query-gpu", action="store_true", help="list the fields of --query-gpu")
    query.add_argument("--help-query-compute-apps", action="store_true", help="list those of --query-compute-apps")
    formats = "how queries are printed"
    parser.add_argument("--format", action="append", metavar="csv[,noheader][,nounits]", help=formats)
    loop = "repeat after this many seconds, until Ctrl-C"
    parser.add_argument("-l", "--loop", type=float, action="append", metavar="S", help=loop)
    parser.add_argument("--version", action="store_true", help="print the version")


def run_smi(args: argparse.Namespace, program: str, picture: Callable[[], Picture | None], no_gpu: str) -> int:
    """Prints the output. Returns 0, 2 for a wrong option, 6 if no GPU has the id; without any GPU prints `no_gpu`, returns 9.

    `picture` reads the GPUs; it is called for each repetition of --loop and returns None if there are none.
    """
    wrong = _settle(args)
    if wrong:
        return _usage(program, wrong)
    if args.version:
        print(f"NVIDIA-SMI (emulated by emugpu) {VERSION}")
        return 0
    if args.help_query_gpu or args.help_query_compute_apps:
        print("\n".join(GPU_COLUMNS if args.help_query_gpu else APP_COLUMNS))
        return 0
    with _ended_by_sigterm():
        return _shown(args, program, picture, no_gpu)


def _shown(args: argparse.Namespace, program: str, picture: Callable[[], Picture | None], no_gpu: str) -> int:
    while True:
        status = _show(args, program, picture(), no_gpu)
        if args.loop is None or status:
            return status
        sys.stdout.flush()
        sleep_ns(round(args.loop * NS_PER_S))


@contextmanager
def _ended_by_sigterm() -> Iterator[None]:
    """Exit status 143 without a message, as nvidia-smi. Process 1 of a container needs a handler for that."""

    def end(number: int, _frame: object) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _settle(args: argparse.Namespace) -> str:
    """Returns what is wrong with the options, else "". Sets each option with a value to its single value, or None."""
    for name in _ONCE:
        given = getattr(args, name) or [None]
        if len(given) > 1:
            return f"--{name.replace('_', '-')} is given twice; give it once (lists are comma-separated)"
        setattr(args, name, given[0])
    if args.loop is not None and not 0 < args.loop <= MAX_SECONDS:
        return "--loop must be a number of seconds above 0"
    if args.format is not None and args.query_gpu is None and args.query_compute_apps is None:
        return "--format is about queries; give --query-gpu or --query-compute-apps with it"
    args.format = args.format or "csv"
    return _wrong_format(args.format)


def _show(args: argparse.Namespace, program: str, picture: Picture | None, no_gpu: str) -> int:
    if picture is None:
        print(no_gpu)
        return EXIT_NO_DRIVER
    if picture.note:
        print(f"{program}: {picture.note}", file=sys.stderr)
    gpus = selected(picture.gpus, args.id)
    if not gpus:
        print(NOT_FOUND)
        return EXIT_NOT_FOUND
    lines = _lines(args, gpus, len(picture.gpus))
    if isinstance(lines, str):
        return _usage(program, lines)
    if lines:
        print("\n".join(lines))
    return 0


def _lines(args: argparse.Namespace, gpus: Sequence[Gpu], count: int) -> list[str] | str:
    """The lines to print, or what is wrong with the query."""
    if args.list_gpus:
        return listed(gpus)
    if args.query_gpu is None and args.query_compute_apps is None:
        return table(gpus)
    if args.query_gpu is not None:
        columns, rows = chosen(args.query_gpu, GPU_COLUMNS), [Row(gpu, count) for gpu in gpus]
    else:
        columns = chosen(args.query_compute_apps, APP_COLUMNS)
        rows = [Row(gpu, count, process) for gpu in gpus for process in gpu.processes]
    if isinstance(columns, str):
        return columns
    formats = args.format.split(",")
    return csv_lines(rows, columns, header="noheader" not in formats, units="nounits" not in formats)


def listed(gpus: Sequence[Gpu]) -> list[str]:
    """A line for each GPU; one that is cut has a line for each of its MIG instances below it."""
    lines, seen = [], Counter[Whole]()
    for gpu in gpus:
        if gpu.mig_gpu is None:
            lines.append(f"GPU {gpu.index}: {gpu.name} (UUID: {gpu.uuid})")
            continue
        whole, _, profile = gpu.name.rpartition(TYPE_SEPARATOR)
        if not seen[gpu.mig_gpu]:
            lines.append(f"GPU {gpu.mig_gpu.index}: {whole} (UUID: {gpu.mig_gpu.uuid})")
        lines.append(f"  MIG {profile:<12}Device {seen[gpu.mig_gpu]:>2}: (UUID: {gpu.uuid})")
        seen[gpu.mig_gpu] += 1
    return lines


def selected(gpus: Sequence[Gpu], ids: str | None) -> list[Gpu]:
    """The GPUs with these indexes or UUIDs; all without `ids`."""
    if ids is None:
        return list(gpus)
    wanted = {part.strip() for part in ids.split(",")}
    return [gpu for gpu in gpus if str(gpu.index) in wanted or gpu.uuid in wanted]


def _wrong_format(text: str) -> str:
    formats = text.split(",")
    if "csv" not in formats or not _FORMATS.issuperset(formats):
        return f'"{text}" is not a format; give csv, csv,noheader, csv,nounits or csv,noheader,nounits'
    return ""


def _usage(program: str, problem: str) -> int:
    print(f"{program}: {problem}", file=sys.stderr)
    return EXIT_USAGE
