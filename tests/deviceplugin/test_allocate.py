"""Allocate and GetPreferredAllocation over the socket: a container's reply, and every reason for a refusal."""

from __future__ import annotations

import json
import os
import random
import signal
import stat
from pathlib import Path

import grpc
import pytest

from deviceplugin.api import deviceplugin_pb2 as pb
from emulator_runtime.node.grant_files import GrantFiles
from emulator_runtime.node.inventory import Compat, Cuda

EMUGPU = "emugpu.dev/emuGPU"
SHARED = "emugpu.dev/emuGPU.shared"

pytestmark = pytest.mark.processes


@pytest.fixture
def grants(node):
    return GrantFiles(node.layout.grants_dir, now=lambda: 0)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def refusal(kubelet, resource, ids) -> grpc.RpcError:
    with pytest.raises(grpc.RpcError) as refused:
        kubelet.allocate(resource, ids)
    return refused.value


@pytest.fixture
def served(node, kubelet, resource):
    node.publish(resource(8))
    process = node.start()
    kubelet.wait_for(lambda: kubelet.devices(EMUGPU))
    return process


def test_what_a_container_gets(served, kubelet, node, resource, grants):
    ids = list(resource(8).by_id())[2:6]
    asked = random.Random("order").sample(ids, 4)
    reply = kubelet.allocate(EMUGPU, asked)
    record = grants.read(reply.envs["EMUGPU_TOKEN"])
    assert record is not None
    assert (record.resource, record.device_ids) == (EMUGPU, tuple(ids))  # in the order of the device index
    assert dict(reply.envs) == {
        "EMUGPU_TOKEN": reply.envs["EMUGPU_TOKEN"],
        "EMUGPU_MANAGER_SOCKET": "/run/emugpu/manager.sock",
        "EMUGPU_VISIBLE_DEVICES": ",".join(ids),
        "EMUGPU_RESOURCE": EMUGPU,
    }
    edev = grants.edev_dir(record.grant_id)
    assert [(m.container_path, m.host_path, m.read_only) for m in reply.mounts] == [
        ("/run/emugpu", str(node.layout.run_dir), True),
        ("/edev", str(edev), True),
    ]
    assert sorted(path.name for path in edev.iterdir()) == ["2", "3", "4", "5"]
    assert json.loads((edev / "3").read_text()) == {
        "uuid": ids[1],
        "index": 3,
        "gpu_type": "A100-SXM4-80GB",
        "memory_bytes": 80 * 1024**3,
        "node": "worker1",
        "numa_node": 0,
        "links": {ids[0]: "NVLink", ids[2]: "PCIe", ids[3]: "PCIe"},
        "replica": None,
        "resource": EMUGPU,
    }
    assert not reply.devices and not reply.annotations and not reply.cdi_devices


def test_every_allocate_mints_a_token_and_modes_hold(served, kubelet, resource, grants):
    (device, *_) = resource(8).by_id()
    tokens = {kubelet.allocate(EMUGPU, [device]).envs["EMUGPU_TOKEN"] for _ in range(3)}
    assert len(tokens) == 3
    assert all(len(token) == 64 for token in tokens)
    records = grants.all()
    assert len(records) == 3
    assert len({record.minted_ns for record in records}) == 3
    for record in records:
        directory = grants.path(record.grant_id)
        assert [mode(directory), mode(directory / "grant.json")] == [0o755, 0o600]
        assert [mode(directory / "edev"), mode(directory / "edev" / "0")] == [0o755, 0o644]
        assert not any(token in (directory / "grant.json").read_text() for token in tokens)


def test_the_token_is_on_disk_before_the_reply(served, kubelet, resource, grants):
    for device in resource(8).by_id():
        token = kubelet.allocate(EMUGPU, [device]).envs["EMUGPU_TOKEN"]
        if device == list(resource(8).by_id())[-1]:
            os.kill(served.pid, signal.SIGKILL)
            served.wait()
        record = grants.read(token)
        assert record is not None and record.device_ids == (device,)


