"""The policies' names and options for GET /policies, as data: the image of the API has no policies and no NumPy.

policies.json is what `emugpu policies --json` prints; a test tells when it is out of date.
"""

from __future__ import annotations

import json
from importlib.resources import files

from operators.api.replies.bodies import Policy


def bundled_policies() -> list[Policy]:
    """In the order of the table of policies."""
    text = (files("operators.api.replies") / "policies.json").read_text(encoding="utf-8")
    return [Policy(**entry) for entry in json.loads(text)]
