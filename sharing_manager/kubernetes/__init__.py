"""The manager's border to Kubernetes: pods and inventory in, events and metrics out; nothing of it is imported elsewhere.

    kubelet --- PodResources (gRPC) ---> pod_resources --+
    API server - Node (watch) ---------> node_watch -----+
    API server - pods (watch) ---------> pod_watch ------+--> border --> the poller's thread (Poller.call_soon)
    API server - pods (list) ----------> pods -----------+
    API server <- Events (create) ------ events <-------------- border

Importing this package costs nothing; `connect` brings in ssl and grpc where they are asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from emulator_runtime.ipc.poller import CallSoon
    from sharing_manager.kubernetes.border import BorderSettings, KubernetesBorder


def connect(settings: BorderSettings, poller: CallSoon) -> KubernetesBorder:
    """The border as the settings want it; nothing is asked before its `start`. Raises InputError for a wrong setting."""
    from sharing_manager.kubernetes.border import open_border

    return open_border(settings, poller)
