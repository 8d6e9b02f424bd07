"""A kubelet for tests: a real gRPC server on kubelet.sock that behaves like the kubelet's device manager.

    with FakeKubelet(directory) as kubelet:
        kubelet.wait_for(lambda: kubelet.devices("emugpu.dev/emuGPU"))
        reply = kubelet.allocate("emugpu.dev/emuGPU", [device_id])

It imitates kubernetes, pkg/kubelet/cm/devicemanager: it calls ListAndWatch after a registration, removes all sockets in its
directory when it starts, and closes both connections if a resource is registered again before its old stream has ended.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Self

import grpc

from deviceplugin.api import deviceplugin_pb2 as pb
from deviceplugin.api.deviceplugin_pb2_grpc import (
    DevicePluginStub,
    RegistrationServicer,
    add_RegistrationServicer_to_server,
)
from deviceplugin.plugin import API_VERSION, KUBELET_SOCKET
from emulator_runtime.domain.errors import ClusterError
from emulator_runtime.timing.host import monotonic_ns

_CALL_TIMEOUT_S = 5.0


class _Client:
    """The kubelet's connection to one registered plugin."""

    def __init__(self, path: Path, changed: Callable[[], None]) -> None:
        self._channel = grpc.insecure_channel(f"unix:{path}")
        self.stub = DevicePluginStub(self._channel)
        self.devices: dict[str, pb.Device] = {}
        self.lists = 0
        self.connected = True
        self._changed = changed
        self._thread = threading.Thread(target=self._listen, name=f"watch {path.name}", daemon=True)
        self._thread.start()

    def _listen(self) -> None:
        try:
            for response in self.stub.ListAndWatch(pb.Empty()):
                self.devices = {device.ID: device for device in response.devices}
                self.lists += 1
                self._changed()
        except (grpc.RpcError, ValueError):  # ValueError: the channel was closed before the call
            pass
        self.connected = False
        self._changed()

    def close(self) -> None:
        self._channel.close()
        self._thread.join()


class FakeKubelet(RegistrationServicer):
    """`restart` imitates an upgrade of the kubelet. All waits have a time limit."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.registrations: list[pb.RegisterRequest] = []
        self.overlaps = 0
        """Registrations while the old stream of the resource was open; a real kubelet then closes the new one, too."""
        self.refuse = ""
        """If set, registrations are refused with this text."""
        self._clients: dict[str, _Client] = {}
        self._changed = threading.Condition()
        self._server: grpc.Server | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Remove all sockets in the directory, like a starting kubelet, and serve."""
        for path in self.directory.iterdir():
            if path.is_socket():
                path.unlink()
        self._server = grpc.server(ThreadPoolExecutor(4))
        add_RegistrationServicer_to_server(self, self._server)
        self._server.add_insecure_port(f"unix:{self.directory / KUBELET_SOCKET}")
        self._server.start()

    def stop(self) -> None:
        """Close all connections at once, like a killed kubelet."""
        for client in self._clients.values():
            client.close()
        self._clients.clear()
        if self._server is not None:
            self._server.stop(None).wait()
            self._server = None

    def restart(self) -> None:
        self.stop()
        self.start()

    def close_stream(self, resource: str) -> None:
        """Close the connection to one plugin and keep serving."""
        self._clients.pop(resource).close()

    def Register(self, request: pb.RegisterRequest, context: grpc.ServicerContext) -> pb.Empty:  # noqa: N802
        if self.refuse:
            context.abort(grpc.StatusCode.UNKNOWN, self.refuse)
        if request.version != API_VERSION:
            context.abort(grpc.StatusCode.UNKNOWN, f"requested API version {request.version!r} is not supported")
        with self._changed:
            self.registrations.append(request)
            old = self._clients.get(request.resource_name)
        threading.Thread(target=self._connect, args=(request, old), daemon=True).start()
        return pb.Empty()

    def _connect(self, request: pb.RegisterRequest, old: _Client | None) -> None:
        client = _Client(self.directory / request.endpoint, self._notify)
        with self._changed:
            self._clients[request.resource_name] = client
        if old is not None and old.connected:
            self.overlaps += 1
            old.close()
            client.close()
        self._notify()

    def devices(self, resource: str) -> dict[str, str]:
        """The health of each device id of a connected plugin; empty if none is connected."""
        client = self._clients.get(resource)
        return {i: d.health for i, d in client.devices.items()} if client is not None and client.connected else {}

    def numa_nodes(self, resource: str) -> dict[str, list[int]]:
        """The NUMA nodes of each device id."""
        return {i: [n.ID for n in d.topology.nodes] for i, d in self._clients[resource].devices.items()}

    def lists(self, resource: str) -> int:
        """The number of device lists received over the current connection."""
        client = self._clients.get(resource)
        return client.lists if client is not None else 0

    def allocate(self, resource: str, device_ids: Sequence[str]) -> pb.ContainerAllocateResponse:
        """Call Allocate for one container. Raises the plugin's grpc.RpcError."""
        request = pb.AllocateRequest(container_requests=[pb.ContainerAllocateRequest(devices_ids=device_ids)])
        return self.stub(resource).Allocate(request, timeout=_CALL_TIMEOUT_S).container_responses[0]

    def preferred(self, resource: str, available: Sequence[str], size: int, must: Sequence[str] = ()) -> list[str]:
        """The plugin's preferred allocation. Raises the plugin's grpc.RpcError."""
        asked = pb.ContainerPreferredAllocationRequest(
            available_deviceIDs=available, must_include_deviceIDs=must, allocation_size=size
        )
        request = pb.PreferredAllocationRequest(container_requests=[asked])
        response = self.stub(resource).GetPreferredAllocation(request, timeout=_CALL_TIMEOUT_S)
        return list(response.container_responses[0].deviceIDs)

    def wait_for(self, condition: Callable[[], object], timeout_s: float = 30.0) -> None:
        """Wait until `condition` holds; it is checked after each event and every 50 ms. Raises ClusterError on timeout."""
        deadline_ns = monotonic_ns() + round(timeout_s * 1e9)
        while not condition():
            if monotonic_ns() > deadline_ns:
                seen = {name: self.devices(name) for name in self._clients}
                raise ClusterError(f"not within {timeout_s} s; registrations {len(self.registrations)}, devices {seen}")
            with self._changed:
                self._changed.wait(0.05)

    def stub(self, resource: str) -> DevicePluginStub:
        """The gRPC stub of the plugin, for calls without a method here. Raises ClusterError if none is registered."""
        if resource not in self._clients:
            raise ClusterError(f"{resource}: no plugin is registered")
        return self._clients[resource].stub

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()
