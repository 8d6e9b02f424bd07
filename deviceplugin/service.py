"""Implements the calls of the kubelet: translates messages to the plugin's types and back. No other module knows both.

Source: device plugin API v1beta1. Errors are INVALID_ARGUMENT (the request can't be fulfilled) or INTERNAL (this node can't
write); the kubelet copies the text into the pod's UnexpectedAdmissionError event.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from enum import Enum

import grpc

from deviceplugin.allocator import Allocator
from deviceplugin.api import deviceplugin_pb2 as pb
from deviceplugin.api.deviceplugin_pb2_grpc import DevicePluginServicer
from deviceplugin.metrics import Metrics
from deviceplugin.offer_book import OfferBook
from deviceplugin.resources.offer import ContainerReply, Offer
from emulator_runtime.domain.errors import InputError
from emulator_runtime.domain.units import to_s
from emulator_runtime.timing.host import monotonic_ns


class Stream(Enum):
    """The state of the kubelet's ListAndWatch call: not opened yet, open, or ended."""

    NONE = "none"
    OPEN = "open"
    ENDED = "ended"


class DevicePluginService(DevicePluginServicer):
    """The service of one resource on one socket. `wake` is called when a stream has ended."""

    def __init__(self, offers: OfferBook, allocator: Allocator, metrics: Metrics, wake: Callable[[], None]) -> None:
        self._offers = offers
        self._allocator = allocator
        self._metrics = metrics
        self._wake = wake
        self._lock = threading.Lock()
        self._opened = self._closed = 0
        self._stopping = False

    @property
    def stream(self) -> Stream:
        with self._lock:
            if self._opened > self._closed:
                return Stream.OPEN
            return Stream.ENDED if self._opened else Stream.NONE

    def stop(self) -> None:
        """End the streams; other calls may finish."""
        self._stopping = True
        self._offers.wake()

    def GetDevicePluginOptions(self, request: pb.Empty, context: grpc.ServicerContext) -> pb.DevicePluginOptions:  # noqa: N802
        return options()

    def ListAndWatch(  # noqa: N802
        self, request: pb.Empty, context: grpc.ServicerContext
    ) -> Iterator[pb.ListAndWatchResponse]:
        """The devices now and after each change, until the kubelet disconnects or the server stops."""
        with self._lock:
            self._opened += 1
        if not context.add_callback(self._on_stream_end):  # the call has ended already
            self._on_stream_end()
            return
        last_sent: Offer | None = None
        while (offer := self._offers.after(last_sent, lambda: self._stopping or not context.is_active())) is not None:
            yield device_list(offer)
            last_sent = offer

    def GetPreferredAllocation(  # noqa: N802
        self, request: pb.PreferredAllocationRequest, context: grpc.ServicerContext
    ) -> pb.PreferredAllocationResponse:
        offer = self._offers.offer
        response = pb.PreferredAllocationResponse()
        try:
            for container in request.container_requests:
                must, size = container.must_include_deviceIDs, container.allocation_size
                ids = offer.preferred(container.available_deviceIDs, must, size)
                response.container_responses.add(deviceIDs=ids)
        except InputError as error:
            self._metrics.error("preferred")
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        return response

    def Allocate(self, request: pb.AllocateRequest, context: grpc.ServicerContext) -> pb.AllocateResponse:  # noqa: N802
        """Mint a grant for each container. The kubelet doesn't say for which pod; the first attach binds the token to one."""
        start_ns = monotonic_ns()
        offer = self._offers.offer
        try:
            replies = self._allocator.allocate(
                offer, [container.devices_ids for container in request.container_requests]
            )
        except InputError as error:
            self._metrics.error("allocate")
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except OSError as error:
            self._metrics.error("allocate")
            problem = f"{error.filename or 'the node directory'}: can't be written: {error.strerror}; is the disk full?"
            context.abort(grpc.StatusCode.INTERNAL, problem)
        response = pb.AllocateResponse(container_responses=[_container_response(reply) for reply in replies])
        self._metrics.allocated(offer.name, to_s(monotonic_ns() - start_ns))
        return response

    def PreStartContainer(  # noqa: N802
        self, request: pb.PreStartContainerRequest, context: grpc.ServicerContext
    ) -> pb.PreStartContainerResponse:
        """Not requested in `options`, but implemented, because the API requires every call to be answered."""
        return pb.PreStartContainerResponse()

    def _on_stream_end(self) -> None:
        with self._lock:
            self._closed += 1
        self._offers.wake()
        self._wake()


def options() -> pb.DevicePluginOptions:
    """The optional calls that this plugin requests."""
    return pb.DevicePluginOptions(pre_start_required=False, get_preferred_allocation_available=True)


def device_list(offer: Offer) -> pb.ListAndWatchResponse:
    """Every id of the resource with its health and, if it is close to one, its NUMA node."""
    response = pb.ListAndWatchResponse()
    for device in offer.announced():
        topology = None if device.numa_node is None else pb.TopologyInfo(nodes=[pb.NUMANode(ID=device.numa_node)])
        response.devices.add(
            ID=device.device_id, health="Healthy" if device.healthy else "Unhealthy", topology=topology
        )
    return response


def _container_response(reply: ContainerReply) -> pb.ContainerAllocateResponse:
    response = pb.ContainerAllocateResponse(envs=dict(reply.envs))
    for mount in reply.mounts:
        response.mounts.add(container_path=mount.container_path, host_path=mount.host_path, read_only=True)
    for name in reply.cdi_devices:
        response.cdi_devices.add(name=name)
    return response
