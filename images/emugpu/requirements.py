"""Prints what the image installs: the extras of the programs that run in it, as pyproject.toml has them.

With names after the file: only these packages, whichever extra has them.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

EXTRAS = ("node", "operator")


def requirements(pyproject: Path, names: Sequence[str] = ()) -> list[str]:
    """Requirement lines, sorted, each once. Raises KeyError for a name that no extra has."""
    extras = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    if not names:
        return sorted({line for name in EXTRAS for line in extras[name]})
    known = {re.split("[^A-Za-z0-9_.-]", line)[0]: line for lines in extras.values() for line in lines}
    return sorted(known[name] for name in names)


if __name__ == "__main__":
    print(*requirements(Path(sys.argv[1]), sys.argv[2:]), sep="\n")
