"""The additional parts of the daemon on a cluster's node: the node directory, Kubernetes, Redis and metrics.

Each part exists only if its setting asks for it, and only then imports its libraries. The manager's decisions don't depend
on them: inventories and the kubelet's lists go in, events come out.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from emulator_runtime.domain.errors import EmuGpuError
from emulator_runtime.domain.units import NS_PER_S
from emulator_runtime.ipc.poller import Poller
from emulator_runtime.node.grant_files import GrantFiles
from emulator_runtime.node.inventory import Inventory
from emulator_runtime.node.layout import NodeLayout
from emulator_runtime.timing.host import monotonic_ns, wall_ns
from sharing_manager.core.manager import Manager
from sharing_manager.devices.host_shares import HostShares
from sharing_manager.devices.inventories import of_devices, publish, published, read_inventory, shared
from sharing_manager.grants.identity import AllocationLister, Identifier, PodAllocation
from sharing_manager.kubernetes.pod_events import event_reporter
from sharing_manager.persistence.event_log import ManagerEvent, SqliteEventLog
from sharing_manager.persistence.progress import ProgressStore
from sharing_manager.settings import FROM_NODE, Settings
from sharing_manager.telemetry.model import NodeTelemetry
from sharing_manager.tools import copy_tools, empty

if TYPE_CHECKING:
    from sharing_manager.kubernetes.border import KubernetesBorder
    from sharing_manager.store import RedisStore
    from sharing_manager.telemetry.metrics import Figure
    from sharing_manager.telemetry.web import Web

EVENTS_KEPT = 100_000
"""Number of events that stay in the log without Redis."""
LOOK_NS = NS_PER_S
"""Interval at which an inventory file is checked for changes (host nanoseconds)."""
FAREWELL_NS = 2 * NS_PER_S
"""Time between publishing an empty inventory and removing all files. The device plugin reads the inventory twice a
second."""
MAX_SAID = 1000
_CLEAN = "emugpu has been removed from this node"
_NO_INVENTORY = "the inventory has not come yet"
_log = logging.getLogger("sharing_manager")


class Jobs(Protocol):
    """What this module needs of the job service."""

    @property
    def attached(self) -> frozenset[str]: ...
    def telemetry(self) -> NodeTelemetry: ...


class InCluster:
    """Call `prepare` before the manager is made, `start` after its service, then `due_ns` and `turn` in the daemon's
    loop, and `stop` at the end.

    `leave` is called when the node was cleaned up and is added to a pool again, because a new process must start afresh.
    """

    def __init__(self, settings: Settings, layout: NodeLayout, poller: Poller, leave: Callable[[], None]) -> None:
        self._settings, self._layout, self._poller, self._leave = settings, layout, poller, leave
        self.files = GrantFiles(layout.grants_dir, wall_ns, self._say)
        self.shares = HostShares()
        self._border: KubernetesBorder | None = None
        self._store: RedisStore | None = None
        self._web: Web | None = None
        self._manager: Manager | None = None
        self._said: set[str] = set()
        self._source = None if settings.inventory == FROM_NODE else Path(settings.inventory)
        self._seen: tuple[int, ...] = ()
        self._look_ns: int | None = None
        self._farewell_ns: int | None = None
        self._has_inventory = False
        self._waits_for = _NO_INVENTORY

    @property
    def identifier(self) -> Identifier | None:
        return self._border.identifier if self._border is not None else None

    @property
    def allocation_lister(self) -> AllocationLister | None:
        return self._border.allocation_lister if self._border is not None else None

    @property
    def progress(self) -> ProgressStore | None:
        return self._store.progress if self._store is not None else None

    def missing(self) -> str:
        """What every job needs and isn't known yet, or "". While the inventory is unknown, devices don't count as lost."""
        return "" if self._has_inventory else f"{_NO_INVENTORY} to this node"

    def prepare(self, log: SqliteEventLog) -> None:
        """Make the parts. Raises InputError, ClusterError."""
        settings = self._settings
        if settings.tools:
            copy_tools(Path(settings.tools), self._layout.tools_dir)
        if settings.flag("kubernetes") or settings.pod_resources:
            from sharing_manager.kubernetes import connect as connect_kubernetes

            self._border = connect_kubernetes(settings, self._poller)
        if settings.redis_url:
            from sharing_manager.store import connect as connect_redis

            self._store = connect_redis(settings, log, self._poller)
        self._log = log

    def first_inventory(self) -> Inventory | None:
        """The inventory to use until a newer one arrives. Raises InputError for an invalid file."""
        if self._source is None:
            return published(self._layout.inventory_file, self._settings.node, self._say)
        self._seen = _version(self._source)
        return shared(self._read(self._source), self._settings.sharing_config)

    def start(self, manager: Manager, jobs: Jobs, inventory: Inventory | None) -> None:
        """Start the parts. `inventory` is the first one, which the manager has applied already."""
        self._manager, self._jobs = manager, jobs
        if inventory is not None:
            self._has_inventory = True
            self._settle(inventory)
        self._tidy(manager.pods.over(self.files.all()))
        if self._border is not None:
            if self._border.pod_events is not None:
                manager.pods.on_event(event_reporter(self._border.pod_events))
            on_inventory = self._on_inventory if self._source is None else None
            in_use = inventory is not None and inventory.in_use
            self._border.start(on_inventory, self._on_allocations, self.shares, in_use=in_use)
        if self.identifier is None:
            self._say("pods are not identified (EMUGPU_MANAGER_KUBERNETES is 0): whoever has a token may use it")
        else:
            for grant in manager.grants():
                if grant.pod is not None:
                    self.identifier.remember(grant.pod)
        if self._store is not None:
            self._store.start()
        if self._settings.port:
            from sharing_manager.telemetry.web import Web

            self._web = Web(self._settings.port, self._poller, self._telemetry, self._figures, lambda: self._waits_for)
            self._web.start()
        if self._source is not None:
            self._look_ns = monotonic_ns() + LOOK_NS

    def published(self, event: ManagerEvent) -> None:
        """An event was written to the log."""
        if self._store is not None:
            self._store.notify()
        elif event.sequence % 1000 == 0:
            self._log.forget_events(EVENTS_KEPT)

    def stop(self) -> None:
        for part in (self._web, self._border, self._store):
            if part is not None:
                part.stop()

    # --- time -------------------------------------------------------------------------------------------------------

    def due_ns(self) -> int | None:
        """When `turn` should be called next (host time)."""
        return min((due for due in (self._look_ns, self._farewell_ns) if due is not None), default=None)

    def turn(self) -> None:
        now_ns = monotonic_ns()
        if self._look_ns is not None and now_ns >= self._look_ns:
            self._look_ns = now_ns + LOOK_NS
            self._look()
        if self._farewell_ns is not None and now_ns >= self._farewell_ns:
            self._farewell_ns = None
            self._poller.stop_listening()
            with self._told():
                empty(self._layout.root)

    def _look(self) -> None:
        """Apply the inventory file if it has changed."""
        assert self._source is not None
        version = _version(self._source)
        if version != self._seen:
            self._seen = version
            with self._told():
                self._on_inventory(self._read(self._source))

    # --- incoming data ----------------------------------------------------------------------------------------------

    def _read(self, path: Path) -> Inventory:
        inventory = read_inventory(path, self._settings.node)
        return inventory if isinstance(inventory, Inventory) else of_devices(inventory, self._settings.node)

    def _on_inventory(self, inventory: Inventory) -> None:
        """Apply a new inventory. If it is invalid, log that and keep the last valid one."""
        assert self._manager is not None
        with self._told():
            inventory = shared(inventory, self._settings.sharing_config)
            self._manager.apply_inventory(inventory)
            self._has_inventory = True
            self._settle(inventory)

    def _settle(self, inventory: Inventory) -> None:
        """The manager has applied the inventory: publish it, and start or cancel a clean-up."""
        assert self._manager is not None
        leaving = inventory.cleanup
        if self._waits_for == _CLEAN and not inventory.in_use:
            return  # a Node that is in no pool needs nothing
        if self._waits_for == _CLEAN and self._farewell_ns is None:
            self._leave()
            return
        self._farewell_ns = None  # the Node was added to a pool again before anything was removed
        publish(self._layout.inventory_file, inventory)
        self._waits_for = _CLEAN if leaving else ""
        if leaving:
            self._manager.pods.end_all("emugpu is being removed from this node")
            self._farewell_ns = monotonic_ns() + FAREWELL_NS

    def _on_allocations(self, allocations: list[PodAllocation]) -> None:
        assert self._manager is not None
        findings = self._manager.pods.reconcile(allocations, self.files.all(), self._jobs.attached)
        self._tidy(findings.gone | findings.stale)

    def _tidy(self, digests: Iterable[str]) -> None:
        for digest in digests:
            self.files.remove(digest[:32])

    # --- outgoing data ----------------------------------------------------------------------------------------------

    def _telemetry(self) -> NodeTelemetry:
        return self._jobs.telemetry()

    def _figures(self) -> list[Figure]:
        from sharing_manager.telemetry.metrics import border_figures, store_figures

        figures = border_figures(self._border.status()) if self._border is not None else []
        return figures + (store_figures(self._store.status()) if self._store is not None else [])

    def _say(self, line: str) -> None:
        """Log a line once. The kubelet's list comes every 5 seconds, and would repeat the same complaints."""
        if line not in self._said and len(self._said) < MAX_SAID:
            self._said.add(line)
            _log.warning(line)

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        """Log an error in external input, and continue."""
        try:
            yield
        except EmuGpuError as error:
            _log.error("%s; what was in force before stays", error)


def _version(path: Path) -> tuple[int, ...]:
    """A value that changes when the file does."""
    try:
        status = path.stat()
    except OSError:
        return ()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
