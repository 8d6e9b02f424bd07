"""Converts the output directory of `emugpu compare` and `emugpu simulate` into the API's data.

jobs.csv has the start and the end of each job; spans.csv, if it exists, the devices that it held in between.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from emulator_runtime.domain.errors import InputError
from operators.api.model.natural_order import CPU, natural, place_order
from operators.api.model.snapshot import Device, Experiment, Job, JobRun, Node, Run
from operators.api.model.statistics import error_of
from operators.objects.names import Phase
from scheduler_sims.reports.comparison import SIMULATED
from scheduler_sims.reports.files import JobRow, read_jobs_csv
from scheduler_sims.reports.spans_file import SpanRow, read_spans_csv

JOBS, SUMMARY, SPANS = "jobs.csv", "summary.json", "spans.csv"
_PHASES: Mapping[str, Phase] = {"finished": "Succeeded", "removed": "Succeeded", "failed": "Failed"}
"""Removed is what a replica of a service is that isn't needed any more."""


@dataclass(frozen=True, slots=True)
class Output:
    """The content of one directory. `runs` by uid of the job."""

    experiment: Experiment
    jobs: tuple[Job, ...]
    runs: Mapping[str, tuple[JobRun, ...]]
    nodes: tuple[Node, ...]
    devices: tuple[Device, ...]


def read_output(directory: Path, name: str) -> Output:
    """Raises InputError naming the file that is missing or wrong."""
    rows = read_jobs_csv(directory / JOBS)
    spans = read_spans_csv(directory / SPANS) if (directory / SPANS).exists() else None
    return output_of(name, rows, spans, _summary(directory / SUMMARY))


def output_of(name: str, rows: Sequence[JobRow], spans: Sequence[SpanRow] | None, summary: Mapping[str, Any]) -> Output:
    """The content of these files; `spans` None: there is no spans.csv."""
    keys = dict.fromkeys((row.policy, row.cluster, row.repeat) for row in rows)
    runs = {key: Run(f"{name}.{number}", name, *key) for number, key in enumerate(keys, 1)}
    held = _held(spans) if spans is not None else None
    predicted = {(row.policy, row.job_id): row.jct_s for row in rows if row.cluster == SIMULATED and _finished(row)}
    jobs, job_runs = [], {}
    for row in rows:
        run = runs[row.policy, row.cluster, row.repeat]
        uid = uid_of(name, row)
        job_runs[uid] = _runs_of(row, held)
        jobs.append(_job(row, run, uid, job_runs[uid], predicted))
    places = sorted({place for job in jobs for place in job.devices}, key=place_order)
    meta = summary.get("meta")
    texts = _texts(meta) if isinstance(meta, dict) else {}
    devices = tuple(_device(place) for place in places)
    return Output(Experiment(name, tuple(runs.values()), texts), tuple(jobs), job_runs, _nodes(devices), devices)


def uid_of(experiment: str, row: JobRow) -> str:
    """A uid that stays the same however often the files are read."""
    words = (experiment, row.policy, row.cluster, str(row.repeat), row.job_id)
    return hashlib.sha256("\0".join(words).encode()).hexdigest()[:20]


