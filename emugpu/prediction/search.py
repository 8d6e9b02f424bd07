"""`emugpu search`: find the configuration of a training program that is fastest or cheapest, without a GPU.

A recipe states the command with placeholders, the values that they may have, and what is wanted:

    command: python train.py --batch {batch} {checkpointing}
    knobs:
      batch: [8, 16, 32, 64]
      checkpointing: ["", --checkpointing]
    samples: batch
    gpu_types: [A100, V100]

Each configuration's command is traced, as by `emugpu trace`, and predicted, as by `emugpu predict`. docs/prediction.md has all
fields. With the same --out a search goes on where it ended.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from emugpu.search.evaluation import TracedEvaluation
from emugpu.search.journal import SearchJournal
from emugpu.search.optimiser import Evaluated, Search
from emugpu.search.recipe import read_recipe, shown
from emugpu.search.report import as_json, sentences, table
from emugpu.terminal.console import ProgressBars, result_console
from emulator_runtime.domain.errors import InputError
from emulator_runtime.files import write_whole

_SMALL = 60
"""A grid of so many configurations is searched completely."""
EXIT_NOTHING_RAN = 1


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds `search` to the front door's commands."""
    parser = subparsers.add_parser(
        "search",
        help="find the fastest or cheapest configuration of a training program",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="exit codes: 1 if no configuration ran to a prediction, 2 for a wrong recipe.",
    )
    parser.add_argument("recipe", type=Path, metavar="RECIPE", help="a YAML file")
    parser.add_argument(
        "--budget",
        type=int,
        metavar="N",
        help=f"evaluate so many configurations (default: all of up to {_SMALL}, else a tenth, at least {_SMALL})",
    )
    parser.add_argument("--all", action="store_true", help="evaluate all configurations")
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="programs at a time (default: 1)")
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="of the optimiser's random numbers (default: 0)"
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("out/search"),
        metavar="FOLDER",
        help="traces and results (default: out/search)",
    )
    parser.add_argument("--format", choices=("table", "json"), default="table", help="what to print (default: table)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Searches, and prints what was found. Raises InputError, UnknownNameError and OSError."""
    for name in ("workers", "budget"):
        if (value := getattr(args, name)) is not None and value < 1:
            raise InputError(f"--{name}", f"must be at least 1, not {value}")
    recipe = read_recipe(args.recipe)
    args.out.mkdir(parents=True, exist_ok=True)
    journal = SearchJournal(args.out / "evaluations.jsonl", recipe)
    search = Search(recipe, journal.read(), seed=args.seed)
    count = len(search.allowed)
    if not count:
        raise InputError(str(args.recipe), "the constraints allow no configuration")
    budget = count if args.all else args.budget or (count if count <= _SMALL else max(_SMALL, count // 10))
    evaluation = TracedEvaluation(recipe, args.out / "traces")
    with ProgressBars(explain=False, log=args.out / "search.log", unit="configurations") as bars:
        bar = bars.bar("search", min(budget, count))

        def progress(one: Evaluated) -> None:
            journal.append(one)
            bar.update(len(search.found))
            outcome = one.outcome
            result = f"{outcome.step_s * 1e3:.2f} ms" if outcome.step_s else f"{outcome.state.value}: {outcome.reason}"
            bars.note(f"{shown(one.configuration)}: {result}")

        bar.update(len(search.found))
        try:
            search.run(evaluation, budget, args.workers, progress, all_of_them=budget >= count)
        finally:
            evaluation.stop()
    text = as_json(search)
    write_whole(args.out / "search.json", text, sync=False)
    if args.format == "json":
        print(text, end="")
    else:
        console = result_console()
        if search.best():
            console.print(table(search))
        for line in sentences(search):
            console.print(line, markup=False, soft_wrap=True)
    return 0 if search.best() else EXIT_NOTHING_RAN