def test_tools_are_mounted_once_they_are_there(served, kubelet, node, resource):
    (device, *_) = resource(8).by_id()
    node.layout.nvidia_smi.mkdir()  # what a container runtime makes of a missing mount source
    assert len(kubelet.allocate(EMUGPU, [device]).mounts) == 2
    node.layout.nvidia_smi.rmdir()
    node.layout.nvidia_smi.write_text("")
    (node.layout.python_dir / "emulator_runtime").mkdir(parents=True)
    (node.layout.python_dir / "emulator_runtime" / "__init__.py").write_text("")
    mounts = {mount.container_path: mount.host_path for mount in kubelet.allocate(EMUGPU, [device]).mounts}
    assert mounts["/usr/bin/nvidia-smi"] == str(node.layout.nvidia_smi)
    assert mounts["/usr/local/emugpu"] == str(node.layout.python_dir)


def test_nvidia_smi_switched_off_and_nvidia_variables_on(node, kubelet, resource):
    node.layout.nvidia_smi.write_text("")
    node.publish(resource(2), compat=Compat(nvidia_env=True))
    node.start(NVIDIA_SMI="0")
    kubelet.wait_for(lambda: kubelet.devices(EMUGPU))
    ids = list(resource(2).by_id())
    reply = kubelet.allocate(EMUGPU, ids)
    assert len(reply.mounts) == 2
    assert reply.envs["NVIDIA_VISIBLE_DEVICES"] == reply.envs["CUDA_VISIBLE_DEVICES"] == ",".join(ids)


def test_refusals(served, kubelet, resource, grants):
    first, second, *_ = resource(8).by_id()
    for ids, text in [
        (["GPU-x"], "unknown device 'GPU-x': the node's inventory has changed since; create the pod again"),
        ([first, f"{second}::0"], "unknown device"),
        ([first, first], "must name each device once"),
        ([], "must name each device once"),
    ]:
        error = refusal(kubelet, EMUGPU, ids)
        assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert text in error.details()
    several = [[first], ["GPU-x"]]
    request = pb.AllocateRequest(container_requests=[pb.ContainerAllocateRequest(devices_ids=ids) for ids in several])
    with pytest.raises(grpc.RpcError):
        kubelet.stub(EMUGPU).Allocate(request, timeout=5)
    assert grants.all() == []  # all containers or none


def test_shared_devices_one_at_a_time(node, kubelet, resource, grants):
    shared = resource(2, SHARED, replicas=3, fail_requests_greater_than_one=True)
    node.publish(shared, resource(2, EMUGPU, first=2, fail_requests_greater_than_one=True))
    node.start()
    kubelet.wait_for(lambda: kubelet.devices(SHARED) and kubelet.devices(EMUGPU))
    ids = list(shared.by_id())
    error = refusal(kubelet, SHARED, ids[:2])
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "may request at most 1 shared device, not 2 (failRequestsGreaterThanOne)" in error.details()
    reply = kubelet.allocate(SHARED, ids[4:5])
    record = grants.read(reply.envs["EMUGPU_TOKEN"])
    assert json.loads((grants.edev_dir(record.grant_id) / "1").read_text())["replica"] == 1
    assert reply.envs["EMUGPU_VISIBLE_DEVICES"] == ids[4].partition("::")[0]
    whole = resource(2, EMUGPU, first=2)
    assert len(kubelet.allocate(EMUGPU, list(whole.by_id())).envs["EMUGPU_VISIBLE_DEVICES"].split(",")) == 2


def test_a_grant_that_cannot_be_written(served, kubelet, node, resource):
    (device, *_) = resource(8).by_id()
    node.layout.grants_dir.rmdir()
    node.layout.grants_dir.write_text("in the way")
    error = refusal(kubelet, EMUGPU, [device])
    assert error.code() is grpc.StatusCode.INTERNAL
    assert "can't be written: Not a directory" in error.details()
    node.layout.grants_dir.unlink()
    node.layout.grants_dir.mkdir()
    assert kubelet.allocate(EMUGPU, [device]).envs["EMUGPU_TOKEN"]


