"""Prints what the image installs: the extras of the programs that run in it, as pyproject.toml has them."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

EXTRAS = ("node", "operator")


def requirements(pyproject: Path) -> list[str]:
    """Requirement lines, sorted, each once."""
    extras = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    return sorted({line for name in EXTRAS for line in extras[name]})


if __name__ == "__main__":
    print(*requirements(Path(sys.argv[1])), sep="\n")
