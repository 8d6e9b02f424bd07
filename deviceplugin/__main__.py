"""Starts the device plugin: `python -m deviceplugin`, configured by environment variables."""

from __future__ import annotations

import logging
import sys

from deviceplugin.settings import Settings
from emulator_runtime.node.settings import run_daemon
from emulator_runtime.timing.host import shorten_slice


def main(argv: list[str]) -> int:
    return run_daemon(argv, "deviceplugin", "Offers a node's emulated GPUs to the kubelet.", Settings, _run)


def _run(settings: Settings) -> None:
    logging.basicConfig(level=logging.INFO, format="deviceplugin: %(message)s", stream=sys.stderr)
    from deviceplugin.daemon import Daemon  # imports gRPC, which an error in the settings needn't wait for

    shorten_slice()  # the kubelet delays the pod's start until Allocate returns
    Daemon(settings).run()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
