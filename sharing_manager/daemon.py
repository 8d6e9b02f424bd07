"""The life of the manager process: start, serve, drain, stop. A signal only sets a flag; a second signal ends the
process at once."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING

from emulator_runtime.domain.errors import ClusterError, InputError, UnknownNameError
from emulator_runtime.domain.units import NS_PER_S
from emulator_runtime.ipc.poller import Admit, Poller
from emulator_runtime.node import host_resources
from emulator_runtime.node.inventory import Inventory
from emulator_runtime.node.layout import NodeLayout
from emulator_runtime.sharing.modes import MODES
from emulator_runtime.timing.clocks import HostClock
from emulator_runtime.timing.host import boot_id, monotonic_ns, wall_ns
from emulator_runtime.timing.shared_clock import SharedClockFile
from sharing_manager.core.manager import Manager
from sharing_manager.devices.inventories import read_inventory, shared
from sharing_manager.devices.pool import DevicePool
from sharing_manager.persistence.event_log import ManagerEvent, SqliteEventLog
from sharing_manager.persistence.interval_table import IntervalFile, IntervalTables
from sharing_manager.service.admin_service import AdminService
from sharing_manager.service.attaching import Attaching
from sharing_manager.service.decision_time import DecisionTime, RunningDecisions, WarpDecisions
from sharing_manager.service.guard import Guard, Served
from sharing_manager.service.job_service import JobService
from sharing_manager.service.time_budgets import GuardCounts
from sharing_manager.settings import Settings

if TYPE_CHECKING:
    from sharing_manager.in_cluster import InCluster

FLUSH_S = 0.2
"""Interval at which progress is written to the event log (host seconds)."""
DRAIN_S = 0.5
"""Maximum time for sending outstanding answers after the daemon was asked to end (host seconds)."""


class Daemon:
    """One sharing manager. `run` returns after a signal, or when the parent process has ended."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._poller = Poller()
        self._cluster: InCluster | None = None
        self._guard: Guard | None = None
        self._stopping = self._signalled = False

    def run(self) -> None:
        try:
            self.start()
            self.serve()
            self.drain()
        finally:
            self.stop()

    def start(self) -> None:
        """Restore the grants and leases from before a restart, then open the sockets. Raises InputError or ClusterError."""
        settings = self._settings
        if settings.sharing not in MODES:
            raise UnknownNameError("EMUGPU_MANAGER_SHARING", "sharing mode", settings.sharing, MODES)
        if settings.layout is not None:
            self._start_in_cluster(settings.layout)
        else:
            pool = _local_pool(settings)
            _make_directory("EMUGPU_MANAGER_SOCKET_DIR", settings.socket_dir)
            _make_directory("EMUGPU_MANAGER_STATE_DIR", settings.state_dir)
            self._open_state(pool)
            jobs = JobService(self._manager)
            self._decide_for(jobs)
            self._open_sockets(jobs, admit=None)

    def _start_in_cluster(self, layout: NodeLayout) -> None:
        from sharing_manager.in_cluster import InCluster
        from sharing_manager.kubernetes.peers import PeerNames

        layout.make()
        pool = DevicePool()
        cluster = self._cluster = InCluster(self._settings, layout, self._poller, self._end)
        inventory = cluster.first_inventory()
        if inventory is not None:
            pool.apply_inventory(inventory)
        self._open_state(pool)
        cluster.prepare(self._log)
        names, counts = PeerNames(by_user=cluster.identifier is not None), GuardCounts()
        attaching = Attaching(
            self._manager,
            cluster.files,
            cluster.identifier,
            cluster.progress,
            allocation_lister=cluster.allocation_lister,
            not_ready=cluster.not_ready,
            check_peer=names.check,
        )
        attaching.allocation_of = cluster.allocation_of
        jobs = JobService(self._manager, attaching, counts, cluster.shares, self._settings.ranks_key)
        cluster.start(self._manager, jobs, inventory)
        self._decide_for(jobs)
        self._guard = Guard(jobs, names.name, counts=counts)
        self._open_sockets(self._guard, admit=self._guard.admit)

    def _open_state(self, pool: DevicePool) -> None:
        settings = self._settings
        self._lock = _lock_state(settings)
        self._log = SqliteEventLog(settings.state_file)
        epoch = f"{boot_id()} {settings.clock}"
        files = settings.lease_file, settings.piece_file, settings.half_served_file
        tables = IntervalTables(*(IntervalFile(file, epoch) for file in files))
        shared_clock = SharedClockFile.open(settings.clock) if settings.clock else None
        self._warp = shared_clock is not None and shared_clock.mode == "warp"
        # without a shared clock, the host's monotonic clock, which is the same for all processes
        self._clock = HostClock.of_host() if shared_clock is None else HostClock(shared_clock)
        self._manager = Manager(
            pool,
            self._log,
            self._clock,
            self._publish,
            tables=tables,
            wall=wall_ns,
            late_ns=lambda: round(NS_PER_S * max(1.0, self._clock.rate)),
        )
        self._admin = AdminService(self._manager, self._log)

    def _decide_for(self, jobs: JobService) -> None:
        self._decisions: DecisionTime
        if self._warp:
            self._decisions = self._admin.decisions = WarpDecisions(
                self._manager, jobs, self._admin.send_to_subscribers
            )
        else:
            self._decisions = RunningDecisions(self._manager, jobs, self._clock)

    def _open_sockets(self, jobs: Served, admit: Admit | None) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        self._watch_parent()
        path = self._settings.job_socket
        self._poller.listen(path, jobs.on_message, jobs.on_close, on_open=jobs.on_open, admit=admit)
        # The admin socket is opened last: once it exists, the daemon is ready for requests.
        self._poller.listen(self._settings.admin_socket, self._admin.on_message, self._admin.on_close, mode=0o600)

    def serve(self) -> None:
        """Answer requests. Progress is written at intervals: one write per request would double the time per answer."""
        flush_ns: int | None = None
        while not self._stopping:
            parts = [part for part in (self._cluster, self._guard, self._decisions) if part is not None]
            dues = [due for due in (flush_ns, *(part.due_ns() for part in parts)) if due is not None]
            self._poller.poll(max(0, min(dues) - monotonic_ns()) / NS_PER_S if dues else None)
            for part in parts:
                part.turn()
            if not self._manager.has_unlogged_progress:
                flush_ns = None
            elif flush_ns is None:
                flush_ns = monotonic_ns() + round(FLUSH_S * NS_PER_S)
            elif monotonic_ns() >= flush_ns:
                self._manager.flush_progress()
                flush_ns = None

    def drain(self) -> None:
        """Accept no new connections, answer the requests that have arrived, and write the remaining progress."""
        self._poller.stop_listening()
        for _ in range(10):
            if not self._poller.poll(DRAIN_S / 10):
                break
        self._manager.flush_progress()

    def stop(self) -> None:
        if self._cluster is not None:
            self._cluster.stop()
        self._poller.close()
        if hasattr(self, "_log"):
            self._log.close()

    def _publish(self, event: ManagerEvent) -> None:
        self._admin.publish(event)
        if self._cluster is not None:
            self._cluster.published(event)

    def _end(self) -> None:
        self._stopping = True

    def _on_signal(self, _number: int, _frame: object) -> None:
        if self._signalled:
            os._exit(1)
        self._signalled = self._stopping = True
        # wakes the event loop: a poll without a time-out continues to wait after a signal (PEP 475)
        self._poller.call_soon(lambda: None)

    def _watch_parent(self) -> None:
        """End when the parent closes its end of this socket, so that no manager outlives its local cluster."""
        if self._settings.lifeline_fd:
            try:
                lifeline = socket.socket(fileno=int(self._settings.lifeline_fd))
            except (ValueError, OSError) as error:
                problem = f"must be the number of an open socket: {error}"
                raise InputError("EMUGPU_MANAGER_LIFELINE_FD", problem) from error

            def parent_gone() -> None:
                self._poller.unwatch(lifeline)
                self._stopping = True

            self._poller.watch(lifeline, parent_gone)


