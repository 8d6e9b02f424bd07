"""`python -m operators.admission`: the webhook that lets pods use the short resource name."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from emulator_runtime.domain.errors import EmuGpuError, InputError
from emulator_runtime.node.inventory import is_resource_name
from operators.admission.server import Webhook, application
from operators.admission.settings import Settings


def main(argv: list[str]) -> int:
    if argv in (["-h"], ["--help"]):
        print(f"usage: python -m operators.admission\n\nRewrites the short resource name. Settings:\n{Settings.help()}")
        return 0
    if argv:
        print("admission: takes no arguments; see --help", file=sys.stderr)
        return 2
    try:
        settings = Settings.from_env(os.environ)
        if not is_resource_name(settings.resource):
            problem = f"{settings.resource!r} is no name of an extended resource, such as emugpu.dev/emuGPU"
            raise InputError(settings.variable("resource"), problem)
        app = application(settings.alias, settings.resource)
        webhook = Webhook(app, Path(settings.certificates), settings.whole("port", least=1, most=65535))
    except EmuGpuError as error:
        print(f"admission: {error}", file=sys.stderr)
        return 2
    asyncio.run(webhook.serve())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
