"""Modules and guides that docstrings and comments name exist: a rename leaves such names behind."""

from __future__ import annotations

import re
import subprocess
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NAMED = re.compile(r"(?<![\w/.*{}$-])(?:(?:[\w.-]+/)*[\w-]+\.py\b(?!:)|docs/[\w-]+\.md)")
"""Module names without a placeholder; FILE.py:CLASS is a policy of a user."""


def test_files_that_docstrings_and_comments_name_exist() -> None:
    listing = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listing.returncode or not listing.stdout:
        pytest.skip("this is not a git checkout")
    paths = [Path(line) for line in listing.stdout.splitlines() if (ROOT / line).exists()]
    known = {"/".join(path.parts[start:]) for path in paths for start in range(len(path.parts))}
    named = {(str(path), name) for path in paths if path.suffix == ".py" for name in names_in(ROOT / path)}
    assert len(named) > 50
    assert sorted((path, name) for path, name in named if name not in known) == []


def names_in(path: Path) -> set[str]:
    with path.open(encoding="utf-8") as file:
        texts = [
            token.string
            for token in tokenize.generate_tokens(file.readline)
            if token.type == tokenize.COMMENT or (token.type == tokenize.STRING and token.string.startswith('"""'))
        ]
    return {name for text in texts for name in NAMED.findall(text)}
