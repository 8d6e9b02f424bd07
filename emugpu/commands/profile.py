"""`emugpu profile`: what the emulator believes about a model, so that a workload can be chosen with open eyes."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from rich import box
from rich.markup import escape
from rich.table import Table

from emugpu.learning import import_trace
from emugpu.prediction import from_trace
from emugpu.terminal.console import result_console
from emulator_runtime.domain.errors import InputError
from emulator_runtime.domain.step import StepProfile
from emulator_runtime.domain.units import gib
from emulator_runtime.profiles.table import ProfileTable

_PLACE = "emugpu profile show"
_USUAL_BATCHES = (1, 8, 16, 32, 64, 128, 256)

_TABLE_WIDTH = 120


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `profile list` and `profile show` to the front door's commands."""
    parser = subparsers.add_parser(
        "profile",
        help="show step times and memory of the models; make profiles of traced programs; train estimators",
        description=__doc__,
    )
    commands = parser.add_subparsers(
        dest="profile_command", required=True, metavar="{list,show,from-trace,import-trace}"
    )
    listing = commands.add_parser("list", help="list the models and where they are profiled")
    _add_common(listing)
    listing.set_defaults(run=run)
    show = commands.add_parser("show", help="show one model's step times and memory")
    show.add_argument("model", metavar="MODEL", help="a model of `emugpu profile list`")
    show.add_argument("--gpu", metavar="TYPE", help="one GPU type in detail (default: all in one table)")
    show.add_argument("--batch", metavar="N", type=int, nargs="+", help="batch sizes per GPU (default: the usual ones)")
    show.add_argument("--extrapolate", action="store_true", help="go on beyond the last measured batch size")
    _add_common(show)
    show.set_defaults(run=run)
    from_trace.add_parser(commands)
    import_trace.add_parser(commands)


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--profiles", metavar="FILE", type=Path, help="JSON file with profiles of your own")
    parser.add_argument("--json", action="store_true", help="print JSON (seconds, bytes) instead of a table")


def run(args: argparse.Namespace) -> int:
    """Prints what was asked for; 0. Raises InputError, UnknownNameError or BeyondProfileError."""
    table = ProfileTable.bundled()
    if args.profiles is not None:
        table = table.with_file(args.profiles)
    if args.profile_command == "list":
        _list(table, as_json=args.json)
        return 0
    gpu_types = _wanted_types(table, args.model, args.gpu)
    batches = _wanted_batches(table, args.model, gpu_types, args.batch)
    steps = {gpu: _steps(table, args, gpu, batches) for gpu in gpu_types}
    if not any(steps.values()):
        furthest = max(gpu_types, key=lambda gpu: table.last_measured_batch(args.model, gpu))
        table.step_profile(args.model, furthest, batches[-1])  # raises: it says how far the measurements go
    if args.json:
        print(json.dumps(_as_json(table, args.model, steps), indent=2))
    elif args.gpu:
        result_console(_TABLE_WIDTH).print(_detail(table, args.model, gpu_types[0], steps[gpu_types[0]]))
    else:
        result_console(_TABLE_WIDTH).print(_overview(table, args.model, batches, steps))
    return 0


def _wanted_types(table: ProfileTable, model: str, gpu: str | None) -> tuple[str, ...]:
    known = table.gpu_types_of(model)
    return known if gpu is None else (table.catalogue.spec(gpu, f"{_PLACE}: --gpu").gpu_type,)


def _wanted_batches(
    table: ProfileTable, model: str, gpu_types: Sequence[str], asked: Sequence[int] | None
) -> tuple[int, ...]:
    """What was asked for, else the usual batch sizes that were measured somewhere, and where those end."""
    if asked:
        if min(asked) < 1:
            raise InputError(f"{_PLACE}: --batch", f"must be a whole number of at least 1, not {min(asked)}")
        return tuple(sorted(set(asked)))
    ranges = [table.measured_batches(model, gpu) for gpu in gpu_types]
    first, last = min(start for start, _ in ranges), max(end for _, end in ranges)
    return tuple(sorted({batch for batch in _USUAL_BATCHES if first <= batch <= last} | {last}))


def _steps(
    table: ProfileTable, args: argparse.Namespace, gpu_type: str, batches: Sequence[int]
) -> dict[int, StepProfile]:
    """The steps at `batches`; in the overview of all GPU types those that were not measured are left out."""
    first, last = table.measured_batches(args.model, gpu_type)
    shown = [batch for batch in batches if args.gpu or args.extrapolate or first <= batch <= last]
    return {b: table.step_profile(args.model, gpu_type, b, extrapolate=args.extrapolate) for b in shown}