def test_preferred_over_the_socket(served, kubelet, resource):
    ids = list(resource(8).by_id())
    assert kubelet.preferred(EMUGPU, ids[3:], 2, must=[ids[6]]) == [ids[6], ids[4]]
    with pytest.raises(grpc.RpcError) as refused:
        kubelet.preferred(EMUGPU, ids, 1, must=ids[:2])
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    options = kubelet.stub(EMUGPU).GetDevicePluginOptions(pb.Empty(), timeout=5)
    assert options.get_preferred_allocation_available
    assert kubelet.stub(EMUGPU).PreStartContainer(pb.PreStartContainerRequest(), timeout=5) is not None


def with_cuda_libraries(node):
    node.layout.cuda_libraries.mkdir(parents=True)
    (node.layout.cuda_libraries / "libemugpu_redirect.so").write_bytes(b"")


def test_what_cuda_programs_need(node, kubelet, resource, grants):
    with_cuda_libraries(node)
    node.publish(resource(8))
    node.start()
    kubelet.wait_for(lambda: kubelet.devices(EMUGPU))
    reply = kubelet.allocate(EMUGPU, list(resource(8).by_id())[2:4])
    record = grants.read(reply.envs["EMUGPU_TOKEN"])
    assert {name: reply.envs[name] for name in ("LD_AUDIT", "EMUGPU_CUDA_SETTINGS", "TRITON_LIBCUDA_PATH")} == {
        "LD_AUDIT": "/usr/local/emugpu/lib/libemugpu_redirect.so",
        "EMUGPU_CUDA_SETTINGS": "/run/emugpu-cuda/settings",
        "TRITON_LIBCUDA_PATH": "/usr/local/emugpu/lib",
    }
    directory = grants.cuda_dir(record.grant_id)
    assert ("/run/emugpu-cuda", str(directory), True) in [
        (m.container_path, m.host_path, m.read_only) for m in reply.mounts
    ]
    assert [mode(directory), mode(directory / "settings")] == [0o755, 0o644]
    text = (directory / "settings").read_text()
    assert text.count("\nuuid GPU-") == 2
    assert reply.envs["EMUGPU_TOKEN"] not in text


def test_a_pool_without_cuda_programs(node, kubelet, resource, grants):
    with_cuda_libraries(node)
    node.publish(resource(1), cuda=Cuda(enabled=False))
    node.start()
    kubelet.wait_for(lambda: kubelet.devices(EMUGPU))
    reply = kubelet.allocate(EMUGPU, list(resource(1).by_id()))
    assert not reply.envs.keys() & {"LD_AUDIT", "EMUGPU_CUDA_SETTINGS"}
    assert not grants.cuda_dir(grants.read(reply.envs["EMUGPU_TOKEN"]).grant_id).exists()


def test_cdi_specs_live_as_long_as_their_grants(node, kubelet, resource, grants, eventually):
    cdi = node.layout.root / "cdi"
    node.publish(resource(2))
    process = node.start(CDI_DIR=str(cdi))
    kubelet.wait_for(lambda: kubelet.devices(EMUGPU))
    (device, *_) = resource(2).by_id()
    replies = [kubelet.allocate(EMUGPU, [device]) for _ in range(2)]
    assert all(not reply.mounts for reply in replies)
    one, two = (grants.read(reply.envs["EMUGPU_TOKEN"]).grant_id for reply in replies)
    assert [d.name for d in replies[0].cdi_devices] == [f"emugpu.dev/grant={one}"]
    spec = json.loads((cdi / f"emugpu.dev-grant-{one}.json").read_text())
    assert (spec["cdiVersion"], spec["kind"], spec["devices"][0]["name"]) == ("0.6.0", "emugpu.dev/grant", one)
    mounts = spec["devices"][0]["containerEdits"]["mounts"]
    assert [m["containerPath"] for m in mounts] == ["/run/emugpu", "/edev"]
    assert all("ro" in m["options"] for m in mounts)
    assert replies[0].envs["EMUGPU_TOKEN"] not in json.dumps(spec)
    grants.remove(one)
    eventually(lambda: [p.name for p in cdi.iterdir()] == [f"emugpu.dev-grant-{two}.json"])
    process.kill()
    process.wait()
    grants.remove(two)
    node.start(CDI_DIR=str(cdi))
    eventually(lambda: not list(cdi.iterdir()))
