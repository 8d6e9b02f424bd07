"""Actuator `binding`: this program is the scheduler of the pods, and gives them to nodes itself (Binding API).

Nobody but the kubelet checks if they fit; one that it turns away is made anew by the EmuJobs' controller, and placed again.
"""

from __future__ import annotations

from dataclasses import replace

from operators.kube.api import POD
from operators.scheduling.actuators.by_pods import ByPods, notes
from operators.scheduling.objects import ScheduledPod
from operators.scheduling.writer import Wanted, Writer


class Binding(ByPods):
    """Binds pods; to stop is to delete them."""

    def has_place(self, pod: ScheduledPod) -> bool:
        return bool(pod.facts.node)

    async def let_go(self, writer: Writer, pod: ScheduledPod, node: str, wanted: Wanted) -> None:
        key = replace(pod.facts.key, version="")  # its status may change meanwhile, its uid says which pod is meant
        await writer.patch(POD, key, {"metadata": {"annotations": notes(wanted)}})
        await writer.bind(key, node)
