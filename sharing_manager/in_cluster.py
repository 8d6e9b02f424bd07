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

from emulator_runtime.cuda.container import container_settings
from emulator_runtime.domain.errors import EmuGpuError
from emulator_runtime.domain.units import NS_PER_S
from emulator_runtime.ipc.poller import Poller
from emulator_runtime.node.allocation import Allocation
from emulator_runtime.node.device_files import device_files
from emulator_runtime.node.grant_files import GrantFiles
from emulator_runtime.node.inventory import Inventory
from emulator_runtime.node.layout import NodeLayout
from emulator_runtime.timing.host import monotonic_ns, wall_ns
from sharing_manager.core.manager import Manager
from sharing_manager.devices.host_shares import HostShares
from sharing_manager.devices.inventories import of_devices, publish, published, read_inventory, shared
from sharing_manager.grants.grant import Grant
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
CHECK_NS = NS_PER_S
"""Interval at which an inventory file is checked for changes (host nanoseconds)."""
REMOVAL_DELAY_NS = 2 * NS_PER_S
"""Time between publishing an empty inventory and removing all files. The device plugin reads the inventory twice a
second."""
MAX_LOGGED_LINES = 1000
_CLEAN = "emugpu has been removed from this node"
_NO_INVENTORY = "the inventory isn't known yet"
_log = logging.getLogger("sharing_manager")


class Jobs(Protocol):
    """What this module needs of the job service."""

    @property
    def attached(self) -> frozenset[str]: ...
    def telemetry(self) -> NodeTelemetry: ...


