"""Fixtures: the manager as an object whose event log outlives it, and the daemon as a process."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from emulator_runtime.domain.errors import ManagerUnavailableError
from emulator_runtime.domain.gpu import Device, device_uuid
from emulator_runtime.domain.stages import HostResource
from emulator_runtime.ipc.channel import Channel
from emulator_runtime.ipc.frames import Message
from emulator_runtime.ipc.poller import Poller
from emulator_runtime.ipc.replies import raise_for
from emulator_runtime.node.grant_files import GrantRecord, token_digest
from emulator_runtime.node.inventory import DeviceEntry, Inventory, ResourceEntry
from emulator_runtime.sharing.modes import MODES
from emulator_runtime.timing.clocks import ManualClock
from sharing_manager.core.manager import Manager
from sharing_manager.devices.pool import DevicePool
from sharing_manager.grants.grant import Grant
from sharing_manager.grants.identity import PodIdentity
from sharing_manager.persistence.event_log import ManagerEvent, SqliteEventLog
from sharing_manager.persistence.interval_table import IntervalFile, IntervalTables

GIB = 1024**3
UUIDS = [device_uuid("n1", index) for index in range(3)]


def tables_at(path: Path) -> IntervalTables:
    """The leases, pieces and half-served demands beside the event log at `path`."""
    names = "leases", "pieces", "half-served"
    return IntervalTables(*(IntervalFile(path.with_suffix(f".{name}"), "this boot") for name in names))


class Node:
    """A manager of three devices in manual time. `crash` drops it as it is and opens another one on the same log."""

    def __init__(self, path: Path, sharing: str = "exclusive", resources: tuple[HostResource, ...] = ()) -> None:
        self.clock = ManualClock(now_ns=1_000)
        self.published: list[ManagerEvent] = []
        self._path, self._sharing, self._resources = path, sharing, resources
        self.manager, self.pool, self.log = self._open()

    def _open(self) -> tuple[Manager, DevicePool, SqliteEventLog]:
        devices = [Device("n1", index, "T", 16 * GIB) for index in range(3)]
        pool, log = DevicePool(devices, MODES[self._sharing], self._resources), SqliteEventLog(self._path)
        manager = Manager(pool, log, self.clock, self.published.append, tables=tables_at(self._path))
        return manager, pool, log

    def crash(self) -> None:
        self.manager, self.pool, self.log = self._open()

    def token(self, grant: Grant) -> str:
        """What the owner would hand to the job."""
        return self.manager.token_of(grant)

    def events(self, job_id: str) -> list[ManagerEvent]:
        return [event for event in self.log.after(0) if event.job_id == job_id]

    def covered(self, job_id: str) -> int:
        """How far the event log's ranges reach from step 0; each must begin where the one before ended."""
        reached = 0
        for event in self.events(job_id):
            assert event.from_step == reached, self.events(job_id)
            assert event.steps_done >= event.from_step, self.events(job_id)
            reached = event.steps_done
        return reached


@pytest.fixture
def node(tmp_path) -> Node:
    return Node(tmp_path / "manager.db")


@pytest.fixture
def make_node(tmp_path) -> Callable[..., Node]:
    """`make_node(file name of the log, sharing mode, resources that its jobs share)`."""
    return lambda name, sharing="exclusive", resources=(): Node(tmp_path / name, sharing, tuple(resources))


