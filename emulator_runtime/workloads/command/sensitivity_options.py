"""The options --cpu-speeds and --memory-speeds of `train`: the speed of a job by its CPUs and memory, as in `3=1,6=1.5`."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable

from emulator_runtime.domain.errors import InputError
from emulator_runtime.domain.sensitivity import Knots, Sensitivity
from emulator_runtime.workloads.command.sizes import parse_bytes

MAX_CPUS = 10**6


def sensitivity_of(args: argparse.Namespace) -> Sensitivity | None:
    """The sensitivity; None if neither --cpu-speeds nor --memory-speeds is given. Raises InputError naming the option."""
    if not (args.cpu_speeds or args.memory_speeds):
        return None
    for speeds, own, has in (
        ("--cpu-speeds", args.cpus is not None, "--cpus"),
        ("--memory-speeds", bool(args.host_memory), "--host-memory"),
    ):
        if getattr(args, speeds[2:].replace("-", "_")) and not own:
            raise InputError(speeds, f"needs {has}: what the job has until its scheduler gives it another share")
    return Sensitivity(
        _curve(args.cpu_speeds, "--cpu-speeds", _cpu_milli),
        _curve(args.memory_speeds, "--memory-speeds", parse_bytes),
    )


def _curve(text: str | None, option: str, amount_of: Callable[[str, str], int]) -> Knots:
    knots: list[tuple[int, float]] = []
    for pair in text.split(",") if text else ():
        amount_text, _, speed_text = pair.partition("=")
        speed = _number(speed_text)
        if not (speed > 0 and math.isfinite(speed)):
            raise InputError(option, f"must be AMOUNT=SPEED,... with speeds above 0, not {pair!r}")
        amount = amount_of(amount_text, option)
        if amount <= (knots[-1][0] if knots else 0):
            raise InputError(option, f"must have amounts above 0 that grow; {pair!r} doesn't")
        knots.append((amount, speed))
    return tuple(knots)


def _cpu_milli(text: str, option: str) -> int:
    cpus = _number(text)
    if not 0 < cpus <= MAX_CPUS:
        raise InputError(option, f"must have CPUs above 0 and at most {MAX_CPUS}, not {text!r}")
    return round(cpus * 1000)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan
