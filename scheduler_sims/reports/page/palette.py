"""Colours with sufficient contrast on white and on near-black, and the escaping of names in charts."""

from __future__ import annotations

import html
from collections.abc import Iterable

POLICY_COLOURS = ("#3478b8", "#d0782a", "#2b9272", "#b9528a", "#7c66c4", "#85832c", "#c2493d", "#2f93a8")
"""One for each policy, all with a contrast of at least 3:1 against both backgrounds. The ninth policy gets the first again."""

JOB_COLOURS = (
    *("#4f81ab", "#6c9a5b", "#a8794a", "#7d74ad", "#3f918a", "#a3667f"),
    *("#85853f", "#6d7f95", "#5b6fae", "#9a6452", "#4d8a66", "#8f6aa0"),
)
"""For adjacent bars in a Gantt chart. A job's colour depends on its position in the workload, so it is the same in all runs."""

FAILED_COLOUR = "#c2493d"

MOST_IN_LEGEND = 33


def policy_colours(policies: Iterable[str]) -> dict[str, str]:
    """The colour of each policy in all charts and tables of a report."""
    return {policy: POLICY_COLOURS[i % len(POLICY_COLOURS)] for i, policy in enumerate(policies)}


def short_name(name: str, most: int = MOST_IN_LEGEND) -> str:
    """A name of at most `most` characters, so that the chart has enough room; a long one is shortened in the middle."""
    keep = (most - 1) // 2
    return name if len(name) <= most else f"{name[:keep]}…{name[-keep:]}"


def plotly_text(text: str) -> str:
    """Escape a text for plotly, which interprets some HTML (such as links) in labels."""
    return html.escape(text, quote=False)
