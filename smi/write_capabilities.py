"""Writes compute_capabilities.json, which the Go program embeds, from the library's catalogue.

python smi/write_capabilities.py
"""

from __future__ import annotations

import json
from pathlib import Path

from emulator_runtime.profiles.catalogue import bundled_catalogue

TABLE = Path(__file__).with_name("compute_capabilities.json")


def content() -> str:
    """The table: compute capability by name of GPU type, each in every spelling that the catalogue knows."""
    catalogue = bundled_catalogue()
    table = {alias: catalogue.specs[name].compute_capability for alias, name in sorted(catalogue.aliases.items())}
    return json.dumps(table, indent=2) + "\n"


if __name__ == "__main__":
    TABLE.write_text(content(), encoding="utf-8")