class PodNode:
    """A node whose devices come from an inventory and whose tokens the device plugin would mint."""

    def __init__(self, path: Path, replicas: int = 1) -> None:
        self.clock = ManualClock(now_ns=1_000)
        self.wall_ns = 10**18
        self.replicas = replicas
        self.dropped: list[str] = []
        self.told: list[tuple[str, str]] = []
        self.minted: dict[str, GrantRecord] = {}
        self._path = path
        self.manager, self.pool, self.log = self._open()

    def _open(self) -> tuple[Manager, DevicePool, SqliteEventLog]:
        pool, log = DevicePool(), SqliteEventLog(self._path)
        manager = Manager(
            pool, log, self.clock, lambda _: None, tables=tables_at(self._path), wall=lambda: self.wall_ns
        )
        manager.pods.on_displaced = lambda grant: self.dropped.append(self.token_of(grant))
        manager.pods.on_event(lambda identity, event: self.told.append((str(identity), event.kind)))
        return manager, pool, log

    def inventory(
        self, *, replicas: int | None = None, unhealthy: dict[int, str] | None = None, count: int = 3
    ) -> Inventory:
        sick = unhealthy or {}
        entries = [
            DeviceEntry(Device("n1", index, "T", 16 * GIB), healthy=index not in sick, reason=sick.get(index, ""))
            for index in range(count)
        ]
        return Inventory("n1", (ResourceEntry("emugpu.dev/emuGPU", tuple(entries), replicas or self.replicas),))

    def crash(self) -> None:
        self.log.close()
        self.manager, self.pool, self.log = self._open()

    def mint(self, token: str, *ids: str, resource: str = "emugpu.dev/emuGPU") -> str:
        """What Allocate does."""
        self.wall_ns += 1
        digest = token_digest(token)
        self.minted[token] = GrantRecord(digest[:32], digest, resource, ids, self.wall_ns)
        return token

    def grant(self, token: str) -> Grant:
        return self.manager.find(token) or Grant.of_record(self.minted[token])

    def token_of(self, grant: Grant) -> str:
        return next(token for token, record in self.minted.items() if record.token_digest == grant.digest)

    def attach(self, token: str, identity: PodIdentity | None, steps_done: int | None = None, **more: int) -> Grant:
        return self.manager.pods.attach(self.grant(token), identity, steps_done, **more)

    def kinds(self, job_id: str) -> list[str]:
        return [event.kind for event in self.log.after(0) if event.job_id == job_id]


def a_pod(name: str, container: str = "main", *, job_key: str = "", uid: str = "") -> PodIdentity:
    """A pod in namespace `ns`; its job is its own unless `job_key` says otherwise."""
    uid = uid or f"uid-{name}"
    return PodIdentity(uid, f"id-{name}-{container}", "ns", name, container, job_key or uid)


@pytest.fixture
def make_pod_node(tmp_path) -> Iterator[Callable[..., PodNode]]:
    """`make_pod_node(replicas)`: a node that has its inventory."""
    nodes: list[PodNode] = []

    def make(replicas: int = 1) -> PodNode:
        node = PodNode(tmp_path / f"pods-{len(nodes)}.db", replicas)
        node.manager.apply_inventory(node.inventory())
        nodes.append(node)
        return node

    yield make
    for node in nodes:
        node.log.close()


@pytest.fixture
def pods(make_pod_node) -> PodNode:
    return make_pod_node()


@pytest.fixture
def pod() -> Callable[..., PodIdentity]:
    return a_pod


# --- processes --------------------------------------------------------------------------------------------------------


class DaemonProcess:
    """A sharing manager as a process, with two devices of 16 GiB. It can be killed and started again on its state."""

    def __init__(self, directory: Path, sharing: str = "exclusive") -> None:
        self.directory = directory
        (directory / "inventory.json").write_text(
            json.dumps([{"index": n, "gpu_type": "T", "memory_bytes": 16 * GIB} for n in range(2)])
        )
        self.settings = {
            "EMUGPU_MANAGER_NODE": "n1",
            "EMUGPU_MANAGER_INVENTORY": str(directory / "inventory.json"),
            "EMUGPU_MANAGER_SOCKET_DIR": str(directory),
            "EMUGPU_MANAGER_STATE_DIR": str(directory / "state"),
            "EMUGPU_MANAGER_SHARING": sharing,
        }
        self._channels: list[Channel] = []
        self.start()

    @property
    def job_socket(self) -> Path:
        return self.directory / "manager.sock"

    @property
    def admin_socket(self) -> Path:
        return self.directory / "admin.sock"

    def start(self) -> None:
        self.process = spawn(["sharing_manager"], self.settings)
        self.admin = self.connect(self.admin_socket)

    def connect(self, path: Path) -> Channel:
        """A connection as soon as somebody listens."""
        give_up = time.monotonic() + 20
        while True:
            try:
                self._channels.append(Channel.connect(path, 10.0))
                return self._channels[-1]
            except ManagerUnavailableError:
                assert self.process.poll() is None, self.process.communicate()
                assert time.monotonic() < give_up
                time.sleep(0.005)

    def ask(self, message: Message) -> Message:
        return raise_for(self.admin.request(message))

    def grant(self, job_id: str, devices: list[str], steps_done: int = 0) -> str:
        return str(self.ask({"op": "grant", "job_id": job_id, "devices": devices, "steps_done": steps_done})["token"])

    def events(self, job_id: str) -> list[Message]:
        """All events of a job so far."""
        channel, events = self.connect(self.admin_socket), []
        channel.send({"op": "subscribe"})
        while "event" in (message := channel.receive()):
            events.append(message)
        channel.close()
        return [event for event in events if event["job_id"] == job_id]

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate()
        self.admin.close()

    def close(self) -> None:
        for channel in self._channels:
            channel.close()
        end(self.process)


