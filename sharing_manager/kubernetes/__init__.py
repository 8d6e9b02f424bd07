"""The manager's connections to the API server and the kubelet: who a peer is, what the node's devices are, Events.

    kubelet --- PodResources (gRPC) ---> pod_resources --+
    API server - Node (watch) ---------> node_watch -----+
    API server - pods (watch) ---------> pod_watch ------+--> border --> the poller's thread (Poller.call_soon)
    API server - pods (list) ----------> pods -----------+
    API server <- Events (create) ------ events <-------------- border

Importing this package is cheap: only `connect` imports ssl and grpc.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from emulator_runtime.ipc.poller import CallSoon
    from sharing_manager.kubernetes.border import BorderSettings, KubernetesBorder


def connect(settings: BorderSettings, poller: CallSoon) -> KubernetesBorder:
    """Make the border from the settings; it sends no request before its `start`. Raises InputError for a wrong setting."""
    from sharing_manager.kubernetes.border import open_border

    return open_border(settings, poller)
