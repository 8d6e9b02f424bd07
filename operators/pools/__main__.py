"""`python -m operators.pools` runs the controller, `python -m operators.pools cleanup` removes all that it wrote."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from emulator_runtime.domain.errors import EmuGpuError, InputError
from emulator_runtime.timing.host import wall_ns
from operators.experiments.controller.uninstall import leave
from operators.kube.client import KubeApi
from operators.kube.status_server import loop_alive, status_server
from operators.pools.cleanup import NodePods, cleanup
from operators.pools.controller import Controller
from operators.pools.metrics import PoolMetrics
from operators.pools.settings import Settings

_USAGE = """usage: python -m operators.pools [cleanup]

Gives nodes the emulated GPUs of the EmuGPUPools; with cleanup, removes experiments' runners, pools, labels and annotations,
and exits.
Settings:
"""


def main(argv: list[str]) -> int:
    if argv in (["-h"], ["--help"]):
        print(_USAGE + Settings.help())
        return 0
    if argv not in ([], ["cleanup"]):
        print("pools: takes cleanup or nothing; see --help", file=sys.stderr)
        return 2
    try:
        settings = Settings.from_env(os.environ)
        asyncio.run(_clean(settings) if argv else _serve(settings))
    except EmuGpuError as error:
        print(f"pools: {error}", file=sys.stderr)
        return 2
    return 0


async def _serve(settings: Settings) -> None:
    """start, serve, stop. The first signal ends it at once: a reconciliation may be interrupted anywhere."""
    port = settings.whole("metrics_port", least=0, most=65535)
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


async def _clean(settings: Settings) -> None:
    name, _, value = settings.node_pods.partition("=")
    if not name or not value:
        raise InputError(settings.variable("node_pods"), f"must be label=value, got {settings.node_pods!r}")
    patience_s = settings.whole("cleanup_s", least=0, most=600)
    api = KubeApi()

    def say(text: str) -> None:
        print(text, flush=True)

    try:
        await leave(api, settings.namespace, say)  # before the pools: a run would only fail without its devices
        await cleanup(api, NodePods(settings.namespace, {name: value}, patience_s), say)
    finally:
        await api.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
