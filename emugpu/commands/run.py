"""`emugpu run`: run an unmodified CUDA program on emulated GPUs, such as `emugpu run -- python train.py`.

Nothing is computed on the emulated GPUs: the program allocates, copies, launches and waits as on real ones, for as long as they
would take. Its exit status is the command's. docs/cuda.md says what works.
exit codes: 2 if the program can't be started, else the program's.
"""

from __future__ import annotations

import argparse
import math
import os
import re
import shutil
import socket
from pathlib import Path

from emugpu.smi.emulated_run import with_nvidia_smi
from emulator_runtime.cuda import launch
from emulator_runtime.cuda.build import built
from emulator_runtime.cuda.kernel_times import check_table
from emulator_runtime.domain.errors import InputError
from emulator_runtime.domain.units import GIB, MIB, read_duration_ns
from emulator_runtime.profiles.table import ProfileTable

_SIZE = re.compile(r"(\d{1,9}(?:\.\d{1,3})?)\s*(Mi|Gi)B?")
_UNITS = {"Mi": MIB, "Gi": GIB}


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `run` to the front door's commands."""
    parser = subparsers.add_parser(
        "run",
        help="run an unmodified CUDA program on emulated GPUs",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--gpus", type=int, default=1, metavar="N", help="how many GPUs it sees (default: 1)")
    parser.add_argument("--gpu-type", default="A100", metavar="TYPE", help="a type of `emugpu gpus` (default: A100)")
    parser.add_argument("--memory", metavar="SIZE", help="memory of each GPU, such as 16GiB (default: the type's)")
    parser.add_argument(
        "--machine",
        metavar="NAME",
        help="whose GPUs they are: runs with the same NAME share their memory (default: a machine of this run's own)",
    )
    parser.add_argument(
        "--time",
        default="roofline",
        metavar="ESTIMATOR",
        help="how long a kernel takes: roofline (by its operations and bytes), constant (5us), or a time such as 20us",
    )
    parser.add_argument("--kernel-table", type=Path, metavar="FILE", help="measured times of kernels by name")
    parser.add_argument("--anchor", type=float, metavar="FACTOR", help="multiply all estimates")
    parser.add_argument(
        "--anchor-to",
        metavar="STEP",
        help="multiply all estimates so that a training step takes as long as that of a profiled model and batch size, such as "
        "resnet50:64 (`emugpu profile list`), or a time such as 86ms; from the third equal step on",
    )
    parser.add_argument("--profiles", type=Path, metavar="FILE", help="JSON file with profiles of your own")
    parser.add_argument("--warp", action="store_true", help="waits for a GPU take no time: clocks jump instead")
    parser.add_argument(
        "--trace",
        type=Path,
        metavar="FILE",
        help="write a Chrome trace; %%p in FILE is the process, without it further processes write beside FILE",
    )
    parser.add_argument(
        "--log", type=int, choices=range(4), metavar="0-3", help="what is not emulated (1), objects, calls"
    )
    parser.add_argument("--preload", action="store_true", help="load the libraries by LD_PRELOAD instead of LD_AUDIT")
    parser.add_argument(
        "program", nargs=argparse.REMAINDER, metavar="-- COMMAND ...", help="the program and its options"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Replaces this process by the program. Raises InputError, UnknownNameError, BuildError and OSError."""
    words = args.program[1:] if args.program[:1] == ["--"] else args.program
    if not words:
        raise InputError("emugpu run", "needs a program: emugpu run [OPTIONS] -- python train.py")
    environ = with_nvidia_smi(os.environ)
    path = shutil.which(words[0], path=environ["PATH"])
    if path is None:
        raise InputError("emugpu run", f"there is no program {words[0]}")
    launch.check_program(path)
    memory = None if args.memory is None else _size(args.memory)
    machine = args.machine or f"{socket.gethostname()}, process {os.getpid()}"
    devices = launch.devices_of(args.gpu_type, args.gpus, machine, memory)
    settings = launch.write_settings(launch.settings_text(_process(args, devices[0].gpu_type), devices), environ)
    if args.trace is not None:
        _make_room(args.trace)
    os.execve(path, words, launch.environment(built(), settings, environ, preload=args.preload, warp=args.warp))


def _process(args: argparse.Namespace, gpu_type: str) -> launch.ProcessSettings:
    constant_ns = None if args.time in ("roofline", "constant") else read_duration_ns(args.time)
    if args.time not in ("roofline", "constant") and constant_ns is None:
        raise InputError("--time", f"must be roofline, constant or a time such as 20us, not {args.time}")
    if args.anchor is not None and not 0 < args.anchor < math.inf:
        raise InputError("--anchor", f"must be a number above 0, not {args.anchor:g}")
    if args.trace is not None and not args.trace.absolute().parent.is_dir():
        raise InputError("--trace", f"there is no folder {args.trace.parent}")
    if args.kernel_table is not None:
        check_table(args.kernel_table)
    return launch.ProcessSettings(
        estimator="roofline" if args.time == "roofline" else "constant",
        constant_ns=constant_ns,
        kernel_table=_absolute(args.kernel_table),
        anchor=args.anchor,
        step_ns=None if args.anchor_to is None else launch.step_ns(args.anchor_to, gpu_type, _profiles(args.profiles)),
        trace=_absolute(args.trace),
        log=args.log,
        warp=args.warp or None,
    )


def _profiles(file: Path | None) -> ProfileTable:
    table = ProfileTable.bundled()
    return table if file is None else table.with_file(file)


def _make_room(trace: Path) -> None:
    """The first process that records takes a file that isn't there, or is empty. Raises OSError."""
    if trace.is_symlink() and trace.is_file():
        os.truncate(trace, 0)  # such as /dev/stdout
    elif trace.is_file():
        trace.unlink()


def _absolute(path: Path | None) -> Path | None:
    """The program may change its directory."""
    return None if path is None else path.absolute()


def _size(text: str) -> int:
    match = _SIZE.fullmatch(text)
    if match is None:
        raise InputError("--memory", f"must be a size such as 16GiB or 900MiB, not {text}")
    return int(float(match[1]) * _UNITS[match[2]])
