"""The daemon of a cluster's node as a process, with a node directory and an inventory file; pods present their tokens."""

import contextlib
import json
import os
import re
import select
import signal
import socket
import stat
import time
import urllib.request

import pytest

from emulator_runtime.domain.errors import DeviceLostError, ManagerUnavailableError, RefusedError
from emulator_runtime.domain.gpu import device_uuid
from emulator_runtime.ipc.channel import Channel
from emulator_runtime.ipc.client import ManagerClient, Patience
from emulator_runtime.ipc.frames import Decoder, encode
from emulator_runtime.ipc.replies import raise_for
from emulator_runtime.node.grant_files import GrantFiles
from emulator_runtime.node.inventory import Inventory
from emulator_runtime.node.layout import NodeLayout
from emulator_runtime.timing.host import monotonic_ns, wall_ns

pytestmark = pytest.mark.processes
GIB = 1024**3
ENDED_S = 30
UUID = device_uuid("n1", 0)


def document(*, replicas=1, unhealthy=(), count=2, **more):
    devices = [
        {"index": n, "gpu_type": "T", "memory_bytes": 16 * GIB, "healthy": n not in unhealthy, "reason": "XID 79"}
        for n in range(count)
    ]
    resources = [{"name": "emugpu.dev/emuGPU", "replicas": replicas, "devices": devices}] if count else []
    return json.dumps({"version": 1, "node": "n1", "resources": resources} | more)


def eventually(condition, give_up_s=30.0):
    give_up = time.monotonic() + give_up_s
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(0.01)


class NodeDaemon:
    """A node directory, its manager, and what the device plugin does there."""

    def __init__(self, directory, start_process, **settings):
        self.layout = NodeLayout(directory / "node")
        self.inventory = directory / "inventory-given.json"
        self.inventory.write_text(document())
        self._start = start_process
        self._settings = {
            "EMUGPU_MANAGER_NODE": "n1",
            "EMUGPU_MANAGER_NODE_DIR": str(self.layout.root),
            "EMUGPU_MANAGER_INVENTORY": str(self.inventory),
        } | settings
        self.files = GrantFiles(self.layout.grants_dir, wall_ns)
        self.clients = []
        self.start()

    def start(self):
        self.process = self._start(["sharing_manager"], self._settings)
        eventually(self.listens)

    def listens(self):
        assert self.process.poll() is None, self.process.communicate()
        try:
            Channel.connect(self.layout.admin_socket).close()
        except Exception:
            return False
        return True

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait(ENDED_S)

    def mint(self, *devices):
        return self.files.mint("emugpu.dev/emuGPU", devices, {})[0]

    def client(self, token):
        self.clients.append(ManagerClient(self.layout.manager_socket, token))
        return self.clients[-1]

    def ask(self, message, *, admin=False):
        channel = Channel.connect(self.layout.admin_socket if admin else self.layout.manager_socket, 10.0)
        try:
            return raise_for(channel.request(message))
        finally:
            channel.close()

    def change(self, text):
        new = self.inventory.with_suffix(".new")
        new.write_text(text)
        new.rename(self.inventory)

    def published(self):
        return Inventory.from_json(self.layout.inventory_file.read_text(), "inventory.json")


@pytest.fixture
def start_node(short_directory, start_process):
    nodes = []

    def start(**settings):
        nodes.append(NodeDaemon(short_directory, start_process, **settings))
        return nodes[-1]

    yield start
    for node in nodes:
        for client in node.clients:
            client.close()


@pytest.fixture
def node(start_node):
    return start_node()


def modes(layout):
    paths = (layout.run_dir, layout.manager_socket, layout.admin_dir, layout.admin_socket, layout.state_dir)
    return [stat.S_IMODE(path.stat().st_mode) for path in (*paths, layout.inventory_file)]