def spawn(
    module_and_arguments: list[str], environment: dict[str, str], pass_fds: tuple[int, ...] = ()
) -> subprocess.Popen[str]:
    """A Python module as a process, with no EMUGPU_ variables but these."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("EMUGPU_")}
    return subprocess.Popen(
        [sys.executable, "-m", *module_and_arguments],
        env=environ | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        pass_fds=pass_fds,
    )


def end(process: subprocess.Popen[str]) -> None:
    """Without asking: nothing of a test's process is kept."""
    process.kill()
    process.communicate()


@pytest.fixture
def short_directory() -> Iterator[Path]:
    """A directory whose path leaves room for a socket's name."""
    directory = Path(tempfile.mkdtemp(prefix="emugpu-test-"))
    yield directory
    shutil.rmtree(directory)


@pytest.fixture
def start_daemon(short_directory) -> Iterator[Callable[..., DaemonProcess]]:
    daemons: list[DaemonProcess] = []

    def start(sharing: str = "exclusive") -> DaemonProcess:
        directory = short_directory / str(len(daemons))
        directory.mkdir()
        daemons.append(DaemonProcess(directory, sharing))
        return daemons[-1]

    yield start
    for daemon in daemons:
        daemon.close()


@pytest.fixture
def daemon(start_daemon) -> DaemonProcess:
    return start_daemon()


@pytest.fixture
def start_process() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """`start_process(["module", ...], {variables})`; what still runs after the test is ended."""
    processes: list[subprocess.Popen[str]] = []

    def start(*arguments, **options) -> subprocess.Popen[str]:
        processes.append(spawn(*arguments, **options))
        return processes[-1]

    yield start
    for process in processes:
        end(process)


@pytest.fixture
def socket_pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    yield ours, theirs
    ours.close()
    theirs.close()


@pytest.fixture
def uuids() -> list[str]:
    """The devices of node n1."""
    return UUIDS


@pytest.fixture
def poller() -> Iterator[Poller]:
    """Turns in a thread, as a daemon's does; what is raised in it is raised at the end of the test."""
    poller, stopping, errors = Poller(), threading.Event(), []

    def turn() -> None:
        while not stopping.is_set():
            try:
                poller.poll(5.0)
            except Exception as error:
                errors.append(error)

    poller.errors = errors
    thread = threading.Thread(target=turn)
    thread.start()
    yield poller
    stopping.set()
    poller.call_soon(lambda: None)
    thread.join()
    poller.close()
    assert not errors


@pytest.fixture
def eventually() -> Callable[..., object]:
    """`eventually(lambda: condition)`: waits until it is true, and answers it."""

    def wait(condition: Callable[[], object], within_s: float = 30.0) -> object:
        give_up = time.monotonic() + within_s
        while not (found := condition()):
            assert time.monotonic() < give_up, "it did not come true in time"
            time.sleep(0.005)
        return found

    return wait
