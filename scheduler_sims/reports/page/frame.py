"""The frame of a report: a single file with plotly.js and all data, which works offline from a file:// address.

The page's Content-Security-Policy allows only the page's two scripts (by hash) and no requests, so neither a name in the data nor
a library can make the browser load anything.
"""

from __future__ import annotations

import base64
import hashlib
import json
from html import escape
from importlib.resources import files
from typing import Any

NO_WAY_OUT = "base-uri 'none'; form-action 'none'"


def chart_section(name: str, heading: str, text: str) -> str:
    """A section with the figure `name` of the data's charts."""
    return (
        f"<section><h2>{escape(heading)}</h2><p class='muted'>{escape(text)}</p>"
        f"<div class='chart' id='{name}' role='img' aria-label='{escape(heading)}'></div></section>"
    )


def gantt_section(heading: str, text: str, choices: tuple[str, str] | None = None) -> str:
    """A section with the data's Gantt charts; `choices` names the two lists from which one is chosen, None hides them."""
    hidden = "" if choices else " style='display: none'"
    one, two = choices or ("", "")
    return (
        f"<section><h2>{escape(heading)}</h2><p class='muted'>{escape(text)}</p>"
        f"<div class='choices'{hidden}><label>{escape(one)}<select id='gantt-policy'></select></label>"
        f"<label>{escape(two)}<select id='gantt-cluster'></select></label></div>"
        "<p class='muted' id='gantt-caption'></p><div class='chart' id='gantt'></div></section>"
    )


def json_in_script(data: Any) -> str:
    """JSON that can't end its script element: `<` is escaped."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def document(title: str, body: str, data: str) -> str:
    """The page. `body`: its sections; `data`: JSON in a script (`json_in_script`) with `charts` and `gantt`."""
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
