"""`emugpu gpus`: the GPU types that a cluster file may name, since nobody remembers labels and memory sizes."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict

from rich import box
from rich.table import Table

from emugpu.terminal.console import result_console
from emulator_runtime.domain.gpu import GpuSpec
from emulator_runtime.domain.mig import mig_profiles
from emulator_runtime.domain.units import GIB
from emulator_runtime.profiles.table import ProfileTable


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `gpus` to the front door's commands."""
    parser = subparsers.add_parser("gpus", help="list the GPU types that can be emulated", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON (bytes, bytes per second) instead of a table")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Prints the catalogue; 0."""
    table = ProfileTable.bundled()
    specs = tuple(table.catalogue.specs.values())
    models = {spec.gpu_type: _profiled_models(table, spec.gpu_type) for spec in specs}
    if args.json:
        print(json.dumps([_as_json(table, spec, models[spec.gpu_type]) for spec in specs], indent=2))
    else:
        result_console().print(_rich_table(table, specs, models))
    return 0


def _profiled_models(table: ProfileTable, gpu_type: str) -> int:
    return sum(gpu_type in table.gpu_types_of(model) for model in table.models)


def _as_json(table: ProfileTable, spec: GpuSpec, models: int) -> dict[str, object]:
    return {
        **asdict(spec),
        "usable_memory_bytes": spec.usable_memory_bytes,
        "aliases": list(table.catalogue.short_names(spec.gpu_type)),
        "profiled_models": models,
        "mig_profiles": list(mig_profiles(spec.gpu_type)),
    }


def _stand_in(table: ProfileTable, spec: GpuSpec) -> str:
    return f"as {table.catalogue.short_names(spec.step_times_of)[0]}" if spec.step_times_of else "-"


def _rich_table(table: ProfileTable, specs: tuple[GpuSpec, ...], models: dict[str, int]) -> Table:
    rich_table = Table(
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
        show_edge=False,
        caption="CC: compute capability. Links: GB/s, one direction; peer: NVLink per GPU, - : through the host. "
        "Usable: what a job's peak may reach. Models: those with measured step times; "
        "none means that you bring your own profiles file, 'as A100' that the A100's step times stand in.",
        caption_justify="left",
    )
    rich_table.add_column("GPU type", no_wrap=True)
    rich_table.add_column("Short", no_wrap=True)
    for heading in ("GiB", "Usable", "Host", "Peer"):
        rich_table.add_column(heading, justify="right")
    rich_table.add_column("CC", justify="right")
    rich_table.add_column("Models", justify="right")
    for spec in specs:
        rich_table.add_row(
            spec.gpu_type,
            next(iter(table.catalogue.short_names(spec.gpu_type)), ""),
            f"{spec.memory_bytes / GIB:.1f}",
            f"{spec.usable_memory_bytes / GIB:.1f}",
            f"{spec.host_link_bytes_per_s / 1e9:.0f}",
            f"{spec.peer_link_bytes_per_s / 1e9:.0f}" if spec.peer_link_bytes_per_s else "-",
            spec.compute_capability,
            str(models[spec.gpu_type] or _stand_in(table, spec)),
        )
    return rich_table
