"""What the programs of this folder have in common: their option, and how they measure their own steps and memory."""

import argparse
import json
import os

import torch


def steps() -> int:
    """The option `--steps`."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=6)
    return parser.parse_args().steps


class Steps:
    """Prints a line of JSON at the end: the rank, the mean time of its steps after the second, and the device memory it has."""

    def __init__(self) -> None:
        self._ends: list[torch.cuda.Event] = []

    def ended(self) -> None:
        """A step has been given to the GPU completely."""
        end = torch.cuda.Event(enable_timing=True)
        end.record()
        self._ends.append(end)

    def report(self) -> None:
        """To be called once, after the last step."""
        torch.cuda.synchronize()
        free, total = torch.cuda.mem_get_info()
        step_ms = self._ends[1].elapsed_time(self._ends[-1]) / (len(self._ends) - 2)
        rank = int(os.environ.get("RANK", "0"))
        print(json.dumps({"rank": rank, "step_s": step_ms / 1000, "memory_bytes": total - free}), flush=True)