def test_a_job_in_a_pod_over_a_kill_of_the_manager(node):
    assert modes(node.layout) == [0o755, 0o666, 0o700, 0o600, 0o700, 0o644]
    assert [entry.device.uuid for entry in node.published().entries()] == [UUID, device_uuid("n1", 1)]
    token = node.mint(UUID)
    client = node.client(token)
    client.attach()
    assert [device.uuid for device in client.devices] == [UUID]
    client.reserve(GIB, 2 * GIB)
    lease = client.lease(0, 200_000_000, monotonic_ns())
    (device,) = node.ask({"op": "query", "token": token})["devices"]
    assert (device["used_bytes"], [p["pid"] > 0 for p in device["processes"]]) == (2 * GIB, [True])
    node.kill()  # the first step is under way
    node.start()
    second = client.lease(1, 1_000, lease.end_ns if monotonic_ns() > lease.end_ns else monotonic_ns())
    assert second.start_ns >= lease.end_ns
    assert client.reconnects == 1
    client.finish(2)
    again = node.client(token)
    again.attach()
    assert again.steps_done == 2
    assert token.encode() not in b"".join(p.read_bytes() for p in node.layout.state_dir.iterdir())


def test_progress_that_was_never_written_down_survives_a_kill(node):
    client = node.client(node.mint(UUID))
    client.attach()
    for step in range(500):
        client.lease(step, 10_000_000, 0)
    job_id = client.job_id
    eventually(lambda: node.ask({"op": "steps", "job_id": job_id}, admin=True)["steps_done"] == 499)
    node.kill()
    node.start()
    assert node.ask({"op": "steps", "job_id": job_id}, admin=True)["steps_done"] == 499
    client.lease(500, 1, monotonic_ns())


def test_the_newer_token_fences_the_older_one(node):
    old = node.client(node.mint(UUID))
    old.attach()
    new = node.client(node.mint(UUID))
    new.attach()
    with pytest.raises(RefusedError, match=r"has ended \(fenced\)"):
        old.lease(0, 1_000, monotonic_ns())
    new.lease(0, 1_000, monotonic_ns())


def newly_said(process, said):
    """What is on its stderr by now, in `said` too: communicate() tells the rest only."""
    ready, _, _ = select.select([process.stderr], [], [], 0)
    if ready:
        said.append(os.read(process.stderr.fileno(), 65536).decode())
    return "".join(said)


def test_the_inventory_changes_while_a_job_runs(node):
    client = node.client(node.mint(UUID))
    client.attach()
    node.change(document(unhealthy=[0], count=3))
    eventually(lambda: len(list(node.published().entries())) == 3)
    assert [entry.healthy for entry in node.published().entries()] == [False, True, True]
    with pytest.raises(DeviceLostError, match=f"device {UUID} is lost: XID 79"):
        client.lease(0, 1_000, monotonic_ns())
    node.change('{"version": 1')
    said = []
    eventually(lambda: "is not JSON" in newly_said(node.process, said))
    node.change(document(replicas=4))
    eventually(lambda: node.published().resources[0].replicas == 4)
    client.lease(0, 1_000, monotonic_ns())
    node.process.terminate()
    _, errors = node.process.communicate(timeout=ENDED_S)
    assert node.process.returncode == 0
    errors = "".join(said) + errors
    assert "the previous state stays in force" in errors
    assert "pods are not identified (EMUGPU_MANAGER_KUBERNETES is 0)" in errors
    assert "Traceback" not in errors


def test_a_flood_is_answered_slowly_and_a_job_of_its_own_is_not(start_node):
    """What waits is the flooder's unknown tokens, in the kernel."""
    node = start_node(EMUGPU_MANAGER_METRICS_PORT=str(port := free_port()))
    flood = socket.socket(socket.AF_UNIX)
    flood.connect(str(node.layout.manager_socket))
    started = time.monotonic()
    flood.sendall(encode({"op": "attach", "version": 3, "token": "0" * 64}) * 500)
    flood.settimeout(0.3)
    decoder, answers = Decoder(), 0
    while time.monotonic() - started < 0.6 or not answers:
        with contextlib.suppress(TimeoutError):
            answers += len(decoder.feed(flood.recv(65536)))
    elapsed_s = time.monotonic() - started
    flood.close()
    assert 0 < answers <= 110 + 250 * elapsed_s
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as metrics:
        held = re.search(r"(?m)^emugpu_connections_held_total ([\d.]+)", metrics.read().decode())
    assert float(held[1]) > 0
    client = node.client(node.mint(UUID))
    client.attach()
    client.lease(0, 1_000, monotonic_ns())


