"""Where a local cluster keeps its sockets, logs and checkpoints: a directory named by the process that it belongs to.

In /tmp whatever TMPDIR says, because the path of a Unix socket has 107 bytes (unix(7)).
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

_ROOT = Path("/tmp")
_PREFIX = "emugpu-run-"


def new_run_directory() -> Path:
    """A new directory; those of our own runs that were killed before they could clean up are removed."""
    for left in _ROOT.glob(f"{_PREFIX}*"):
        owner = left.name.removeprefix(_PREFIX).split("-")[0]
        if owner.isdigit() and not Path(f"/proc/{owner}").exists() and left.stat().st_uid == os.getuid():
            remove_run_directory(left)
    directory = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=_ROOT))
    (directory / "checkpoints").mkdir()
    return directory


def remove_run_directory(directory: Path) -> None:
    """Remove it with all that is in it; what has gone already is no matter."""
    shutil.rmtree(directory, ignore_errors=True)
