"""report.html of a comparison: its sections and charts, in the frame of `frame.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from scheduler_sims.record import RunRecord
from scheduler_sims.reports.comparison import Comparison
from scheduler_sims.reports.files import write_atomically
from scheduler_sims.reports.page import page_text
from scheduler_sims.reports.page.charts import gpus_of_jobs, jct_cdf, predicted_against_observed, queue_lengths, split
from scheduler_sims.reports.page.frame import chart_section, document, gantt_section, json_in_script
from scheduler_sims.reports.page.gantt import Bar, Row, bars_by_row, drawn_share, gantt_figure, rows_of
from scheduler_sims.reports.page.palette import policy_colours

CDF_TEXT = "Share of jobs that finished within a time"
QUEUE_TEXT = "Jobs that are submitted and hold nothing, on the same axes for all policies"
HOW_DRAWN = {
    "jct-cdf": ": predicted dashed, observed (all repeats together) broad.",
    "queue": ": predicted dashed, the first observed run broad.",
}
SCATTER_TEXT = (
    "One point per job. Left: on the diagonal the prediction is exact. Right: the same jobs by relative error. "
    "Observed JCTs are means over the repeats."
)
GPUS_TEXT = "Jobs one on top of the other, for policies that change a job's number of GPUs. A job's colours here and below agree."
GANTT_HEADING = "Who held which device when"
GANTT_TEXT = (
    "One row per device or CPU node; a job has the same colour in every run. Hover for job, user, start and end."
)


def write_report(
    path: Path, runs: Sequence[RunRecord], comparison: Comparison, meta: Mapping[str, Any] | None = None
) -> None:
    """Write the page. `meta` describes the comparison (workload, cluster, clock, seed, costs, ...).

    The same input gives the same bytes. Raises InputError if the file can't be written.
    """
    write_atomically(path, render(runs, comparison, meta or {}))


def render(runs: Sequence[RunRecord], comparison: Comparison, meta: Mapping[str, Any]) -> str:
    """The whole page as one string."""
    how_drawn = HOW_DRAWN if any(policy.observed for policy in comparison.policies) else dict.fromkeys(HOW_DRAWN, ".")
    colours = policy_colours(policy.policy for policy in comparison.policies)
    charts: dict[str, Any] = {}
    sections = [
        page_text.header(comparison, meta),
        page_text.warning_section(comparison),
        page_text.headline_section(comparison, colours),
    ]
    if runs:
        charts["jct-cdf"] = jct_cdf(runs, colours)
        sections.append(chart_section("jct-cdf", "Job completion times", CDF_TEXT + how_drawn["jct-cdf"]))
        sections.append(page_text.quantile_section(comparison))
    if scatter := predicted_against_observed(runs, colours):
        charts["scatter"] = scatter
        sections.append(chart_section("scatter", "Predicted and observed JCT of each job", SCATTER_TEXT))
    if runs:
        charts["queue"] = queue_lengths(runs, colours)
        sections.append(chart_section("queue", "Queue length over time", QUEUE_TEXT + how_drawn["queue"]))
        if gpus := gpus_of_jobs(runs, colours):
            charts["gpus"] = gpus
            sections.append(chart_section("gpus", "GPUs of each job over time", GPUS_TEXT))
        sections.append(gantt_section(GANTT_HEADING, GANTT_TEXT, ("policy", "cluster")))
    sections += [
        page_text.lag_section(comparison),
        page_text.failure_section(comparison),
        page_text.definitions_section(),
    ]
    data = {"charts": charts, "gantt": _gantts(runs)}
    return document(page_text.title(comparison), "\n".join(filter(None, sections)), json_in_script(data))


def write_gantt(path: Path, run: RunRecord, title: str, text: str) -> None:
    """Write a page with only the Gantt chart of one run. Raises InputError if the file can't be written."""
    choice = _gantt(run, run.cluster, rows_of([run]), max(_ends(run), default=0.0))
    body = f"<h1>{escape(title)}</h1><p class='muted'>{escape(text)}</p>{gantt_section(GANTT_HEADING, GANTT_TEXT)}"
    data = {"charts": {}, "gantt": [{"policy": run.policy, "runs": [choice]}]}
    write_atomically(path, document(title, body, json_in_script(data)))


def _gantts(runs: Sequence[RunRecord]) -> list[dict[str, Any]]:
    rows = rows_of(runs)
    longest_s = max((end for run in runs for end in _ends(run)), default=0.0)
    entries = []
    for policy, (predicted, observed) in split(runs).items():
        shown = [run for run in (predicted, *observed[:1]) if run is not None]
        names = ["predicted" if run is predicted else f"observed ({run.cluster} #{run.repeat})" for run in shown]
        choices = [_gantt(run, name, rows, longest_s) for run, name in zip(shown, names, strict=True)]
        entries.append({"policy": policy, "runs": choices})
    return entries


def _gantt(run: RunRecord, name: str, rows: Sequence[Row], longest_s: float) -> dict[str, Any]:
    packed = bars_by_row(run.spans)
    figure = gantt_figure(run, rows, longest_s, packed)
    return {"name": name, "caption": _gantt_caption(run, rows, packed), "figure": figure}


def _ends(run: RunRecord) -> list[float]:
    return [*(job.finish_s for job in run.jobs), *(span.end_s for span in run.spans)]


def _gantt_caption(run: RunRecord, rows: Sequence[Row], packed: Mapping[Row, Sequence[Bar]]) -> str:
    drawn, bars = drawn_share(packed)
    without_row = run.gpus - sum(device is not None for _, device in rows)
    parts = [f"{run.policy}: {bars} spans of {len(run.jobs)} jobs"]
    if drawn < bars:
        parts.append(f"only the {drawn} longest are drawn")
    if without_row > 0:
        parts.append(f"{without_row} of {run.gpus} GPUs were never used in any run and have no row")
    return "; ".join(parts) + "."