def test_processes_that_cant_be_told_apart_are_not_counted_together(node):
    """No pod is known here, so these 20 could be those of 20 pods."""
    clients = [socket.socket(socket.AF_UNIX) for _ in range(20)]
    for client in clients:
        client.connect(str(node.layout.manager_socket))
        client.settimeout(10)
    for client in clients:
        client.sendall(encode({"op": "attach", "version": 3, "token": "0" * 64}))
        assert b"unknown token" in client.recv(65536)
        client.close()


def test_where_pods_are_identified_who_is_in_none_has_60_connections(start_node):
    node = start_node(EMUGPU_MANAGER_KUBERNETES="1", KUBERNETES_SERVICE_HOST="127.0.0.1", KUBERNETES_SERVICE_PORT="1")
    clients = [socket.socket(socket.AF_UNIX) for _ in range(61)]
    for client in clients:
        client.connect(str(node.layout.manager_socket))
        client.settimeout(10)
    assert b"this container has 60 connections open; close some" in clients[-1].recv(65536)
    for client in clients:
        client.close()
    node.process.terminate()
    _, errors = node.process.communicate(timeout=ENDED_S)
    assert "has 60 connections open; further ones are rejected" in errors


def test_an_idle_manager_ends_at_a_signal(node):
    time.sleep(0.3)
    node.process.terminate()
    node.process.communicate(timeout=ENDED_S)
    assert node.process.returncode == 0


def test_sharing_and_tools(start_node, short_directory):
    (short_directory / "sharing.yaml").write_text(
        "sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 2}]}, mode: fifo}"
    )
    (short_directory / "tools").mkdir()
    (short_directory / "tools" / "nvidia-smi").write_text("x")
    node = start_node(
        EMUGPU_MANAGER_SHARING_CONFIG=str(short_directory / "sharing.yaml"),
        EMUGPU_MANAGER_TOOLS=str(short_directory / "tools"),
    )
    assert node.published().resources[0].replicas == 2
    assert node.layout.nvidia_smi.read_text() == "x"
    clients = [node.client(node.mint(f"{UUID}::{replica}")) for replica in range(2)]
    for client in clients:
        client.attach()
        assert client.demands
    now = monotonic_ns()
    first, second = (client.lease(0, 10_000_000, now) for client in clients)
    assert second.start_ns == first.end_ns


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def test_metrics_and_probes(start_node):
    port = free_port()
    node = start_node(EMUGPU_MANAGER_METRICS_PORT=str(port))
    client = node.client(node.mint(UUID))
    client.attach()
    client.lease(0, 1_000_000, monotonic_ns())

    def get(path):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return answer.read().decode()

    assert get("/readyz") == get("/healthz") == "ok\n"
    metrics = get("/metrics")
    assert f'uuid="{UUID}"' in metrics
    assert "emugpu_leases_total 1.0" in metrics
    assert "emugpu_attached 1.0" in metrics


def test_cleaning_up_ends_everything_and_a_new_start_begins_afresh(node):
    token = node.mint(UUID)
    client = node.client(token)
    client.attach()
    node.change(document(count=0, cleanup=True))
    eventually(lambda: not node.published().resources)
    with pytest.raises(DeviceLostError, match=r"no longer in the node's inventory"):
        client.lease(0, 1_000, monotonic_ns())
    eventually(lambda: not list(node.layout.root.iterdir()))
    assert node.process.poll() is None
    node.change(document())
    node.process.communicate(timeout=ENDED_S)
    assert node.process.returncode == 0
    node.start()
    assert len(list(node.published().entries())) == 2
    with pytest.raises(RefusedError, match="unknown token"):
        node.client(token).attach()


def test_a_second_manager_of_a_node_says_what_to_do_about_the_first(node, start_process):
    second = start_process(["sharing_manager"], node._settings)
    _, errors = second.communicate(timeout=ENDED_S)
    lock = node.layout.state_dir / "lock"
    fix = "the old pod is still ending: wait, or delete it"
    assert (second.returncode, f"{lock}: another sharing manager uses this state; {fix}" in errors) == (2, True)
    node.client(node.mint(UUID)).attach()


