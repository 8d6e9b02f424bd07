"""What there is on a cluster before an experiment: its nodes as a scheduler counts them, and whether anybody uses them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from emulator_runtime.domain.errors import InputError
from operators.emujob.workload import cluster_spec
from operators.kube.api import EMUJOB, NODE, POD, POOL, Api, NotThereError
from operators.kube.documents import object_at, text_at
from operators.kube.store import full_name_of
from operators.pools.objects import node_facts, pool_facts
from operators.results.pods import devices_of
from scheduler_sims.inputs.cluster_file import ClusterSpec
from scheduler_sims.reports.formats import list_some


@dataclass(frozen=True, slots=True)
class Present:
    """`spec`: the pools' nodes by name; `unready`: those that don't answer; `users`: pods that have emulated devices."""

    spec: ClusterSpec
    unready: tuple[str, ...] = ()
    users: tuple[str, ...] = ()

    def check_idle(self, place: str = "--on kubernetes") -> None:
        """Raises InputError at `place` where an experiment would share the cluster, or miss a part of it."""
        if self.unready:
            raise InputError(place, f"{list_some(self.unready)} don't answer; wait until the nodes are ready")
        if self.users:
            problem = f"{list_some(self.users)} use emulated devices; an experiment needs the cluster for itself"
            raise InputError(place, problem)


async def look(api: Api) -> Present:
    """Raises InputError where the cluster has no emugpu, and what Api raises."""
    try:
        await api.list(EMUJOB)
        _, pools = await api.list(POOL)
    except NotThereError as error:
        raise InputError(
            "--on kubernetes", "the cluster doesn't know EmuJobs; install the chart (emugpu cluster up)"
        ) from error
    _, nodes = await api.list(NODE)
    _, pods = await api.list(POD)
    facts = [node_facts(document) for document in nodes]
    spec = cluster_spec([pool_facts(document) for document in pools], facts)
    ready = {node.name for node in facts if node.ready}
    return Present(
        spec,
        unready=tuple(node.name for node in spec.nodes if node.name not in ready),
        users=tuple(sorted(full_name_of(pod) for pod in pods if _uses_devices(pod))),
    )


def _uses_devices(pod: Mapping[str, Any]) -> bool:
    if text_at(object_at(pod, "status"), "phase") in ("Succeeded", "Failed"):
        return False
    return devices_of(object_at(pod, "spec")) is not None