class InCluster:
    """Call `first_inventory`, make the log and the manager, then call `prepare`, and `start` after the manager's service; then
    `due_ns` and `turn` in the daemon's loop, and `stop` at the end.

    `restart` is called when the node was cleaned up and is added to a pool again: then a new process must start.
    """

    def __init__(self, settings: Settings, layout: NodeLayout, poller: Poller, restart: Callable[[], None]) -> None:
        self._settings, self._layout, self._poller, self._restart = settings, layout, poller, restart
        self.files = GrantFiles(layout.grants_dir, wall_ns, self._log_once)
        self.shares = HostShares()
        self._border: KubernetesBorder | None = None
        self._store: RedisStore | None = None
        self._web: Web | None = None
        self._manager: Manager | None = None
        self._logged_lines: set[str] = set()
        self._source = None if settings.inventory == FROM_NODE else Path(settings.inventory)
        self._file_version: tuple[int, ...] = ()
        self._check_ns: int | None = None
        self._removal_ns: int | None = None
        self._has_inventory = False
        self._not_ready_reason = _NO_INVENTORY

    @property
    def identifier(self) -> Identifier | None:
        return self._border.identifier if self._border is not None else None

    @property
    def allocation_lister(self) -> AllocationLister | None:
        return self._border.allocation_lister if self._border is not None else None

    def allocation_of(self, pod_uid: str) -> Allocation | None:
        """What its scheduler gave a pod; None if it isn't known, or anybody may have written it."""
        return self.shares.allocation_of(pod_uid) if self._settings.placement else None

    @property
    def progress(self) -> ProgressStore | None:
        return self._store.progress if self._store is not None else None

    def not_ready(self) -> str:
        """Why no job can attach yet, "" if jobs can. While the inventory is unknown, devices don't count as lost."""
        return "" if self._has_inventory else f"{_NO_INVENTORY} on this node"

    def prepare(self, log: SqliteEventLog) -> None:
        """Make the parts. Raises InputError, ClusterError."""
        settings = self._settings
        if settings.tools:
            copy_tools(Path(settings.tools), self._layout.tools_dir)
        if settings.kubernetes or settings.pod_resources:
            from sharing_manager.kubernetes import connect as connect_kubernetes

            self._border = connect_kubernetes(settings, self._poller)
        if settings.redis_url:
            from sharing_manager.store import connect as connect_redis

            self._store = connect_redis(settings, log, self._poller)
        self._log = log

    def first_inventory(self) -> Inventory | None:
        """The inventory to use until a newer one arrives. Raises InputError for an invalid file."""
        if self._source is None:
            return published(self._layout.inventory_file, self._settings.node, self._log_once)
        self._file_version = _version(self._source)
        return shared(self._read(self._source), self._settings.sharing_config)

    def start(self, manager: Manager, jobs: Jobs, inventory: Inventory | None) -> None:
        """Start the parts. `inventory` is the first one, which the manager has applied already."""
        self._manager, self._jobs = manager, jobs
        manager.pods.on_moved(self._moved)
        manager.pods.on_devices = self._write_device_files
        if inventory is not None:
            self._has_inventory = True
            self._applied(inventory)
        self._remove_files(manager.pods.ended(self.files.all()))
        if self._border is not None:
            if self._border.pod_events is not None:
                manager.pods.on_event(event_reporter(self._border.pod_events))
            on_inventory = self._on_inventory if self._source is None else None
            in_use = inventory is not None and inventory.in_use
            self._border.start(on_inventory, self._on_allocations, self.shares, in_use=in_use)
        if self.identifier is None:
            self._log_once(
                "pods are not identified (EMUGPU_MANAGER_KUBERNETES is 0): any process with a token may use it"
            )
        else:
            for grant in manager.grants():
                if grant.pod is not None:
                    self.identifier.remember(grant.pod)
        if self._store is not None:
            self._store.start()
        if self._settings.metrics_port:
            from sharing_manager.telemetry.web import Web

            self._web = Web(
                self._settings.metrics_port,
                self._poller,
                self._telemetry,
                self._figures,
                lambda: self._not_ready_reason,
            )
            self._web.start()
        if self._source is not None:
            self._check_ns = monotonic_ns() + CHECK_NS

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
        return min((due for due in (self._check_ns, self._removal_ns) if due is not None), default=None)

    def turn(self) -> None:
        now_ns = monotonic_ns()
        if self._check_ns is not None and now_ns >= self._check_ns:
            self._check_ns = now_ns + CHECK_NS
            self._check_file()
        if self._removal_ns is not None and now_ns >= self._removal_ns:
            self._removal_ns = None
            self._poller.stop_listening()
            with self._logging_errors():
                empty(self._layout.root)

    def _check_file(self) -> None:
        """Apply the inventory file if it has changed."""
        assert self._source is not None
        version = _version(self._source)
        if version != self._file_version:
            self._file_version = version
            with self._logging_errors():
                self._on_inventory(self._read(self._source))

    # --- incoming data ----------------------------------------------------------------------------------------------

    def _read(self, path: Path) -> Inventory:
        inventory = read_inventory(path, self._settings.node)
        return inventory if isinstance(inventory, Inventory) else of_devices(inventory, self._settings.node)

    def _on_inventory(self, inventory: Inventory) -> None:
        """Apply a new inventory. If it is invalid, log that and keep the last valid one."""
        assert self._manager is not None
        with self._logging_errors():
            inventory = shared(inventory, self._settings.sharing_config)
            self._manager.apply_inventory(inventory)
            self._has_inventory = True
            self._applied(inventory)

    def _applied(self, inventory: Inventory) -> None:
        """The manager has applied the inventory: publish it, and start or cancel a clean-up."""
        assert self._manager is not None
        cleanup = inventory.cleanup
        if self._not_ready_reason == _CLEAN and not inventory.in_use:
            return  # a Node that is in no pool needs nothing
        if self._not_ready_reason == _CLEAN and self._removal_ns is None:
            self._restart()
            return
        self._removal_ns = None  # the Node was added to a pool again before anything was removed
        self._publish()
        self._not_ready_reason = _CLEAN if cleanup else ""
        if cleanup:
            self._manager.pods.end_all("emugpu is being removed from this node")
            self._removal_ns = monotonic_ns() + REMOVAL_DELAY_NS

    def _moved(self) -> None:
        with self._logging_errors():
            self._publish()

    def _publish(self) -> None:
        """Publish the manager's inventory, with the devices for which slots stand, to the device plugin."""
        assert self._manager is not None
        inventory = self._manager.inventory
        if inventory is not None:
            publish(self._layout.inventory_file, inventory.with_moved(self._manager.pods.moved))

    def _write_device_files(self, grant: Grant) -> None:
        """Show a container the devices that it has, which may not be those that the kubelet allocated. Without them, its job runs
        on, and looks up links of devices in vain."""
        assert self._manager is not None
        inventory = self._manager.inventory
        resources = inventory.with_moved(self._manager.pods.moved).resources if inventory is not None else ()
        resource = next((resource for resource in resources if resource.name == grant.resource), None)
        if inventory is None or resource is None or not grant.slots or not resource.by_id().keys() >= {*grant.slots}:
            return
        try:
            files = device_files(resource, self._settings.node, grant.slots)
            self.files.replace_device_files(grant.digest[:32], files)
            settings = container_settings(inventory.cuda, resource, grant.slots)
            self.files.replace_cuda_settings(grant.digest[:32], settings)
        except OSError as error:
            _log.error("%s: the device files of its container can't be written: %s", grant.name, error)

    def _on_allocations(self, allocations: list[PodAllocation]) -> None:
        assert self._manager is not None
        findings = self._manager.pods.reconcile(allocations, self.files.all(), self._jobs.attached)
        self._remove_files(findings.gone | findings.stale)

    def _remove_files(self, digests: Iterable[str]) -> None:
        for digest in digests:
            self.files.remove(digest[:32])

    # --- outgoing data ----------------------------------------------------------------------------------------------

    def _telemetry(self) -> NodeTelemetry:
        return self._jobs.telemetry()

    def _figures(self) -> list[Figure]:
        from sharing_manager.telemetry.metrics import border_figures, store_figures

        figures = border_figures(self._border.status()) if self._border is not None else []
        return figures + (store_figures(self._store.status()) if self._store is not None else [])

    def _log_once(self, line: str) -> None:
        """Log a line once. The kubelet's list comes every 5 seconds, and would repeat the same lines."""
        if line not in self._logged_lines and len(self._logged_lines) < MAX_LOGGED_LINES:
            self._logged_lines.add(line)
            _log.warning(line)

    @contextlib.contextmanager
    def _logging_errors(self) -> Iterator[None]:
        """Log an error in external input, and continue."""
        try:
            yield
        except EmuGpuError as error:
            _log.error("%s; the previous state stays in force", error)


def _version(path: Path) -> tuple[int, ...]:
    """A value that changes when the file does."""
    try:
        status = path.stat()
    except OSError:
        return ()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
