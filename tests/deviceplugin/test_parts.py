"""Settings, failures at the start, metrics and probes, generated code, removal of CDI specs."""

from __future__ import annotations

import select
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2

from deviceplugin.allocator import Allocator
from deviceplugin.api import deviceplugin_pb2
from deviceplugin.daemon import Daemon, offers_of, reconcile
from deviceplugin.delivery import CdiDelivery
from deviceplugin.metrics import NoMetrics
from deviceplugin.offer_book import OfferBook
from deviceplugin.plugin import ResourcePlugin, socket_name
from deviceplugin.resources.gpus import GpuOffer
from deviceplugin.resources.offer import ContainerReply
from deviceplugin.settings import Settings
from deviceplugin.web import PrometheusMetrics, WebServer
from emulator_runtime.domain.errors import InputError, UnknownNameError
from emulator_runtime.domain.gpu import Device
from emulator_runtime.domain.mig import instances
from emulator_runtime.domain.units import GIB
from emulator_runtime.node.grant_files import LAST_FILE, GrantFiles
from emulator_runtime.node.inventory import Compat, DeviceEntry, Inventory, ResourceEntry

EMUGPU = "emugpu.dev/emuGPU"
ROOT = Path(deviceplugin_pb2.__file__).parents[2]
PROTO = "deviceplugin/api/deviceplugin.proto"


def test_the_generated_code_is_what_the_proto_says(tmp_path):
    out = tmp_path / "set"
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I", ".", f"--descriptor_set_out={out}", PROTO]
    subprocess.run(command, check=True, cwd=ROOT)
    (made,) = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes()).file
    committed = descriptor_pb2.FileDescriptorProto.FromString(deviceplugin_pb2.DESCRIPTOR.serialized_pb)
    drop_json_names(made.message_type)
    assert committed == made


def drop_json_names(messages) -> None:
    """The generator of Python code leaves these out."""
    for message in messages:
        for field in message.field:
            field.ClearField("json_name")
        drop_json_names(message.nested_type)


def test_the_generated_service_code_is_the_generators(tmp_path):
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I", ".", f"--grpc_python_out={tmp_path}", PROTO]
    subprocess.run(command, check=True, cwd=ROOT)
    name = "deviceplugin/api/deviceplugin_pb2_grpc.py"
    made, committed = (
        [line for line in (place / name).read_text().splitlines() if "GRPC_GENERATED_VERSION =" not in line]
        for place in (tmp_path, ROOT)
    )
    assert committed == made


def test_the_device_file_of_an_instance_names_its_gpu():
    gpu = Device("worker1", 0, "NVIDIA_A100-SXM4-40GB", 40 * GIB)
    entries = tuple(DeviceEntry(each) for each in instances(gpu, 1, ["3g.20gb", "4g.20gb"], "test"))
    offer = GpuOffer("worker1", ResourceEntry("nvidia.com/gpu", entries), Compat(nvidia_env=True))
    first, second = (device.device_id for device in offer.announced())
    assert first.startswith("MIG-")
    assert offer.environment([first], "t")["NVIDIA_VISIBLE_DEVICES"] == first
    file = offer.device_files([first, second])[1]
    assert (file["gpu_type"], file["memory_bytes"]) == ("NVIDIA_A100-SXM4-40GB-MIG-3g.20gb", 20 * GIB)
    assert file["mig"] == {"gpu": 0, "gpu_uuid": gpu.uuid}


def test_settings():
    settings = Settings.from_env({"EMUGPU_PLUGIN_NVIDIA_SMI": "0", "EMUGPU_PLUGIN_METRICS_PORT": "9500", "HOME": "/"})
    assert (settings.metrics_port, settings.nvidia_smi, settings.node_dir) == (9500, False, "/var/lib/emugpu")
    for name, value, text in [
        ("METRICS_PORT", "-1", "EMUGPU_PLUGIN_METRICS_PORT: must be a whole number from 0 to 65535, got '-1'"),
        ("NVIDIA_SMI", "yes", "EMUGPU_PLUGIN_NVIDIA_SMI: must be 1 or 0, got 'yes'"),
    ]:
        with pytest.raises(InputError, match=text):
            Settings.from_env({f"EMUGPU_PLUGIN_{name}": value})
    with pytest.raises(UnknownNameError, match="did you mean EMUGPU_PLUGIN_CDI_DIR"):
        Settings.from_env({"EMUGPU_PLUGIN_CDI": "/x"})


