"""Traces of a few rows, written by each test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from scheduler_sims.traces import FORMATS
from scheduler_sims.traces.job import Entry, Source

Entries = Callable[..., list[Entry]]


@pytest.fixture
def entries(tmp_path: Path) -> Entries:
    """`entries(format, {file: text}, ...)`: what the format reads from these files; options are those of Source."""

    def read(name: str, texts: dict[str, str], **options: object) -> list[Entry]:
        paths = []
        for file, text in texts.items():
            paths.append(tmp_path / file)
            paths[-1].write_text(text)
        return list(FORMATS[name].read(Source(paths, **options)))  # type: ignore[arg-type]

    return read
