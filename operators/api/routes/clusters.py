"""The present state of clusters, nodes and devices."""

from __future__ import annotations

from fastapi import APIRouter, Response

from operators.api.authentication.callers import CurrentServices, Reader
from operators.api.model.natural_order import natural
from operators.api.model.visibility import device_view, visible
from operators.api.replies.bodies import Clusters, ClusterState, Devices, Nodes, by_phase, json_reply
from operators.api.replies.problems import documented

router = APIRouter(tags=["cluster"], responses=documented(401, 403, 422, 503))


@router.get("/clusters", response_model=Clusters, summary="The cluster or the comparisons that this API serves")
async def clusters(services: CurrentServices, scope: Reader) -> Response:
    """One item: the cluster in which the API runs, or the comparisons for which it was started."""
    snapshot, changes = services.source.snapshot(), services.source.changes
    devices = [device for device in snapshot.devices if device.index is not None]
    state = ClusterState(
        cluster=snapshot.cluster,
        version=snapshot.version,
        now_s=snapshot.now_s,
        event=changes.id_of(changes.last),
        jobs=by_phase(visible(snapshot, scope)),
        nodes=len(snapshot.nodes),
        devices=len(devices),
        held=sum(device.held for device in devices),
        unhealthy=sum(not device.healthy for device in devices),
    )
    return json_reply(Clusters, Clusters([state]))


@router.get("/nodes", response_model=Nodes, summary="Nodes with emulated devices")
async def nodes(services: CurrentServices, _scope: Reader) -> Response:
    """In order of their names, w2 before w10."""
    return json_reply(Nodes, Nodes(sorted(services.source.snapshot().nodes, key=lambda node: natural(node.name))))


@router.get("/devices", response_model=Devices, summary="Emulated devices and the jobs that hold them")
async def devices(services: CurrentServices, scope: Reader) -> Response:
    """A caller who may read one namespace sees that a device is held, but only their own jobs as holders."""
    return json_reply(Devices, Devices(device_view(services.source.snapshot(), scope)))
