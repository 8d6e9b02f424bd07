"""`python -m operators.pools` runs the controller of EmuGPUPools."""

from __future__ import annotations

import asyncio
import signal
import sys

from emulator_runtime.node.settings import run_daemon
from emulator_runtime.timing.host import wall_ns
from operators.controllers.status_server import loop_alive, status_server
from operators.kube.client import KubeApi
from operators.pools.controller import Controller, PoolMetrics
from operators.pools.settings import Settings


def main(argv: list[str]) -> int:
    return run_daemon(argv, "operators.pools", "Gives nodes the emulated GPUs of the EmuGPUPools.", Settings, _run)


def _run(settings: Settings) -> None:
    asyncio.run(_serve(settings))


async def _serve(settings: Settings) -> None:
    """start, serve, stop. The first signal ends it at once: a reconciliation may be interrupted anywhere."""
    port = settings.metrics_port
    api, metrics, loop = KubeApi(), PoolMetrics(), asyncio.get_running_loop()
    controller = Controller(api, metrics, wall_ns)
    healthy = loop_alive(loop)
    server = status_server(port, metrics.registry, healthy=healthy, ready=lambda: controller.problem) if port else None
    if server is not None:
        server.start()
    running = asyncio.create_task(controller.run())
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, running.cancel)
    try:
        await running
    except asyncio.CancelledError:
        pass
    finally:
        if server is not None:
            server.close()
        await api.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
