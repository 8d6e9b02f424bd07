"""What there is on a cluster before an experiment: its nodes as a scheduler counts them, and whether anybody uses them."""

from __future__ import annotations

from dataclasses import dataclass

from emulator_runtime.domain.errors import InputError
from operators.emujob.workload import cluster_spec
from operators.kube.api import EMUJOB, NODE, POD, POOL, Api, NotThereError, everywhere
from operators.objects.node import Node
from operators.objects.pod import Pod
from operators.objects.pool import Pool
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
        await api.list(EMUJOB, **everywhere())
        _, pools = await api.list(POOL)
    except NotThereError as error:
        raise InputError(
            "--on kubernetes", "the cluster doesn't know EmuJobs; install the chart (emugpu cluster up)"
        ) from error
    _, nodes = await api.list(NODE)
    _, pods = await api.list(POD, **everywhere())
    facts = [Node.read(document) for document in nodes]
    spec = cluster_spec([Pool.read(document) for document in pools], facts)
    ready = {node.name for node in facts if node.ready}
    return Present(
        spec,
        unready=tuple(node.name for node in spec.nodes if node.name not in ready),
        users=tuple(sorted(str(pod.key) for pod in map(Pod.read, pods) if pod.uses_emugpu and not pod.over)),
    )
