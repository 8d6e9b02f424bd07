"""The table that smi prints without options: in the layout of nvidia-smi, marked as emulated."""

from __future__ import annotations

from collections.abc import Sequence

from emugpu import VERSION
from emugpu.smi.columns import mib, percent
from emugpu.smi.devices import Gpu, Process

_WIDTHS = (48, 24, 20)
_INNER = sum(_WIDTHS) + len(_WIDTHS) - 1


def table(gpus: Sequence[Gpu]) -> list[str]:
    """The lines of both tables, GPUs and processes."""
    title = f" NVIDIA-SMI (emugpu {VERSION})"
    marked = "EMULATED GPUs: no hardware "
    rule = f"+{'+'.join('-' * width for width in _WIDTHS)}+"
    lines = [
        f"+{'-' * _INNER}+",
        f"|{title}{marked.rjust(_INNER - len(title))}|",
        rule,
        _row(" GPU  Name", "Memory-Usage ", "GPU-Util  State "),
        _row("      UUID", "", ""),
        f"|{'+'.join('=' * width for width in _WIDTHS)}|",
    ]
    for gpu in gpus:
        lines += [
            _row(f" {gpu.index:>3}  {gpu.name}", f"{_memory(gpu)} ", f"{_load(gpu)}  {_state(gpu):>5} "),
            _row(f"      {gpu.uuid}", "", ""),
            rule,
        ]
    return lines + _processes(gpus)


def _processes(gpus: Sequence[Gpu]) -> list[str]:
    lines = [
        "",
        f"+{'-' * _INNER}+",
        f"|{' Processes:'.ljust(_INNER)}|",
        _line("  GPU        PID   Process name", "GPU Memory Usage "),
        f"|{'=' * _INNER}|",
    ]
    rows = [
        _line(f"  {gpu.index:>3} {_pid(process):>10}   {process.name}", f" {mib(process.used_bytes)}MiB ")
        for gpu in gpus
        for process in gpu.processes
    ]
    known = any(gpu.used_bytes is not None for gpu in gpus)
    none = _line("  No running processes found" if known else "  N/A", "")
    return [*lines, *(rows or [none]), f"+{'-' * _INNER}+"]


def _row(left: str, middle: str, right: str) -> str:
    return f"|{left[: _WIDTHS[0]].ljust(_WIDTHS[0])}|{middle.rjust(_WIDTHS[1])}|{right.rjust(_WIDTHS[2])}|"


def _line(left: str, right: str) -> str:
    """One line over the whole width; what is too long gives way to the right part."""
    room = _INNER - len(right)
    return f"|{left[:room].ljust(room)}{right}|"


def _pid(process: Process) -> str:
    return "N/A" if process.pid is None else str(process.pid)


def _memory(gpu: Gpu) -> str:
    used = "N/A" if gpu.used_bytes is None or gpu.healthy is False else f"{mib(gpu.used_bytes)}MiB"
    return f"{used} / {mib(gpu.memory_bytes)}MiB"


def _load(gpu: Gpu) -> str:
    return "N/A" if gpu.utilisation is None or gpu.healthy is False else f"{percent(gpu.utilisation)}%"


def _state(gpu: Gpu) -> str:
    return {None: "N/A", True: "ok", False: "LOST"}[gpu.healthy]
