"""`emugpu trace`: record what an unmodified CUDA program asks of its GPUs, such as `emugpu trace -- python train.py`.

The program runs once, on emulated GPUs whose work takes no time. What it launches, copies, waits for and communicates, with the
host's time in between, is written into a folder, by which its time on other GPUs is predicted (docs/prediction.md).

With --world-size, it is the launcher of a job whose ranks needn't all run, such as
`emugpu trace --world-size 512 --layout tp=8,pp=16 -- python train.py`: with --layout, one rank of each pipeline stage runs;
without, a rank that repeats another one is stopped.
exit codes: 2 if the program can't be started or uses no GPU, else the program's (128 and a signal's number if that ended it).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from rich import box
from rich.table import Table

from emugpu.prediction.virtual_trace import OBJECTS, Job, run_job
from emugpu.smi.emulated_run import with_nvidia_smi
from emugpu.terminal.console import result_console
from emulator_runtime.cuda import launch
from emulator_runtime.cuda.build import built
from emulator_runtime.domain.errors import InputError
from emulator_runtime.domain.units import GIB, NS_PER_S
from emulator_runtime.files import write_whole
from emulator_runtime.prediction.reading import (
    MANIFEST,
    SUFFIX,
    Manifest,
    ProcessRecords,
    read_processes,
    trace_of,
    write_manifest,
)
from emulator_runtime.prediction.records import Collective, Launch, Memory
from emulator_runtime.prediction.represented import VirtualRanks, ranges_text
from emulator_runtime.virtual_ranks.layout import ORDER, Layout

_PLACE = "emugpu trace"


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `trace` to the front door's commands."""
    parser = subparsers.add_parser(
        "trace",
        help="record what a CUDA program asks of its GPUs, to predict its time on others",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--gpus", type=int, default=1, metavar="N", help="how many GPUs it sees (default: 1)")
    parser.add_argument("--gpu-type", default="A100", metavar="TYPE", help="a type of `emugpu gpus` (default: A100)")
    parser.add_argument(
        "--out", type=Path, default=Path("out/trace"), metavar="FOLDER", help="where to write it (default: out/trace)"
    )
    parser.add_argument(
        "--format",
        choices=("table", "json"),
        default="table",
        help="of the summary; with json the program's output goes to standard error (default: table)",
    )
    parser.add_argument(
        "--world-size", type=int, metavar="N", help="ranks of the job; only those that differ are recorded"
    )
    parser.add_argument(
        "--gpus-per-node", type=int, default=8, metavar="N", help="of such a job, also what a rank sees (default: 8)"
    )
    parser.add_argument(
        "--layout",
        metavar="AXES",
        help="of such a job, such as tp=8,pp=64,dp=6: one rank of each pipeline stage is recorded",
    )
    parser.add_argument(
        "--layout-order",
        default=ORDER,
        metavar="ORDER",
        help=f"axes of the layout, the fastest first (default: {ORDER})",
    )
    parser.add_argument(
        "--at-once", type=int, metavar="N", help="so many ranks of such a job run at a time (default: the cores)"
    )
    parser.add_argument("--preload", action="store_true", help="load the libraries by LD_PRELOAD instead of LD_AUDIT")
    parser.add_argument(
        "program", nargs=argparse.REMAINDER, metavar="-- COMMAND ...", help="the program and its options"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Runs the program, and prints what was recorded. Raises InputError, UnknownNameError, BuildError and OSError."""
    words = args.program[1:] if args.program[:1] == ["--"] else args.program
    if not words:
        raise InputError(_PLACE, "needs a program: emugpu trace [OPTIONS] -- python train.py")
    environ = with_nvidia_smi(os.environ)
    path = shutil.which(words[0], path=environ["PATH"])
    if path is None:
        raise InputError(_PLACE, f"there is no program {words[0]}")
    launch.check_program(path)
    job = _job(args)
    gpus = min(job.gpus_per_node, job.world_size) if job else args.gpus
    node = f"{socket.gethostname()}, process {os.getpid()}"
    devices = launch.devices_of(args.gpu_type, gpus, node)
    libraries, folder = built(), args.out.absolute()
    _prepare(folder)
    manifest = Manifest(tuple(words), devices[0].gpu_type, gpus)
    write_manifest(folder, manifest)
    if job:
        manifest = _record_job(args, job, manifest, path, node, environ)
        return _report(folder, manifest, as_json=args.format == "json", layout=job.layout)
    process = launch.ProcessSettings(record=folder / f"process-%p{SUFFIX}")
    settings = launch.write_settings(launch.settings_text(process, devices), environ)
    environment = launch.environment(libraries, settings, environ, preload=args.preload)
    status = _run_program(path, words, environment, silent=args.format == "json")
    manifest = replace(manifest, exit_status=status)
    write_manifest(folder, manifest)
    return _report(folder, manifest, as_json=args.format == "json")


def _job(args: argparse.Namespace) -> Job | None:
    if args.world_size is None:
        if args.layout:
            raise InputError("--layout", "needs --world-size")
        return None
    layout = Layout.of_text(args.layout, args.layout_order, args.world_size) if args.layout else None
    cores = len(os.sched_getaffinity(0))
    return Job(args.world_size, args.gpus_per_node, cores if args.at_once is None else args.at_once, layout)


def _record_job(
    args: argparse.Namespace, job: Job, manifest: Manifest, path: str, node: str, environ: Mapping[str, str]
) -> Manifest:
    """The manifest of the job when its ranks have ended. Each of the job's nodes, named after `node`, has GPUs of its own."""
    folder, libraries = args.out.absolute(), built()
    gpus = manifest.gpus

    def environment(rank: int) -> Mapping[str, str]:
        devices = launch.devices_of(args.gpu_type, gpus, f"{node}, node {rank // job.gpus_per_node}")
        process = launch.ProcessSettings(record=folder / f"rank-{rank}-%p{SUFFIX}", virtual_ranks=job.world_size)
        settings = folder / OBJECTS / f"settings-{rank}"
        write_whole(settings, launch.settings_text(process, devices), sync=False)
        return launch.environment(libraries, settings, environ, preload=args.preload)

    outcome = run_job(job, manifest.command, path, environment, folder, silent=args.format == "json")
    manifest = replace(manifest, exit_status=outcome.status, virtual=outcome.virtual)
    write_manifest(folder, manifest)
    return manifest


def _prepare(folder: Path) -> None:
    """An empty folder; what an earlier trace left there is deleted."""
    if folder.is_dir() and any(folder.iterdir()) and not (folder / MANIFEST).is_file():
        raise InputError("--out", f"{folder} has files that are not of a trace; name another folder")
    folder.mkdir(parents=True, exist_ok=True)
    for old in [*folder.glob(f"*{SUFFIX}"), *folder.glob("rank-*.log")]:
        old.unlink()
    shutil.rmtree(folder / OBJECTS, ignore_errors=True)


def _run_program(path: str, words: Sequence[str], environment: Mapping[str, str], *, silent: bool) -> int:
    """Its exit status, as a shell would say it."""
    with _patient() as children:
        child = subprocess.Popen(words, executable=path, env=environment, stdout=sys.stderr if silent else None)
        children.append(child)
        status = child.wait()
    return status if status >= 0 else 128 - status


@contextmanager
def _patient() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Signals are the program's affair: a terminal sends Ctrl-C to it as well, others are passed on. This process then writes
    what there is."""
    children: list[subprocess.Popen[bytes]] = []

    def pass_on(number: int, _frame: object) -> None:
        for child in children:
            child.send_signal(number)

    handlers = {signal.SIGINT: lambda _number, _frame: None, signal.SIGTERM: pass_on, signal.SIGHUP: pass_on}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield children
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@dataclass(frozen=True, slots=True)
class _Row:
    """What a process did. `complete`: it ended by itself. `kernels`: distinct names."""

    rank: int | None
    process: int
    records: int
    launches: int
    kernels: int
    collectives: int
    peak_memory_bytes: int
    host_s: float
    file_bytes: int
    complete: bool


def _row(one: ProcessRecords, rank: int | None) -> _Row:
    launches = [record for record in one.records if isinstance(record, Launch)]
    return _Row(
        rank=rank,
        process=one.process,
        records=len(one.records),
        launches=len(launches),
        kernels=len({record.work.name for record in launches}),
        collectives=sum(isinstance(record, Collective) for record in one.records),
        peak_memory_bytes=max((record.used_bytes for record in one.records if isinstance(record, Memory)), default=0),
        host_s=one.host_ns / NS_PER_S,
        file_bytes=one.file_bytes,
        complete=one.complete,
    )


def _report(folder: Path, manifest: Manifest, *, as_json: bool, layout: Layout | None = None) -> int:
    status = manifest.exit_status or 0
    if not any(folder.glob(f"*{SUFFIX}")):
        if status == 0:
            raise InputError(_PLACE, "the program used none of its GPUs: nothing was recorded")
        return status
    processes = read_processes(folder)
    if manifest.virtual and status != 0:
        return status  # ranks are missing
    ranks = {id(rank.records): rank.rank for rank in trace_of(processes, folder, manifest.virtual).ranks}
    rows = [_row(one, ranks.get(id(one.records))) for one in processes]
    if as_json:
        print(
            json.dumps(
                {"folder": str(folder), **manifest.document(), "processes": [asdict(row) for row in rows]}, indent=2
            )
        )
    else:
        console = result_console()
        console.print(_table(rows))
        if manifest.virtual:
            console.print(_roles(manifest.virtual, layout))
        console.print(f"recorded in {folder}", markup=False, soft_wrap=True)
    return status


def _roles(virtual: VirtualRanks, layout: Layout | None) -> Table:
    """Which rank stands for which."""
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    table.add_column("Rank", justify="right")
    table.add_column("Role")
    table.add_column("Stands for", justify="right")
    table.add_column("Ranks", overflow="ellipsis", no_wrap=True)
    for rank, ranks in virtual.stands_for.items():
        role = layout.role(rank) if layout else "-"
        table.add_row(str(rank), role, str(len(ranks)), ranges_text(ranks))
    return table


def _table(rows: Sequence[_Row]) -> Table:
    table = Table(
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
        show_edge=False,
        caption="Host: seconds of the program's own work, without its waits for GPUs. Kernels: distinct names. Memory: peak of a "
        "GPU. A process without rank is no part of the job; one with * was ended before its time.",
        caption_justify="left",
    )
    for heading in (
        "Rank",
        "Process",
        "Records",
        "Launches",
        "Kernels",
        "Collectives",
        "Memory GiB",
        "Host s",
        "File MB",
    ):
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(
            "-" if row.rank is None else str(row.rank),
            f"{row.process}{'' if row.complete else ' *'}",
            f"{row.records:,}",
            f"{row.launches:,}",
            str(row.kernels),
            f"{row.collectives:,}",
            f"{row.peak_memory_bytes / GIB:.2f}",
            f"{row.host_s:.2f}",
            f"{row.file_bytes / 1e6:.1f}",
        )
    return table