def _list(table: ProfileTable, *, as_json: bool) -> None:
    measured = {
        model: {g: table.measured_batches(model, g)[1] for g in table.gpu_types_of(model)} for model in table.models
    }
    if as_json:
        print(json.dumps([{"model": model, "last_measured_batch": last} for model, last in measured.items()], indent=2))
        return
    short = {g: next(iter(table.catalogue.short_names(g)), g) for last in measured.values() for g in last}
    columns = [gpu for gpu in table.catalogue.specs if gpu in short]
    rich_table = Table(box=box.SIMPLE_HEAD, caption="Largest measured batch size per GPU.", caption_justify="left")
    rich_table.add_column("Model", no_wrap=True)
    for gpu in columns:
        rich_table.add_column(escape(short[gpu]), justify="right")
    for model, last in measured.items():
        rich_table.add_row(escape(model), *(str(last.get(gpu, "-")) for gpu in columns))
    result_console(_TABLE_WIDTH).print(rich_table)


def _as_json(table: ProfileTable, model: str, steps: dict[str, dict[int, StepProfile]]) -> dict[str, object]:
    return {
        "model": model,
        "gpus": {
            gpu: {
                "last_measured_batch": table.last_measured_batch(model, gpu),
                "steps": [_step_json(batch, step) for batch, step in rows.items()],
            }
            for gpu, rows in steps.items()
        },
    }


def _step_json(batch: int, step: StepProfile) -> dict[str, object]:
    return {
        "batch": batch,
        "transfer_s": step.transfer_s,
        "forward_s": step.forward_s,
        "backward_s": step.backward_s,
        "step_s": step.device_s,
        "peak_bytes": step.peak_bytes,
        "persistent_bytes": step.persistent_bytes,
        "extrapolated": step.extrapolated,
    }


def _overview(
    table: ProfileTable, model: str, batches: Sequence[int], steps: dict[str, dict[int, StepProfile]]
) -> Table:
    """Step times by GPU type and batch size."""
    rich_table = Table(
        title=f"{escape(model)}: ms per step by batch size per GPU",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        caption="- : not measured, --extrapolate goes on; ~ : extrapolated. Step: transfer, forward and backward pass.",
        caption_justify="left",
    )
    rich_table.add_column("GPU type", no_wrap=True)
    for batch in batches:
        rich_table.add_column(str(batch), justify="right")
    rich_table.add_column("Measured to", justify="right")
    for gpu, rows in steps.items():
        times = (_mark(f"{rows[b].device_s * 1e3:.1f}", rows[b]) if b in rows else "-" for b in batches)
        rich_table.add_row(escape(gpu), *times, str(table.last_measured_batch(model, gpu)))
    rich_table.add_section()
    found = {batch: step for rows in steps.values() for batch, step in rows.items()}
    peaks = (gib(found[batch].peak_bytes) if batch in found else "-" for batch in batches)
    rich_table.add_row("peak memory", *peaks, "")
    return rich_table


def _detail(table: ProfileTable, model: str, gpu_type: str, steps: dict[int, StepProfile]) -> Table:
    """Every figure of a model on one GPU type."""
    spec = table.catalogue.spec(gpu_type, _PLACE)
    last = table.last_measured_batch(model, gpu_type)
    rich_table = Table(
        title=f"{escape(model)} on {escape(gpu_type)} (measured up to batch size {last})",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        caption=f"Times in ms; ~ : time or memory extrapolated. Fits: peak within {gib(spec.usable_memory_bytes)} usable.",
        caption_justify="left",
    )
    for heading in ("Batch", "Transfer", "Forward", "Backward", "Step", "Samples/s", "Peak", "Persistent", "Fits"):
        rich_table.add_column(heading, justify="right")
    for batch, step in steps.items():
        rich_table.add_row(
            _mark(str(batch), step),
            *(f"{seconds * 1e3:.2f}" for seconds in (step.transfer_s, step.forward_s, step.backward_s, step.device_s)),
            f"{batch / step.device_s:.0f}",
            gib(step.peak_bytes),
            gib(step.persistent_bytes),
            "yes" if step.peak_bytes <= spec.usable_memory_bytes else "no",
        )
    return rich_table


def _mark(text: str, step: StepProfile) -> str:
    return f"~{text}" if step.extrapolated else text
