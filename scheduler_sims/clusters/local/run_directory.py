"""The directory of a local cluster's sockets, logs and checkpoints; its name contains the id of the process that owns it.

Always in /tmp, not in TMPDIR, because the path of a Unix socket has at most 107 bytes (unix(7)).
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

_ROOT = Path("/tmp")
_PREFIX = "emugpu-run-"


def new_run_directory() -> Path:
    """Create a directory. Directories of this user's killed runs are removed."""
    for old in _ROOT.glob(f"{_PREFIX}*"):
        owner = old.name.removeprefix(_PREFIX).split("-")[0]
        if owner.isdigit() and not Path(f"/proc/{owner}").exists() and old.stat().st_uid == os.getuid():
            remove_run_directory(old)
    directory = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=_ROOT))
    (directory / "checkpoints").mkdir()
    return directory


def remove_run_directory(directory: Path) -> None:
    """Remove the directory with its content; files that are gone already are ignored."""
    shutil.rmtree(directory, ignore_errors=True)
