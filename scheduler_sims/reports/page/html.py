"""report.html: a single file with plotly.js and all data, which works offline from a file:// address.

The page's Content-Security-Policy allows only the page's two scripts (by hash) and no requests, so neither a job's name nor a
library can make the browser load anything.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from scheduler_sims.record import RunRecord
from scheduler_sims.reports.comparison import Comparison
from scheduler_sims.reports.files import write_atomically
from scheduler_sims.reports.page import page_text
from scheduler_sims.reports.page.charts import gpus_of_jobs, jct_cdf, predicted_against_observed, queue_lengths, split
from scheduler_sims.reports.page.gantt import drawn_share, gantt_figure, rows_of
from scheduler_sims.reports.page.palette import policy_colours

NO_WAY_OUT = "base-uri 'none'; form-action 'none'"

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
        sections.append(_chart_section("jct-cdf", "Job completion times", CDF_TEXT + how_drawn["jct-cdf"]))
        sections.append(page_text.quantile_section(comparison))
    if scatter := predicted_against_observed(runs, colours):
        charts["scatter"] = scatter
        sections.append(_chart_section("scatter", "Predicted and observed JCT of each job", SCATTER_TEXT))
    if runs:
        charts["queue"] = queue_lengths(runs, colours)
        sections.append(_chart_section("queue", "Queue length over time", QUEUE_TEXT + how_drawn["queue"]))
        if gpus := gpus_of_jobs(runs, colours):
            charts["gpus"] = gpus
            sections.append(_chart_section("gpus", "GPUs of each job over time", GPUS_TEXT))
        sections.append(_gantt_section())
    sections += [
        page_text.lag_section(comparison),
        page_text.failure_section(comparison),
        page_text.definitions_section(),
    ]
    data = {"charts": charts, "gantt": _gantts(runs)}
    return _document(page_text.title(comparison), "\n".join(filter(None, sections)), _json_in_script(data))


def write_gantt(path: Path, run: RunRecord, title: str, text: str) -> None:
    """Write a page with only the Gantt chart of one run. Raises InputError if the file can't be written."""
    rows = rows_of([run])
    figure = gantt_figure(run, rows, max(_ends(run), default=0.0))
    choice = {"name": run.cluster, "caption": _gantt_caption(run, rows), "figure": figure}
    body = f"<h1>{escape(title)}</h1><p class='muted'>{escape(text)}</p>{_gantt_section(choices=False)}"
    data = {"charts": {}, "gantt": [{"policy": run.policy, "runs": [choice]}]}
    write_atomically(path, _document(title, body, _json_in_script(data)))


def _gantts(runs: Sequence[RunRecord]) -> list[dict[str, Any]]:
    rows = rows_of(runs)
    longest_s = max((end for run in runs for end in _ends(run)), default=0.0)
    entries = []
    for policy, (predicted, observed) in split(runs).items():
        shown = [run for run in (predicted, *observed[:1]) if run is not None]
        choices = [
            {
                "name": "predicted" if run is predicted else f"observed ({run.cluster} #{run.repeat})",
                "caption": _gantt_caption(run, rows),
                "figure": gantt_figure(run, rows, longest_s),
            }
            for run in shown
        ]
        entries.append({"policy": policy, "runs": choices})
    return entries


def _ends(run: RunRecord) -> list[float]:
    return [*(job.finish_s for job in run.jobs), *(span.end_s for span in run.spans)]


def _gantt_caption(run: RunRecord, rows: Sequence[tuple[str, int | None]]) -> str:
    drawn, bars = drawn_share(run)
    without_row = run.gpus - sum(device is not None for _, device in rows)
    parts = [f"{run.policy}: {bars} spans of {len(run.jobs)} jobs"]
    if drawn < bars:
        parts.append(f"only the {drawn} longest are drawn")
    if without_row > 0:
        parts.append(f"{without_row} of {run.gpus} GPUs were never used in any run and have no row")
    return "; ".join(parts) + "."


def _chart_section(name: str, heading: str, text: str) -> str:
    return (
        f"<section><h2>{escape(heading)}</h2><p class='muted'>{escape(text)}</p>"
        f"<div class='chart' id='{name}' role='img' aria-label='{escape(heading)}'></div></section>"
    )


def _gantt_section(*, choices: bool = True) -> str:
    hidden = "" if choices else " style='display: none'"
    return (
        f"<section><h2>Who held which device when</h2><p class='muted'>{escape(GANTT_TEXT)}</p>"
        f"<div class='choices'{hidden}><label>policy<select id='gantt-policy'></select></label>"
        "<label>cluster<select id='gantt-cluster'></select></label></div>"
        "<p class='muted' id='gantt-caption'></p><div class='chart' id='gantt'></div></section>"
    )


def _json_in_script(data: Any) -> str:
    """JSON that can't end its script element: `<` is escaped."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _document(title: str, body: str, data: str) -> str:
    assets = files("scheduler_sims.reports.page") / "assets"
    style = (assets / "report.css").read_text(encoding="utf-8")
    script = (assets / "report.js").read_text(encoding="utf-8")
    # Plotly's own function for it takes most of a second to import.
    library = (files("plotly") / "package_data" / "plotly.min.js").read_text(encoding="utf-8")
    allowed = " ".join(_hash(text) for text in (library, script))
    policy = f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:; {NO_WAY_OUT}"
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>
{style}</style>
</head>
<body>
<main>
{body}
<noscript><p>The charts need JavaScript; the tables above have all figures.</p></noscript>
</main>
<script type="application/json" id="report-data">{data}</script>
<script id="plotly">{library}</script>
<script>{script}</script>
</body>
</html>
"""


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
