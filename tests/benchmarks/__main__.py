"""Benchmark tables: `python -m tests.benchmarks [name ...] [--options]` from the repository's root; all where none is named.

Each module has `main(argv) -> int`, prints its table beside a peer measured in the same run, and never fails by a clock.
Options go to every module that runs; all of them know `--quick`.
"""

from __future__ import annotations

import importlib
import sys
import time
import traceback

BENCHMARKS = (
    "wait_accuracy",
    "manager_leases",
    "predicted_observed",
    "simulator_speed",
    "synergy_rounds",
    "optimising_policies",
    "muri_groups",
    "sharing_engines",
    "event_shipping",
    "kubernetes",
    "emujobs",
    "dashboard",
    "cuda_costs",
    "prediction_speed",
    "prediction_accuracy",
    "megatron_table",
    "learned_accuracy",
    "search_grid",
)


def main(argv: list[str]) -> int:
    """Run the benchmarks named in `argv`; the first answer that isn't 0, or 2 for a name that isn't in the table."""
    first_option = next((index for index, word in enumerate(argv) if word.startswith("-")), len(argv))
    names, options = argv[:first_option], argv[first_option:]
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown or options[:1] in (["-h"], ["--help"]):
        print(f"{__doc__}\nbenchmarks: {', '.join(BENCHMARKS)}")
        if unknown:
            print(f"error: no benchmark {', '.join(unknown)}; the names are above", file=sys.stderr)
        return 2 if unknown else 0
    answers = []
    for name in names or BENCHMARKS:
        print(f"== {name}", flush=True)
        began_s = time.monotonic()
        try:
            answers.append(importlib.import_module(f"tests.benchmarks.{name}").main(options))
        except Exception:
            traceback.print_exc()  # the others are still run
            answers.append(1)
        print(f"({name}: {time.monotonic() - began_s:.0f} s)\n", flush=True)
    return next((answer for answer in answers if answer != 0), 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
