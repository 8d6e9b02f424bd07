"""A fake kubelet and a fake API server."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sharing_manager.kubernetes.api_server import ApiServer, Timeouts
from sharing_manager.kubernetes.pod_resources import PodResources
from tests.support.fake_node_api import FakeApiServer, FakeKubelet

POD_UID = "2c48913c-b29f-11e7-9350-020968147796"
CONTAINER_ID = "9bca8d63d5fa610783847915bcff0ecac1273e5b4bed3f6fa1b07350e0135961"
FAST = Timeouts(connect_s=1.0, answer_s=0.4, quiet_s=0.7)


@pytest.fixture
def fake() -> Iterator[FakeApiServer]:
    fake = FakeApiServer()
    fake.start()
    yield fake
    fake.stop()


@pytest.fixture
def api(fake) -> Iterator[ApiServer]:
    api = ApiServer(fake.endpoint(), FAST)
    yield api
    api.close()


@pytest.fixture
def kubelet() -> Iterator[FakeKubelet]:
    directory = Path(tempfile.mkdtemp(prefix="emugpu-test-"))
    kubelet = FakeKubelet(directory / "kubelet.sock")
    kubelet.path = directory / "kubelet.sock"
    kubelet.start()
    yield kubelet
    kubelet.stop()
    shutil.rmtree(directory)


@pytest.fixture
def proc(tmp_path) -> Callable[..., Path]:
    """`proc(pid, cgroup path)`: a /proc with this process in it."""

    def add(pid: int, path: str) -> Path:
        (tmp_path / "proc" / str(pid)).mkdir(parents=True, exist_ok=True)
        (tmp_path / "proc" / str(pid) / "cgroup").write_text(f"0::{path}\n")
        return tmp_path / "proc"

    return add


@pytest.fixture
def pod_path() -> str:
    """The cgroup of the container of POD_UID, as another container reads it."""
    return f"/../../pod{POD_UID}/{CONTAINER_ID}"


@pytest.fixture
def make_client(kubelet) -> Iterator[Callable[[], PodResources]]:
    """A client of the fake kubelet, closed at the end."""
    clients: list[PodResources] = []

    def make() -> PodResources:
        clients.append(PodResources(kubelet.path))
        return clients[-1]

    yield make
    for client in clients:
        client.close()
