"""A policy that packs small jobs on devices that MPS shares."""

from scheduler_sims.interface.plan import Allocation, DeviceShare, Plan, TaskPlacement
from scheduler_sims.interface.view import ClusterView


class Pack:
    """Each job gets `milli` thousandths of a device: of the one with the least room for it, so that others stay whole."""

    def __init__(self, milli: int = 500) -> None:
        self.milli = milli

    def plan(self, view: ClusterView) -> Plan:
        devices = [(node, d) for node in view.nodes.values() for d in node.devices if d.healthy and d.sharing == "mps"]
        free = {d.uuid: d.free_milli for _, d in devices}
        places = {d.uuid: d.replicas - len(d.holders) if d.replicas else len(view.jobs) for _, d in devices}
        start = {}
        for job in view.queued():
            wanted = job.configurations[0]
            fitting = [at for at in devices if free[at[1].uuid] >= self.milli and places[at[1].uuid]]
            if not fitting:
                break
            node, device = min(fitting, key=lambda at: free[at[1].uuid])
            free[device.uuid] -= self.milli
            places[device.uuid] -= 1
            share = DeviceShare(device.uuid, device.gpu_type, self.milli, wanted.device_memory_bytes)
            start[job.job_id] = Allocation(wanted.name, (TaskPlacement(node.name, (share,), wanted.cpu_milli),))
        return view.plan.evolve(start=start)
