"""The life of the program: start, serve, stop. A signal only sets a flag; a second signal ends the program at once.

If the inventory changes, the pure function `reconcile` decides which resources to start, update and stop.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from deviceplugin.allocator import Allocator
from deviceplugin.delivery import CdiDelivery, Delivery, MountDelivery
from deviceplugin.inventory_file import InventoryFile
from deviceplugin.metrics import Metrics, NoMetrics
from deviceplugin.offer_book import OfferBook
from deviceplugin.plugin import POLL_S, ResourcePlugin, file_identity
from deviceplugin.resources.gpus import GpuOffer
from deviceplugin.resources.host_slots import HostSlotOffer
from deviceplugin.resources.offer import Offer
from deviceplugin.settings import Settings
from emulator_runtime.domain.errors import InputError
from emulator_runtime.domain.units import to_s
from emulator_runtime.ipc.channel import wait_readable
from emulator_runtime.node.grant_files import GrantFiles
from emulator_runtime.node.inventory import Inventory
from emulator_runtime.node.layout import NodeLayout
from emulator_runtime.timing.host import monotonic_ns, wall_ns

if TYPE_CHECKING:
    from deviceplugin.web import WebServer

STOP_S = 1.0
"""How long the servers of the resources may take to stop (host seconds)."""

_log = logging.getLogger("deviceplugin")


@dataclass(frozen=True, slots=True)
class Changes:
    """The actions that lead to another inventory. Stops come first, because a device may move to another resource."""

    stop: tuple[str, ...] = ()
    update: tuple[Offer, ...] = ()
    start: tuple[Offer, ...] = ()


def offers_of(inventory: Inventory, *, host: bool, nvidia_smi: bool) -> list[Offer]:
    """The resources that a node with this inventory offers. `host`: also host slots, if the node belongs to a pool."""
    gpus = [
        GpuOffer(inventory.node, resource, inventory.compat, nvidia_smi, inventory.cuda)
        for resource in inventory.resources
    ]
    return [*gpus, *([HostSlotOffer()] if host and inventory.in_use else [])]


def reconcile(wanted: Collection[Offer], running: Collection[str]) -> Changes:
    """The changes from the served resources to the wanted ones."""
    offers = {offer.name: offer for offer in wanted}
    return Changes(
        stop=tuple(sorted(set(running) - set(offers))),
        update=tuple(offer for name, offer in offers.items() if name in running),
        start=tuple(offer for name, offer in offers.items() if name not in running),
    )


class Daemon:
    """The device plugin of a node. `run` returns after a signal."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._layout = NodeLayout(Path(settings.node_dir))
        self._grants = GrantFiles(self._layout.grants_dir, wall_ns, _log.warning)
        self._metrics: Metrics = NoMetrics()
        self._inventory = InventoryFile(self._layout.inventory_file, self._inventory_problem)
        self._running: dict[str, tuple[OfferBook, ResourcePlugin]] = {}
        self._stopping = self._offered = False
        self._swept: object = None
        self._web: WebServer | None = None

    def run(self) -> None:
        """Serve until a signal. Raises InputError for an invalid setting."""
        try:
            self.start()
            self.serve()
        finally:
            self.stop()

    def start(self) -> None:
        self._layout.make()
        self._grants.sweep()
        self._delivery = self._make_delivery()
        self._allocator = Allocator(self._layout, self._grants, self._delivery)
        if self._settings.metrics_port:
            self._start_web(self._settings.metrics_port)
        self._woken, self._waker = socket.socketpair()
        self._waker.settimeout(0)  # set_wakeup_fd requires it
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)

    def serve(self) -> None:
        while not self._stopping:
            inventory = self._inventory.poll()
            if inventory is not None:
                settings = self._settings
                offers = offers_of(inventory, host=settings.host, nvidia_smi=settings.nvidia_smi)
                self._apply(reconcile(offers, self._running))
                self._offered = True
            self._sweep()
            self._wait()

    def stop(self) -> None:
        """Stop all servers at the same time, so that one slow stream doesn't delay the others."""
        self._stop_plugins(tuple(self._running))
        if self._web is not None:
            self._web.close()

    def _wait(self) -> None:
        """Wait for a signal, a probe, or the next check of the files."""
        web = [] if self._web is None else [self._web]
        waiting: list[socket.socket | WebServer] = [self._woken, *web]
        if wait_readable(waiting, POLL_S):
            for server in web:
                server.answer()

    def _apply(self, changes: Changes) -> None:
        self._stop_plugins(changes.stop)
        for offer in changes.update:
            self._running[offer.name][0].update(offer)
        for offer in changes.start:
            book = OfferBook(offer)
            plugin = ResourcePlugin(book, self._allocator, self._metrics, Path(self._settings.kubelet_dir))
            plugin.start()
            self._running[offer.name] = book, plugin  # after `start`: all entries must be live threads
        for offer in changes.update + changes.start:
            self._metrics.devices(offer.name, *offer.device_counts)

    def _stop_plugins(self, names: tuple[str, ...]) -> None:
        plugins = [self._running.pop(name)[1] for name in names]
        for plugin in plugins:
            plugin.stop()
        deadline_ns = monotonic_ns() + round(STOP_S * 1e9)
        for plugin in plugins:
            plugin.join(max(0.0, to_s(deadline_ns - monotonic_ns())))
            self._metrics.forget(plugin.resource)

    def _make_delivery(self) -> Delivery:
        if not self._settings.cdi_dir:
            return MountDelivery()
        directory = Path(self._settings.cdi_dir)
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            problem = f"can't make the directory {directory}: {error.strerror}"
            raise InputError("EMUGPU_PLUGIN_CDI_DIR", problem) from error
        return CdiDelivery(directory)

    def _start_web(self, port: int) -> None:
        from deviceplugin.web import PrometheusMetrics, WebServer  # 5 MB, which a plugin without metrics doesn't need

        self._metrics = metrics = PrometheusMetrics()
        self._web = WebServer(port, metrics, self._healthy, self._ready)

    def _sweep(self) -> None:
        """Remove what belonged to grants that the manager has removed; only if the directory has changed."""
        identity = file_identity(self._layout.grants_dir)
        if identity != self._swept:
            self._swept = identity
            self._delivery.sweep(lambda grant_id: self._grants.path(grant_id).is_dir())

    def _healthy(self) -> bool:
        """Whether all threads live: a resource without its thread would never be registered again."""
        return all(plugin.is_alive() for _, plugin in list(self._running.values()))

    def _ready(self) -> bool:
        return self._offered and all(plugin.registered for _, plugin in list(self._running.values()))

    def _inventory_problem(self, problem: str) -> None:
        self._metrics.error("inventory")
        _log.warning("%s", problem)

    def _on_signal(self, _number: int, _frame: object) -> None:
        if self._stopping:
            os._exit(1)
        self._stopping = True
