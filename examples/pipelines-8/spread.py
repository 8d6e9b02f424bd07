"""A policy that keeps jobs of one kind apart, because they wait for the same resource."""

from collections import Counter

from scheduler_sims.interface.plan import WHOLE_DEVICE_MILLI, Allocation, DeviceShare, Plan, TaskPlacement
from scheduler_sims.interface.view import ClusterView


class Spread:
    """Starts each job on the node that has the fewest jobs of its user, in order of submission. For jobs of one GPU."""

    def plan(self, view: ClusterView) -> Plan:
        free = {
            node.name: [device for device in node.devices if device.free_milli == WHOLE_DEVICE_MILLI]
            for node in view.nodes.values()
        }
        running = [(job.user, job.allocation) for job in view.jobs.values() if job.allocation is not None]
        present = Counter((task.node, user) for user, allocation in running for task in allocation.tasks)
        start = {}
        for job in view.queued():
            nodes = [name for name, devices in free.items() if devices]
            if not nodes:
                break
            node, way = min(nodes, key=lambda name: present[name, job.user]), job.configurations[0]
            device = free[node].pop(0)
            present[node, job.user] += 1
            share = DeviceShare(device.uuid, device.gpu_type, WHOLE_DEVICE_MILLI, way.device_memory_bytes)
            start[job.job_id] = Allocation(way.name, (TaskPlacement(node, (share,), way.cpu_milli),))
        return view.plan.evolve(start=start)
