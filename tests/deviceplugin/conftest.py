"""Fixtures: a node directory, a fake kubelet, an inventory, and the device plugin as a process."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from emulator_runtime.domain.gpu import Device
from emulator_runtime.domain.units import GIB
from emulator_runtime.node.inventory import DeviceEntry, Inventory, ResourceEntry
from emulator_runtime.node.layout import NodeLayout
from tests.support.fake_kubelet import FakeKubelet

EMUGPU = "emugpu.dev/emuGPU"


def make_entry(index: int, *, numa: int = 0, link: int = 0, healthy: bool = True, reason: str = "") -> DeviceEntry:
    return DeviceEntry(Device("worker1", index, "A100-SXM4-80GB", 80 * GIB), numa, link, healthy, reason)


def make_resource(count: int, name: str = EMUGPU, first: int = 0, **more: object) -> ResourceEntry:
    entries = tuple(make_entry(first + n, numa=n // 4, link=n // 4) for n in range(count))
    return ResourceEntry(name, entries, **more)  # type: ignore[arg-type]


class Node:
    """A node directory, a kubelet's directory, and device plugins started in them."""

    def __init__(self, root: Path) -> None:
        self.layout = NodeLayout(root / "node")
        self.kubelet_dir = root / "kubelet"
        self.layout.make()
        self.kubelet_dir.mkdir()
        self.processes: list[subprocess.Popen[bytes]] = []

    def publish(self, *resources: ResourceEntry, **more: object) -> None:
        inventory = Inventory("worker1", resources, **more)  # type: ignore[arg-type]
        file = self.layout.root / "inventory.new"
        file.write_text(inventory.to_json())
        file.rename(self.layout.inventory_file)

    def start(self, **settings: str) -> subprocess.Popen[bytes]:
        """With GPUs alone, unless HOST is given."""
        given = {"NODE_DIR": self.layout.root, "KUBELET_DIR": self.kubelet_dir, "METRICS_PORT": "0", "HOST": "0"}
        given |= settings
        environment = os.environ | {f"EMUGPU_PLUGIN_{name}": str(value) for name, value in given.items()}
        log = (self.layout.root / "log").open("ab")
        command = [sys.executable, "-W", "error", "-m", "deviceplugin"]
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
        log.close()
        self.processes.append(process)
        return process

    @property
    def log(self) -> str:
        return (self.layout.root / "log").read_text()

    def end(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()


@pytest.fixture
def node() -> Iterator[Node]:
    root = Path(tempfile.mkdtemp(prefix="dp-"))
    made = Node(root)
    yield made
    made.end()
    shutil.rmtree(root)


@pytest.fixture
def kubelet(node: Node) -> Iterator[FakeKubelet]:
    with FakeKubelet(node.kubelet_dir) as made:
        yield made


@pytest.fixture
def eventually() -> Callable[[Callable[[], object]], None]:
    def wait(condition: Callable[[], object], timeout_s: float = 30) -> None:
        deadline = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < deadline, "not in time"
            time.sleep(0.02)

    return wait


@pytest.fixture
def resource() -> Callable[..., ResourceEntry]:
    return make_resource


@pytest.fixture
def entry() -> Callable[..., DeviceEntry]:
    return make_entry
