"""Predicted step time and memory of training programs, beside what the same programs take on emulated GPUs, where they wait.

Both have the same estimates, so a difference is one of the replay, or the host's: the load of the machine is printed. It needs a
Python with torch (`make frameworks`), and is left out, with a line, where there is none.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.support.predicted_programs import PROGRAMS, observed, predicted
from tests.support.torch_releases import RELEASES


def main(argv: Sequence[str]) -> int:
    """Prints the table; 0."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--torch", type=Path, default=next(iter(RELEASES.values())).python, help="a Python with torch")
    parser.add_argument("--quick", action="store_true", help="one GPU only")
    options, _ = parser.parse_known_args(argv)
    if not options.torch.exists():
        print(f"left out: {options.torch} isn't there; `make frameworks` installs PyTorch, --torch names another one")
        return 0
    steps = "predicted s  observed s   error"
    print(f"{'':10}{'GPUs':>10}  {steps}  {'predicted MiB':>14}{'observed MiB':>14}{'error':>8}{'load':>7}")
    for program in PROGRAMS:
        if options.quick and program.gpus > 1:
            continue
        with tempfile.TemporaryDirectory() as folder:
            expected = predicted(program, options.torch, Path(folder))
            found = observed(program, options.torch, Path(folder))
        print(
            f"{program.name:10}{f'{program.gpus} {program.gpu_type}':>10}  {expected.step_s:11.4f}{found.step_s:12.4f}"
            f"{expected.step_s / found.step_s - 1:+8.2%}  {expected.memory_bytes / 2**20:14.1f}"
            f"{found.memory_bytes / 2**20:14.1f}{expected.memory_bytes / found.memory_bytes - 1:+8.2%}{os.getloadavg()[0]:7.1f}",
            flush=True,
        )
    return 0
