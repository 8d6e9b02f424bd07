"""A policy for elastic jobs: each gets its least GPUs, and further ones go where they bring the largest speed-up."""

from scheduler_sims.interface.plan import Plan
from scheduler_sims.interface.view import ClusterView, JobView
from scheduler_sims.policies.placing import FreeSpace


class Grow:
    """Divides the GPUs anew when a job comes or ends. A job that ends within `patience` restarts' time keeps its own."""

    needs_estimates = True
    preemptive = True

    def __init__(self, patience: float = 5.0) -> None:
        self.patience = patience

    def plan(self, view: ClusterView) -> Plan:
        space, start, stop = FreeSpace.now(view), {}, []
        for job_id, gpus in self._divided(view).items():
            job = view.jobs[job_id]
            if job.queued:
                allocation = space.place(job.configurations[0].with_gpus(gpus))
                if allocation is not None:
                    start[job_id] = allocation
            elif job_id in view.plan.allocations and job.allocation.gpus != gpus:
                stop.append(
                    job_id
                )  # its stop ends with a call of this policy, which then starts it with its new number
        return view.plan.evolve(start=start, stop=stop)

    def _divided(self, view: ClusterView) -> dict[str, int]:
        """The number of GPUs of each job, the others wait: in order of submission, then by marginal speed-up."""
        free = sum(device.healthy for node in view.nodes.values() for device in node.devices)
        restart_s = view.costs.release_s() + view.costs.begin_s(resumed=True)
        left_s = {j: view.remaining_with_s(view.jobs[j], a) for j, a in view.plan.allocations.items()}
        fixed = {j: view.plan.allocations[j].gpus for j in left_s if left_s[j] < self.patience * restart_s}
        free, gpus = free - sum(fixed.values()), {}
        for job in view.jobs.values():
            least = job.configurations[0].gpu_range.start
            if job.job_id not in fixed and least <= free:
                gpus[job.job_id], free = least, free - least
        while free > 0 and gpus:
            gains = {job_id: self._gain(view, view.jobs[job_id], number) for job_id, number in gpus.items()}
            best = max(gains, key=gains.__getitem__)
            if gains[best] <= 0:
                break
            gpus[best], free = gpus[best] + 1, free - 1
        return fixed | gpus

    def _gain(self, view: ClusterView, job: JobView, gpus: int) -> float:
        """What one more GPU adds to the job's speed, as a multiple of that with the least GPUs."""
        numbers = job.configurations[0].gpu_range
        if gpus + 1 not in numbers:  # also where numbers come in steps, such as whole replicas
            return 0.0
        least, now, more = (
            view.estimates.rate(job, FreeSpace.empty(view).place(job.configurations[0].with_gpus(number)))
            for number in (numbers.start, gpus, gpus + 1)
        )
        return (more - now) / least