def _summary(path: Path) -> Mapping[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise InputError(str(path), f"can't be read ({error}); run `emugpu compare ... --out DIR` again") from error
    if not isinstance(found, dict):
        raise InputError(str(path), "is not a summary.json; run `emugpu compare ... --out DIR` again")
    return found


def _texts(meta: Mapping[str, Any]) -> dict[str, str]:
    def text(value: Any) -> str:
        if isinstance(value, dict):
            return ", ".join(f"{name} {each}" for name, each in value.items())
        return str(value)

    return {str(name): text(value) for name, value in meta.items()}


def _finished(row: JobRow) -> bool:
    return row.status == "finished"


def _held(spans: Iterable[SpanRow]) -> dict[tuple[str, str, int, str], list[SpanRow]]:
    found: dict[tuple[str, str, int, str], list[SpanRow]] = {}
    for span in spans:
        found.setdefault((span.policy, span.cluster, span.repeat, span.job_id), []).append(span)
    return found


def _runs_of(row: JobRow, held: Mapping[tuple[str, str, int, str], Sequence[SpanRow]] | None) -> tuple[JobRun, ...]:
    """One run for all devices that were held in the same interval on one node."""
    if held is None:
        return _guessed(row)
    together: dict[tuple[float, float, str], list[str]] = {}
    for span in held.get((row.policy, row.cluster, row.repeat, row.job_id), ()):
        together.setdefault((span.start_s, span.end_s, span.place.rpartition("/")[0]), []).append(span.place)
    ordered = sorted(together.items())
    runs = [
        JobRun(node, tuple(sorted(places, key=place_order)), begin, end, ended="released")
        for (begin, end, node), places in ordered
    ]
    last = max((run.to_s or 0.0 for run in runs), default=0.0)
    return tuple(replace(run, ended=row.status) if run.to_s == last else run for run in runs)


def _guessed(row: JobRow) -> tuple[JobRun, ...]:
    """Without spans: one run from the first start to the end, exact if the job was never preempted."""
    if row.start_s is None:
        return ()
    by_node: dict[str, list[str]] = {}
    for place in row.devices:
        by_node.setdefault(place.rpartition("/")[0], []).append(place)
    exact = row.preemptions == 0
    return tuple(
        JobRun(node, tuple(places), row.start_s, row.finish_s, ended=row.status, exact=exact)
        for node, places in by_node.items()
    )


def _job(row: JobRow, run: Run, uid: str, held: Sequence[JobRun], predicted: Mapping[tuple[str, str], float]) -> Job:
    ended = _PHASES.get(row.status, "Failed")
    jct_s = row.jct_s if row.status == "finished" else None
    predicted_s = predicted.get((row.policy, row.job_id))
    # jobs.csv alone doesn't say what a preempted job held.
    service_s = _service_s(held) if all(each.exact for each in held) else None
    last = max((each.from_s for each in held), default=0.0)
    devices = [place for each in held if each.from_s == last for place in each.devices]
    return Job(
        uid=uid,
        name=row.job_id,
        run=run.id,
        submitted_s=row.submit_s,
        phase=ended,
        tenant=row.user,
        experiment=run.experiment,
        policy=row.policy,
        cluster=row.cluster,
        reason=row.reason,
        gpus=sum(not place.endswith(f"/{CPU}") for place in devices) if held else None,
        nodes=tuple(dict.fromkeys(place.rpartition("/")[0] for place in row.devices)),
        devices=row.devices,
        started_s=row.start_s,
        finished_s=row.finish_s,
        jct_s=jct_s,
        predicted_jct_s=predicted_s,
        predicted_by=row.policy if predicted_s is not None else "",
        error=error_of(predicted_s, jct_s) if row.cluster != SIMULATED else None,
        queueing_delay_s=row.queueing_delay_s,
        service_s=service_s,
        preemptions=row.preemptions,
    )


def _service_s(runs: Iterable[JobRun]) -> float:
    """The time during which at least one run lasted."""
    total, reached = 0.0, float("-inf")
    for begin, end in sorted((run.from_s, run.to_s or run.from_s) for run in runs):
        total += max(0.0, end - max(begin, reached))
        reached = max(reached, end)
    return total


def _device(place: str) -> Device:
    node, _, index = place.rpartition("/")
    return Device(place, node, int(index) if index.isdecimal() else None)


def _nodes(devices: Iterable[Device]) -> tuple[Node, ...]:
    counts: dict[str, int] = {}
    for device in devices:
        counts[device.node] = counts.get(device.node, 0) + (device.index is not None)
    return tuple(Node(name, devices=counts[name]) for name in sorted(counts, key=natural))
