"""`emugpu profile import-trace`: train an estimator of kernel times from measurements of a real GPU.

From traces of torch.profiler, which have the times of kernels:

    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], record_shapes=True) as profiler: ...
    profiler.export_chrome_trace("trace.json")

    emugpu profile import-trace trace-*.json --gpu A100 --out a100.estimator

Where only whole steps were measured, from a CSV of folders that `emugpu trace` wrote, GPU types and step times:

    emugpu profile import-trace steps.csv --gpu A100 --out a100.estimator

`emugpu predict TRACE --gpu A100 --estimator a100.estimator` uses it. docs/prediction.md has the method.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from emugpu.learning.profiler import read_profiler_traces
from emulator_runtime.domain.errors import InputError
from emulator_runtime.prediction.learned.estimator_file import LearnedGpu, read_estimator, write_estimator
from emulator_runtime.profiles.catalogue import gpu_spec


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `import-trace` to the commands of `emugpu profile`."""
    parser = commands.add_parser(
        "import-trace",
        help="train an estimator of kernel times from traces of a real GPU",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "traces", nargs="+", type=Path, metavar="TRACE", help="traces of torch.profiler, or one CSV of step times"
    )
    parser.add_argument("--gpu", required=True, metavar="TYPE", help="what was measured, a type of `emugpu gpus`")
    parser.add_argument(
        "--out",
        type=Path,
        required=True,
        metavar="FILE",
        help="the estimator; a file that is there keeps what it has of other GPU types",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Writes the estimator and prints its errors; 0. Raises InputError, UnknownNameError and OSError."""
    gpu_type = gpu_spec(args.gpu, "--gpu").gpu_type
    others = read_estimator(args.out) if args.out.exists() else {}
    train = _from_steps if _is_table(args.traces) else _from_kernels
    try:
        learned = train(args.traces, gpu_type)
    except ModuleNotFoundError as error:
        raise InputError(
            "emugpu profile import-trace", f"needs the package {error.name}: pip install 'emugpu[learning]'"
        ) from error
    write_estimator(args.out, {**others, gpu_type: learned})
    _print(learned)
    print(f"{gpu_type} is in {args.out}; see `emugpu predict TRACE --gpu {args.gpu} --estimator {args.out}`")
    return 0


def _is_table(paths: list[Path]) -> bool:
    tables = [path for path in paths if path.suffix == ".csv"]
    if tables and len(paths) > 1:
        raise InputError("TRACE", "a CSV of step times is imported by itself, without other files")
    return bool(tables)


def _from_kernels(paths: list[Path], gpu_type: str) -> LearnedGpu:
    from emugpu.learning.training import train_kernels  # here, as it needs packages of emugpu[learning]

    found = read_profiler_traces(paths, gpu_type)
    for name in sorted(found.unknown_gpus):
        print(f"the traces are of a {name}, which the catalogue doesn't have: it is taken for a {gpu_type}")
    for reason, kernels in found.left_out.most_common():
        print(f"left out: {kernels} kernels of libraries {reason}")
    return train_kernels(found.measured, gpu_type, f"{len(found.measured)} kernels and library calls of torch.profiler")


def _from_steps(paths: list[Path], gpu_type: str) -> LearnedGpu:
    from emugpu.learning.measured_steps import read_measured_steps
    from emugpu.learning.step_training import train_steps

    (path,) = paths
    steps = read_measured_steps(path, gpu_type)
    return train_steps(steps, gpu_type, f"{len(steps)} measured steps")


def _print(learned: LearnedGpu) -> None:
    from rich import box  # here: an image that only runs programs has no rich
    from rich.table import Table

    from emugpu.terminal.console import result_console

    table = Table(
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
        show_edge=False,
        caption="Errors of estimates of what was left out of the training, without signs.",
        caption_justify="left",
    )
    table.add_column("Kind")
    for heading in ("Samples", "Median error", "Mean error"):
        table.add_column(heading, justify="right")
    for kind, error in learned.errors.items():
        table.add_row(kind.replace("_", " "), f"{error.samples:,}", f"{error.median:.1%}", f"{error.mean:.1%}")
    result_console().print(table)
