"""YAML as the chart renders it, read by the parser in C: the one in Python takes ten times as long for a whole chart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml


def documents(text: str) -> list[Any]:
    """The documents of a text, without empty ones."""
    return [document for document in yaml.load_all(text, Loader=yaml.CSafeLoader) if document]


def document_of(path: Path) -> Any:
    """The only document of a file."""
    (found,) = documents(path.read_text(encoding="utf-8"))
    return found