def _local_pool(settings: Settings) -> DevicePool:
    inventory = read_inventory(Path(settings.inventory), settings.node)
    resources = host_resources.from_json(settings.resources, "EMUGPU_MANAGER_RESOURCES")
    if isinstance(inventory, Inventory):
        pool, inventory = DevicePool(), shared(inventory, settings.sharing_config)
        pool.apply_inventory(replace(inventory, host_resources=resources or inventory.host_resources))
        return pool
    mode = MODES[settings.sharing]
    if mode.shared and any(device.mig is not None for device in inventory):
        problem = f"must be exclusive, not {mode.name}: {settings.inventory} has MIG instances, which have one job each"
        raise InputError("EMUGPU_MANAGER_SHARING", problem)
    return DevicePool(inventory, mode, resources)


def _make_directory(variable: str, path: str) -> None:
    try:
        Path(path).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(variable, f"can't make the directory {path}: {error.strerror}") from error


def _lock_state(settings: Settings) -> IO[bytes]:
    """Lock the state for this process; the kernel releases the lock however the process ends. Raises ClusterError if
    another manager holds the lock."""
    path, in_cluster = settings.lock_file, settings.layout is not None
    try:
        file = path.open("wb")
    except OSError as error:
        variable = settings.variable("node_dir" if in_cluster else "state_dir")
        problem = f"can't write {path}: {error.strerror}; give a directory that this process may write"
        raise InputError(variable, problem) from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        file.close()
        fix = "the old pod is still ending: wait, or delete it" if in_cluster else "give each node its own"
        raise ClusterError(f"{path}: another sharing manager uses this state; {fix}") from error
    return file
