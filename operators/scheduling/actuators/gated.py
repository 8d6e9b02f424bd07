"""Actuator `gated`: pods wait behind a scheduling gate; it is opened with a node selector, and a scheduler of pods binds them.

A gated pod's node selector may be added to, and its gates may be taken away (Kubernetes, Pod scheduling readiness).
"""

from __future__ import annotations

from operators.kube.api import POD
from operators.objects.names import GATE
from operators.pools.objects import HOSTNAME_LABEL
from operators.scheduling.actuators.by_pods import ByPods, notes
from operators.scheduling.objects import ScheduledPod
from operators.scheduling.writer import Wanted, Writer


class Gated(ByPods):
    """Opens the gate; to stop is to delete the pods."""

    def has_place(self, pod: ScheduledPod) -> bool:
        return GATE not in pod.gates

    async def let_go(self, writer: Writer, pod: ScheduledPod, node: str, wanted: Wanted) -> None:
        spec = {
            "schedulingGates": [{"$patch": "delete", "name": GATE}],  # other people's gates stay
            "nodeSelector": {HOSTNAME_LABEL: wanted.hosts[node]},
        }
        await writer.patch(POD, pod.facts.key, {"metadata": {"annotations": notes(wanted)}, "spec": spec})