def test_a_lock_file_that_cant_be_written_names_the_clusters_setting(short_directory, start_process):
    layout = NodeLayout(short_directory / "node")
    layout.make()
    (layout.state_dir / "lock").mkdir()
    (short_directory / "inventory.json").write_text(document())
    settings = {
        "EMUGPU_MANAGER_NODE": "n1",
        "EMUGPU_MANAGER_NODE_DIR": str(layout.root),
        "EMUGPU_MANAGER_INVENTORY": str(short_directory / "inventory.json"),
    }
    process = start_process(["sharing_manager"], settings)
    _, errors = process.communicate(timeout=ENDED_S)
    assert process.returncode == 2
    assert f"EMUGPU_MANAGER_NODE_DIR: can't write {layout.state_dir / 'lock'}: Is a directory; give a" in errors


def test_a_job_that_comes_before_the_inventory_is_patient(start_node, short_directory):
    """The API server is away, and nothing was published that could be used until it is back."""
    node = start_node(
        EMUGPU_MANAGER_INVENTORY="kubernetes",
        EMUGPU_MANAGER_KUBERNETES="1",
        KUBERNETES_SERVICE_HOST="127.0.0.1",
        KUBERNETES_SERVICE_PORT="1",
    )
    client = ManagerClient(node.layout.manager_socket, node.mint(UUID), patience=Patience(0.2))
    with pytest.raises(ManagerUnavailableError, match="the inventory isn't known yet on this node; try again"):
        client.attach(5)
    client.close()


BAD = [
    ({"EMUGPU_MANAGER_INVENTORY": "/missing/file"}, "/missing/file: can't read the inventory: No such file"),
    ({"EMUGPU_MANAGER_SHARING_CONFIG": "/missing/file"}, "can't read the sharing configuration"),
    ({"EMUGPU_MANAGER_TOOLS": "/missing/dir"}, "EMUGPU_MANAGER_TOOLS: can't copy /missing/dir to"),
    ({"EMUGPU_MANAGER_NODE_DIR": "/proc/nowhere"}, "/proc/nowhere: can't be made with mode 0755"),
    ({"EMUGPU_MANAGER_NODE": "n2"}, "node: must be n2, as EMUGPU_MANAGER_NODE says, not n1"),
    ({"EMUGPU_MANAGER_METRICS_PORT": "x"}, "EMUGPU_MANAGER_METRICS_PORT: must be a whole number"),
]


def test_a_bad_setting_is_one_line(short_directory, start_process):
    (short_directory / "inventory.json").write_text(document())

    def start(number, wrong):
        good = {
            "EMUGPU_MANAGER_NODE": "n1",
            "EMUGPU_MANAGER_NODE_DIR": str(short_directory / str(number)),
            "EMUGPU_MANAGER_INVENTORY": str(short_directory / "inventory.json"),
        }
        return start_process(["sharing_manager"], good | wrong)

    processes = [(start(number, wrong), message) for number, (wrong, message) in enumerate(BAD)]
    for process, message in processes:
        _, errors = process.communicate(timeout=ENDED_S)
        assert message in errors
        assert (process.returncode, errors.count("\n")) == (2, 1)


@pytest.mark.parametrize("shared", [True, False])
def test_two_pods_that_fetch_from_one_storage(node, start_process, shared):
    """Steps of 20 ms that need the storage for 50 ms: alone 50 ms each, at once 100 ms."""
    storage = [{"name": "storage", "speed": 1, "devices": []}] if shared else []
    node.change(document(hostResources=storage))
    eventually(lambda: len(node.published().host_resources) == len(storage))
    command = ["emulator_runtime.workloads", "train", "--json", "--step-time-s", "0.02", "--fetch-s", "0.05"]
    runs = [
        start_process(
            [*command, "--steps", "40"],
            {
                "EMUGPU_TOKEN": node.mint(device_uuid("n1", index)),
                "EMUGPU_MANAGER_SOCKET": str(node.layout.manager_socket),
            },
        )
        for index in range(2)
    ]
    outputs = [run.communicate(timeout=ENDED_S) for run in runs]
    assert [run.returncode for run in runs] == [0, 0], outputs
    summaries = [json.loads(output) for output, _ in outputs]
    medians = [summary["step_s"]["median"] for summary in summaries]
    assert medians == pytest.approx([0.1 if shared else 0.05] * 2, rel=0.05)
    assert [summary["profiled_step_s"] for summary in summaries] == [0.05] * 2
