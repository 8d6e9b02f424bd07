"""Colours that hold on white and on near-black, and how names get into a chart without becoming markup."""

from __future__ import annotations

import html
from collections.abc import Iterable

POLICY_COLOURS = ("#3478b8", "#d0782a", "#2b9272", "#b9528a", "#7c66c4", "#85832c", "#c2493d", "#2f93a8")
"""One per policy, all with a contrast of at least 3:1 against both backgrounds; the ninth policy starts again."""

JOB_COLOURS = (
    *("#4f81ab", "#6c9a5b", "#a8794a", "#7d74ad", "#3f918a", "#a3667f"),
    *("#85853f", "#6d7f95", "#5b6fae", "#9a6452", "#4d8a66", "#8f6aa0"),
)
"""For neighbouring bars in a Gantt chart: a job has the colour of its place in the workload, whichever the run."""

FAILED_COLOUR = "#c2493d"

MOST_IN_LEGEND = 33


def policy_colours(policies: Iterable[str]) -> dict[str, str]:
    """Policy -> its colour in every chart and table of a report."""
    return {policy: POLICY_COLOURS[i % len(POLICY_COLOURS)] for i, policy in enumerate(policies)}


def short_name(name: str, most: int = MOST_IN_LEGEND) -> str:
    """A name that leaves room for the chart beside it: the middle of a long one is left out."""
    keep = (most - 1) // 2
    return name if len(name) <= most else f"{name[:keep]}…{name[-keep:]}"


def plotly_text(text: str) -> str:
    """Plotly reads a little HTML in labels (links among it); this makes any string show as itself."""
    return html.escape(text, quote=False)
