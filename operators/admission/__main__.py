"""`python -m operators.admission`: the webhook that lets pods use the short resource name."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from emulator_runtime.domain.errors import InputError
from emulator_runtime.node.inventory import is_resource_name
from emulator_runtime.node.settings import run_daemon
from operators.admission.server import Webhook, application
from operators.admission.settings import Settings


def main(argv: list[str]) -> int:
    return run_daemon(argv, "operators.admission", "Rewrites the short resource name.", Settings, _run)


def _run(settings: Settings) -> None:
    if not is_resource_name(settings.resource):
        problem = f"{settings.resource!r} is no name of an extended resource, such as emugpu.dev/emuGPU"
        raise InputError(settings.variable("resource"), problem)
    app = application(settings.alias, settings.resource)
    webhook = Webhook(app, Path(settings.certificates), settings.port)
    asyncio.run(webhook.serve())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