def program(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    given = {f"EMUGPU_PLUGIN_{name}": value for name, value in environment.items()}
    command = [sys.executable, "-m", "deviceplugin", *arguments]
    return subprocess.run(command, env=given, capture_output=True, text=True, timeout=10, cwd=ROOT)


def test_help_and_mistakes_on_the_command_line(node):
    shown = program("--help")
    assert shown.returncode == 0
    assert "EMUGPU_PLUGIN_KUBELET_DIR" in shown.stdout
    assert program("--port").returncode == 2
    wrong = program(NVIDIA_SMI="2")
    assert (wrong.returncode, wrong.stderr) == (2, "deviceplugin: EMUGPU_PLUGIN_NVIDIA_SMI: must be 1 or 0, got '2'\n")
    (node.layout.root / "file").write_text("")
    nowhere = program(NODE_DIR=str(node.layout.root / "file" / "dir"))
    assert nowhere.returncode == 2
    assert "can't be made with mode 0755: Not a directory; give a node directory that is writable" in nowhere.stderr
    no_cdi = program(NODE_DIR=str(node.layout.root), CDI_DIR=str(node.layout.root / "file" / "cdi"))
    assert (no_cdi.returncode, "EMUGPU_PLUGIN_CDI_DIR: can't make the directory" in no_cdi.stderr) == (2, True)


def fetch(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


@pytest.mark.processes
def test_metrics_and_probes(node, kubelet, resource, eventually):
    with socket.create_server(("", 0)) as free:
        port = free.getsockname()[1]
    kubelet.refuse = "not yet"
    node.publish(resource(3, replicas=2))
    process = node.start(METRICS_PORT=str(port))
    eventually(lambda: "not yet" in node.log)
    assert fetch(port, "/healthz") == (200, "ok\n")
    assert fetch(port, "/readyz") == (503, "not now\n")
    assert fetch(port, "/")[0] == 404
    kubelet.refuse = ""
    kubelet.wait_for(lambda: kubelet.devices(EMUGPU))
    eventually(lambda: fetch(port, "/readyz") == (200, "ok\n"))
    (device, *_) = kubelet.devices(EMUGPU)
    kubelet.allocate(EMUGPU, [device])
    with pytest.raises(Exception, match="unknown device"):
        kubelet.allocate(EMUGPU, ["GPU-x"])
    _, text = fetch(port, "/metrics")
    for line in [
        f'emugpu_plugin_allocate_seconds_count{{resource="{EMUGPU}"}} 1.0',
        f'emugpu_plugin_devices{{health="healthy",resource="{EMUGPU}"}} 6.0',
        f'emugpu_plugin_devices{{health="unhealthy",resource="{EMUGPU}"}} 0.0',
        f'emugpu_plugin_registrations_total{{resource="{EMUGPU}"}} 1.0',
        'emugpu_plugin_errors_total{kind="allocate"} 1.0',
        'emugpu_plugin_errors_total{kind="register"}',
    ]:
        assert line in text
    taken = program(NODE_DIR=str(node.layout.root), KUBELET_DIR=str(node.kubelet_dir), METRICS_PORT=str(port))
    assert taken.returncode == 2
    assert f"EMUGPU_PLUGIN_METRICS_PORT: can't listen on port {port}: Address already in use" in taken.stderr
    node.publish()
    eventually(lambda: "emugpu_plugin_devices{" not in fetch(port, "/metrics")[1])
    assert process.poll() is None


@pytest.fixture
def plugin(node, resource):
    """A resource's thread in this process, and what it has done."""
    grants = GrantFiles(node.layout.grants_dir, now=lambda: 1)
    allocator = Allocator(node.layout, grants, FailingDelivery(0))
    book = OfferBook(GpuOffer("worker1", resource(2)))
    plugin = ResourcePlugin(book, allocator, NoMetrics(), node.kubelet_dir)
    yield plugin
    plugin.stop()
    plugin.join(10)
    assert not plugin.is_alive()


def test_a_socket_that_cant_be_removed_doesnt_end_the_resource(node, plugin, kubelet, monkeypatch, caplog):
    caplog.set_level("INFO")
    unlink, failing = Path.unlink, [True]

    def refused(path, missing_ok=False):
        if failing and path.name == socket_name(EMUGPU):
            failing.clear()
            raise OSError(30, "Read-only file system", str(path))
        unlink(path, missing_ok=missing_ok)

    plugin.start()
    kubelet.wait_for(lambda: len(kubelet.devices(EMUGPU)) == 2)
    monkeypatch.setattr(Path, "unlink", refused)
    kubelet.close_stream(EMUGPU)
    kubelet.wait_for(lambda: len(kubelet.registrations) > 1 and len(kubelet.devices(EMUGPU)) == 2)
    assert f"{node.kubelet_dir / socket_name(EMUGPU)}: Read-only file system; trying again" in caplog.text


def test_the_main_loop_waits_on_descriptors_that_select_does_not_take(crowded, node):
    daemon = Daemon(Settings(node_dir=str(node.layout.root), kubelet_dir=str(node.kubelet_dir), metrics_port=0))
    daemon._woken, waker = socket.socketpair()
    with daemon._woken, waker:
        assert daemon._woken.fileno() >= 1024
        waker.send(b"!")
        daemon._wait()


def test_health_is_that_of_the_resources_threads(node, resource):
    daemon = Daemon(Settings(node_dir=str(node.layout.root), kubelet_dir=str(node.kubelet_dir), metrics_port=0))
    assert daemon._healthy()
    daemon._running["a.b/c"] = (None, threading.Thread())  # one that doesn't run (any more)
    assert not daemon._healthy()
    web = WebServer(0, PrometheusMetrics(), daemon._healthy, lambda: True)
    asked = threading.Thread(target=lambda: answers.append(fetch(web.port, "/healthz")))
    answers: list[tuple[int, str]] = []
    asked.start()
    assert select.select([web], [], [], 5)[0]
    web.answer()
    asked.join(5)
    web.close()
    assert answers == [(503, "not now\n")]


def test_reconcile(resource):
    inventory = Inventory("worker1", (resource(1, "a.b/x"), resource(1, "a.b/y", first=1)))
    changes = reconcile(offers_of(inventory, host=False, nvidia_smi=True), {"a.b/y", "a.b/z"})
    assert changes.stop == ("a.b/z",)
    assert [offer.name for offer in changes.update] == ["a.b/y"]
    assert [offer.name for offer in changes.start] == ["a.b/x"]


class FailingDelivery:
    """Hands over so many grants, then the disk is full."""

    def __init__(self, good: int) -> None:
        self.good = good

    def deliver(self, grant_id, envs, mounts):
        if not self.good:
            raise OSError(28, "No space left on device", "spec")
        self.good -= 1
        return ContainerReply(envs)


def test_a_failed_delivery_takes_all_grants_back(node, resource):
    grants = GrantFiles(node.layout.grants_dir, now=lambda: 1)
    allocator = Allocator(node.layout, grants, FailingDelivery(1))
    first, second = resource(2).by_id()
    with pytest.raises(OSError, match="No space left"):
        allocator.allocate(GpuOffer("worker1", resource(2)), [[first], [second]])
    assert grants.all() == []
    assert [path.name for path in node.layout.grants_dir.iterdir()] == [LAST_FILE]


def test_cdi_leaves_nothing_of_a_failed_spec_and_nobody_elses_files(tmp_path, monkeypatch):
    delivery = CdiDelivery(tmp_path)
    (tmp_path / "vendor.json").write_text("{}")
    monkeypatch.setattr("os.fsync", lambda _descriptor: (_ for _ in ()).throw(OSError(28, "No space left on device")))
    with pytest.raises(OSError, match="No space left"):
        delivery.deliver("a" * 32, {}, ())
    assert [path.name for path in tmp_path.iterdir()] == ["vendor.json"]
    delivery.sweep(lambda _grant: False)
    assert (tmp_path / "vendor.json").exists()


def test_the_program_loads_no_metrics_library_without_a_port():
    code = "import deviceplugin.daemon, sys; print([m for m in ('prometheus_client', 'http.server', 'yaml') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout == "[]\n"
