"""Makes a workload file of a run of Synergy's simulator, so that its own jobs run here too, shortened to what a person waits for.

The trace isn't part of this project: a run of that simulator (Mohan et al., OSDI 2022; msr-fiddle/synergy) leaves one line per
job with its iterations, their time with a proportional share, and how much faster it is with its best one. Iterations and
submit times are divided by one number; rounds divided by it too keep the trace's shape, longer ones are coarser than it.

    python tools/synergy_workload.py JOBS.csv --divide 10 --out workload.csv
    emugpu compare workload.csv --cluster examples/synergy-40/cluster.yaml --policy synergy:order=las,round_s=30 ...

Ends with 0; 2: the input is bad.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import isclose
from pathlib import Path

from emulator_runtime.domain.errors import EmuGpuError, InputError, UnknownNameError
from emulator_runtime.domain.sensitivity import HostShare
from emulator_runtime.domain.units import GIB
from emulator_runtime.profiles.synergy import FAMILY, SYNERGY_MODELS

COLUMNS = (
    *("job_id", "model", "arrival_s", "total_iterations", "gpus"),
    *("ideal_cpus", "ideal_mem_gb", "fair_iter_time_s", "ideal_speedup"),
)
"""What is read of a line; what became of the job in that simulator doesn't matter."""
LEAST_STEP_S = 0.25
HEAD = """\
# {jobs} jobs of a trace of Synergy's (Mohan et al., OSDI 2022), iterations and submit times divided by {divide:g}.
# gpu_duration_s holds with the proportional share; the models' profiles say how much faster more is.
job_id,model,submit_s,num_gpus,gpu_duration_s,steps
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the tool; see the module's docstring for what it answers."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("jobs", type=Path, help=f"CSV with the columns {', '.join(COLUMNS)}")
    parser.add_argument("--divide", type=float, default=1.0, help="iterations and submit times by this (default 1)")
    parser.add_argument(
        "--least-step",
        type=float,
        default=LEAST_STEP_S,
        help="seconds; so many iterations make one step here that none is shorter (default %(default)s)",
    )
    parser.add_argument("--out", type=Path, required=True, help="the workload file to write")
    args = parser.parse_args(argv)
    try:
        for name, value in (("--divide", args.divide), ("--least-step", args.least_step)):
            if not 1e-6 <= value <= 1e6:
                raise InputError(name, f"must be from 1e-06 to 1e+06, not {value:g}")
        lines = list(workload_lines(_read(args.jobs), args.divide, args.least_step))
        head = HEAD.format(jobs=len(lines), divide=args.divide)
        args.out.write_text(head + "".join(f"{line}\n" for line in lines), encoding="utf-8")
    except (EmuGpuError, OSError) as error:
        print(f"synergy_workload: {error}", file=sys.stderr)
        return 2
    print(f"{args.out}: {len(lines)} jobs")
    return 0


def workload_lines(rows: Iterable[tuple[str, Mapping[str, str]]], divide: float, least_step_s: float) -> Iterator[str]:
    """A line of the workload for each (place, row). Raises InputError at the place of a row that can't be had here."""
    for place, row in rows:
        try:
            gpus, iterations = int(row["gpus"]), int(row["total_iterations"])
            iteration_s, submit_s = float(row["fair_iter_time_s"]), float(row["arrival_s"]) / divide
            _check_speed(row, gpus, place)
        except ValueError as error:
            raise InputError(place, f"has something that is no number: {error}") from error
        seconds = iterations * iteration_s / divide
        steps = max(1, round(seconds / max(iteration_s, least_step_s)))
        # A static trace counts its jobs in milliseconds; here they come together, in the order of the lines.
        yield f"job-{row['job_id']},{FAMILY}{row['model']},{round(submit_s, 1):g},{gpus},{seconds:.3f},{steps}"


def _check_speed(row: Mapping[str, str], gpus: int, place: str) -> None:
    """The model's profile has to say what the trace says: as fast at its best share."""
    if (name := FAMILY + row["model"]) not in SYNERGY_MODELS:
        raise UnknownNameError(f"{place}: model", "model", name, SYNERGY_MODELS)
    best = HostShare(round(1000 * float(row["ideal_cpus"])), round(float(row["ideal_mem_gb"]) * GIB))
    known, stated = SYNERGY_MODELS[name].sensitivity.times(gpus).speed(best), float(row["ideal_speedup"])
    if not isclose(known, stated, rel_tol=0.01):
        raise InputError(f"{place}: ideal_speedup", f"is {stated:g}, and {known:g} by the profile of {name}")


def _read(path: Path) -> Iterator[tuple[str, Mapping[str, str]]]:
    with path.open(encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        missing = [column for column in COLUMNS if column not in (reader.fieldnames or ())]
        if missing:
            raise InputError(
                str(path), f"has no column {', '.join(missing)}; is it a per-job file of Synergy's simulator?"
            )
        for row in reader:
            yield f"{path}:{reader.line_num}", {column: row[column] or "" for column in COLUMNS}


if __name__ == "__main__":
    sys.exit(main())
