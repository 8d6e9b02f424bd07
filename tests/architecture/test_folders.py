"""Folders stay small enough to be read: more files belong into rooms."""

from __future__ import annotations

import subprocess
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MOST = 15


def test_no_folder_has_more_files_than_a_reader_can_survey() -> None:
    listing = subprocess.run(["git", "ls-files", "*.py"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listing.returncode or not listing.stdout:
        pytest.skip("this is not a git checkout")
    folders = Counter(Path(name).parent for name in listing.stdout.splitlines() if not name.startswith("tests/"))
    assert {str(folder): files for folder, files in folders.items() if files > MOST} == {}
