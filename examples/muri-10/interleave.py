"""A policy that runs a job of each queue on one shared device."""

from scheduler_sims.interface.plan import Allocation, DeviceShare, Plan, TaskPlacement
from scheduler_sims.interface.view import ClusterView


class Interleave:
    """One job of each queue at a time, shortest first, all of them on the first device; `user` names a job's queue."""

    needs_estimates = True

    def plan(self, view: ClusterView) -> Plan:
        node = next(iter(view.nodes.values()))
        device = node.devices[0]
        busy = {job.user for job in view.holding()}
        start = {}
        for job in sorted(view.queued(), key=view.remaining_s):
            if job.user not in busy:
                busy.add(job.user)
                configuration = job.configurations[0]
                share = DeviceShare(device.uuid, device.gpu_type, 500, configuration.device_memory_bytes)
                task = TaskPlacement(node.name, (share,), configuration.cpu_milli)
                start[job.job_id] = Allocation(configuration.name, (task,))
        return view.plan.evolve(start=start)
