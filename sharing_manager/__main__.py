"""Starts a sharing manager: `python -m sharing_manager`, configured by environment variables."""

from __future__ import annotations

import sqlite3
import sys
from pathlib import Path

from emulator_runtime.domain.errors import ClusterError
from emulator_runtime.node.settings import run_daemon
from sharing_manager.daemon import Daemon
from sharing_manager.settings import Settings

_FIXES = {
    "SQLITE_FULL": "make room on its disk and start again",
    "SQLITE_IOERR": "its disk fails, is full or is gone: look at the node's kernel log",
    "SQLITE_READONLY": "give this process write access to the file and its directory",
    "SQLITE_PERM": "give this process write access to the file and its directory",
    "SQLITE_CANTOPEN": "give this process write access to the file and its directory",
    "SQLITE_BUSY": "another program has it open: end that",
    "SQLITE_LOCKED": "another program has it open: end that",
    "SQLITE_CORRUPT": "it is damaged: move it away to start afresh",
    "SQLITE_NOTADB": "it is damaged: move it away to start afresh",
}
_OTHER_FIX = "start again; if it says so again, move the file away to start afresh"


def main(argv: list[str]) -> int:
    return run_daemon(argv, "sharing_manager", "Owns the emulated GPUs of one node.", Settings, _run)


def _run(settings: Settings) -> None:
    """Run the daemon until it ends. Raises EmuGpuError."""
    if settings.layout is not None:
        _log_to_stderr()
    try:
        Daemon(settings).run()
    # all promises made so far are in the log; without a log the manager can't keep new ones, so it ends
    except sqlite3.Error as error:
        raise log_error(error, settings.state_file) from error


def log_error(error: sqlite3.Error, path: Path) -> ClusterError:
    """Translate an error of SQLite into one that says how to repair the event log (result codes:
    sqlite.org/rescode.html)."""
    code = getattr(error, "sqlite_errorname", "")
    fix = next((fix for prefix, fix in _FIXES.items() if code.startswith(prefix)), _OTHER_FIX)
    return ClusterError(f"{path}: the event log can't be used: {error}; {fix}")


def _log_to_stderr() -> None:
    """Log to stderr, where Kubernetes collects a container's log. (A local cluster's manager prints only its final error.)"""
    import logging

    logging.basicConfig(level=logging.INFO, format="sharing_manager: %(message)s", stream=sys.stderr)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
