"""The policies' names and options for GET /policies, as data: the image of the API has no policies and no NumPy.

`python charts/generate.py` writes policies.json from the policies; `make check` verifies that it is current.
"""

from __future__ import annotations

import json
from importlib.resources import files

from operators.api.replies.bodies import Policy


def bundled_policies() -> list[Policy]:
    """The policies in the order of `emugpu policies`."""
    text = (files("operators.api.replies") / "policies.json").read_text(encoding="utf-8")
    return [Policy(**entry) for entry in json.loads(text)]
