"""`emugpu cuda`: compile the emulated CUDA libraries, see what a framework wants from them, read measured times of kernels."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from emulator_runtime.cuda.build import build, built, emulated_functions
from emulator_runtime.cuda.kernel_times import read_trace, table_text
from emulator_runtime.cuda.scan import Need, Scan, Support, scan

EXIT_UNKNOWN = 1
"""A framework wants functions that no list has, or nothing that was read can be emulated."""
_FILES_SHOWN = 3


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `cuda build`, `cuda scan` and `cuda kernels` to the front door's commands."""
    parser = subparsers.add_parser(
        "cuda", help="the emulated CUDA libraries: compile them, scan a framework", description=__doc__
    )
    commands = parser.add_subparsers(dest="cuda_command", required=True, metavar="{build,scan,kernels}")
    building = commands.add_parser(
        "build",
        help="compile the libraries, for example into an image",
        description="Compile the emulated CUDA libraries and print the directory that has them. `emugpu run` does this itself "
        "when it is used for the first time; with EMUGPU_CUDA_LIBRARIES=DIR it uses the libraries in DIR.",
    )
    building.add_argument("--into", type=Path, metavar="DIR", help="a directory (default: the user's cache)")
    building.add_argument("--compiler", metavar="COMMAND", help="the C compiler (default: cc, gcc or clang)")
    building.set_defaults(run=run_build)
    scanning = commands.add_parser(
        "scan",
        help="list what an installed framework wants from NVIDIA's libraries",
        description="List what the libraries and programs of a virtual environment want from each of NVIDIA's libraries, and "
        "which of it is emulated. Exit status 1 if something is wanted that no list has, or if all files have the CUDA runtime "
        "linked into them.",
    )
    scanning.add_argument(
        "venv",
        nargs="?",
        type=Path,
        default=Path(sys.prefix),
        metavar="VENV",
        help="a virtual environment, folder or file",
    )
    scanning.add_argument("--json", action="store_true", help="print JSON instead of a table")
    scanning.add_argument("--names", action="store_true", help="name the functions that answer 'not supported'")
    scanning.set_defaults(run=run_scan)
    kernels = commands.add_parser(
        "kernels",
        help="print the kernel table of traces from a real GPU",
        description="Print the median time of each kernel and grid in traces that torch.profiler wrote on a real GPU "
        "(export_chrome_trace). `emugpu run --kernel-table FILE` uses it.",
    )
    kernels.add_argument("traces", nargs="+", type=Path, metavar="TRACE", help="a trace in JSON, or gzipped")
    kernels.set_defaults(run=run_kernels)


def run_build(args: argparse.Namespace) -> int:
    """Compiles; 0. Raises BuildError and OSError."""
    if args.into is None:
        print(built(args.compiler))
    else:
        build(args.into, args.compiler)
        print(args.into)
    return 0


def run_scan(args: argparse.Namespace) -> int:
    """Prints what was found; 1 if a function is unknown or all files are out of reach.

    Raises InputError, BuildError and OSError.
    """
    result = scan(args.venv, emulated_functions(built()), _progress())
    if args.json:
        print(json.dumps(_as_json(result), indent=2))
    else:
        _print(result, names=args.names)
    out_of_reach = len(result.static) == result.files
    return EXIT_UNKNOWN if result.of(Support.UNKNOWN) or out_of_reach else 0


def run_kernels(args: argparse.Namespace) -> int:
    """Prints the table; 0. Raises InputError and OSError."""
    print(table_text(kernel for path in args.traces for kernel in read_trace(path)), end="")
    return 0


def _progress() -> Callable[[int, int], None]:
    """A counter on stderr, if that is a terminal."""

    def show(done: int, total: int) -> None:
        if sys.stderr.isatty():
            end = "\r\x1b[K" if done == total else ""
            print(f"\rreading {done}/{total} files{end}", end="", file=sys.stderr, flush=True)

    return show


def _as_json(result: Scan) -> dict[str, object]:
    return {
        "root": str(result.root),
        "files": result.files,
        "static_runtime": list(result.static),
        "functions": [
            {"library": n.library, "function": n.function, "support": n.support.value, "files": list(n.files)}
            for n in result.needs
        ],
    }


def _print(result: Scan, *, names: bool) -> None:
    if result.needs:
        _print_table(result)
    elif not result.static:
        print(f"{result.root}: none of {result.files} files wants anything of NVIDIA's libraries")
    if names:
        _print_needs("Answers 'not supported':", result.of(Support.NOT_SUPPORTED))
    _print_needs(
        "Unknown, so that a program that needs it doesn't start or doesn't find it:", result.of(Support.UNKNOWN)
    )
    if result.static:
        if result.needs:
            print()
        print("Out of reach, because the CUDA runtime is linked into it (use nvcc -cudart shared):")
        for name in result.static:
            print(f"  {name}")


def _print_needs(title: str, needs: tuple[Need, ...]) -> None:
    if not needs:
        return
    print(f"\n{title}")
    for need in needs:
        more = f" and {len(need.files) - _FILES_SHOWN} more" if len(need.files) > _FILES_SHOWN else ""
        print(f"  {need.library} {need.function}: {', '.join(need.files[:_FILES_SHOWN])}{more}")


def _print_table(result: Scan) -> None:
    from rich import box  # here: an image that only runs programs has no rich
    from rich.table import Table

    from emugpu.terminal.console import result_console

    counts = Counter((need.library, need.support) for need in result.needs)
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    table.add_column("Library", no_wrap=True)
    for heading in ("Functions", "Emulated", "Not supported", "Unknown"):
        table.add_column(heading, justify="right")
    for library in sorted({need.library for need in result.needs}):
        columns = [counts[library, support] for support in Support]
        table.add_row(library, str(sum(columns)), *(str(number) if number else "-" for number in columns))
    result_console().print(table)
