"""Actuator `binding`: this program is the scheduler of the pods, and gives them to nodes itself (Binding API).

Nobody but the kubelet checks if they fit; one that it turns away is made anew by the EmuJobs' controller, and placed again.
"""

from __future__ import annotations

from dataclasses import replace

from operators.kube import POD
from operators.scheduling.actuators.by_pods import ByPods, notes
from operators.scheduling.hands import Hands, Wanted
from operators.scheduling.objects import PodSight


class Binding(ByPods):
    """Binds pods; to stop is to delete them."""

    def has_place(self, pod: PodSight) -> bool:
        return bool(pod.facts.node)

    async def let_go(self, hands: Hands, pod: PodSight, node: str, wanted: Wanted) -> None:
        key = replace(pod.facts.key, version="")  # its status may change meanwhile, its uid says which pod is meant
        await hands.patch(POD, key, {"metadata": {"annotations": notes(wanted)}})
        await hands.bind(key, node)
