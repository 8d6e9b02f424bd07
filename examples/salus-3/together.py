"""A policy that puts jobs together on one device."""

from scheduler_sims.interface.plan import Allocation, DeviceShare, Plan, TaskPlacement
from scheduler_sims.interface.view import ClusterView


class Together:
    """Up to `most` jobs of one GPU on each device that is shared, in order of submission."""

    def __init__(self, most: int = 3) -> None:
        self.milli = 1000 // most

    def plan(self, view: ClusterView) -> Plan:
        free = {device.uuid: device.free_milli for node in view.nodes.values() for device in node.devices}
        start = {}
        for job in view.queued():
            configuration = job.configurations[0]
            for node in view.nodes.values():
                device = next(
                    (d for d in node.devices if d.sharing != "exclusive" and free[d.uuid] >= self.milli), None
                )
                if device is not None:
                    free[device.uuid] -= self.milli
                    share = DeviceShare(device.uuid, device.gpu_type, self.milli, configuration.device_memory_bytes)
                    task = TaskPlacement(node.name, (share,), configuration.cpu_milli)
                    start[job.job_id] = Allocation(configuration.name, (task,))
                    break
        return view.plan.evolve(start=start)
