"""Adds the functions that installed frameworks want from NVIDIA's libraries to emulator_runtime/cuda/symbols.

Run it when a new release of a framework wants functions that no list has (`emugpu cuda scan` names them):

    . .venv/bin/activate
    python tools/derive_symbols.py VENV [VENV ...]
"""

from __future__ import annotations

import argparse
from pathlib import Path

from emulator_runtime.cuda.families import SYMBOLS, family_of_library
from emulator_runtime.cuda.scan import scan


def main() -> None:
    """Merges what was found into the lists; prints how many names each one got."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("venv", type=Path, nargs="+", help="a virtual environment, a folder or a file")
    for root in parser.parse_args().venv:
        for need in scan(root, {}).needs:
            family = family_of_library(need.library)
            if family is None:
                print(f"{need.library}: not emulated, wanted by {', '.join(need.files)}")
            elif need.function not in family.symbols:
                path = SYMBOLS / f"{family.name}.txt"
                path.write_text(
                    "".join(f"{name}\n" for name in sorted({*family.symbols, need.function})), encoding="ascii"
                )
                print(f"{path.name}: {need.function}")


if __name__ == "__main__":
    main()
