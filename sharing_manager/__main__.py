"""Starts a sharing manager: `python -m sharing_manager`, configured by environment variables."""

from __future__ import annotations

import os
import sqlite3
import sys

from emulator_runtime.domain.errors import EmuGpuError
from sharing_manager.daemon import Daemon
from sharing_manager.settings import Settings


def main(argv: list[str]) -> int:
    if argv in (["-h"], ["--help"]):
        print(f"usage: python -m sharing_manager\n\nOwns the emulated GPUs of one node. Settings:\n{Settings.help()}")
        return 0
    if argv:
        print("sharing_manager: takes no arguments; see --help", file=sys.stderr)
        return 2
    try:
        settings = Settings.from_env(os.environ)
        if settings.layout is not None:
            _log_to_stderr()
        Daemon(settings).run()
    except EmuGpuError as error:
        print(f"sharing_manager: {error}", file=sys.stderr)
        return 2
    except sqlite3.Error as error:  # what was promised so far is in the log; going on without it would be a lie
        print(f"sharing_manager: can't write the event log: {error}; is the disk full?", file=sys.stderr)
        return 2
    return 0


def _log_to_stderr() -> None:
    """Where a cluster collects what daemons say. (A local cluster's manager says nothing before its last line.)"""
    import logging

    logging.basicConfig(level=logging.INFO, format="sharing_manager: %(message)s", stream=sys.stderr)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
