"""Starts the device plugin: `python -m deviceplugin`, configured by environment variables."""

from __future__ import annotations

import logging
import os
import sys

from deviceplugin.settings import Settings
from emulator_runtime.domain.errors import EmuGpuError
from emulator_runtime.timing.host import shorten_slice


def main(argv: list[str]) -> int:
    if argv in (["-h"], ["--help"]):
        print(
            f"usage: python -m deviceplugin\n\nOffers a node's emulated GPUs to the kubelet. Settings:\n{Settings.help()}"
        )
        return 0
    if argv:
        print("deviceplugin: takes no arguments; see --help", file=sys.stderr)
        return 2
    logging.basicConfig(level=logging.INFO, format="deviceplugin: %(message)s", stream=sys.stderr)
    try:
        settings = Settings.from_env(os.environ)
        from deviceplugin.daemon import Daemon  # imports gRPC, which an error in the settings needn't wait for

        shorten_slice()  # the kubelet delays the pod's start until Allocate returns
        Daemon(settings).run()
    except EmuGpuError as error:
        print(f"deviceplugin: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
