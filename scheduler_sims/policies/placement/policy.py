"""Another placement for any policy: its plan says which jobs run, the rule says where those that start do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from emulator_runtime.domain.errors import InputError, UnknownNameError
from emulator_runtime.domain.job import Configuration
from scheduler_sims.interface.plan import WHOLE_DEVICE_MILLI, Allocation, Plan
from scheduler_sims.interface.policy import Policy
from scheduler_sims.interface.rounds import Rounds
from scheduler_sims.interface.view import ClusterView
from scheduler_sims.policies.placement.rules import RULES, Question, Room, Rule, mix_of
from scheduler_sims.policies.placing import FreeSpace


class Placed:
    """The policy `of`, whose starting jobs are placed by `rule`; it must use whole devices.

    packed: on the fullest node. spread: on the emptiest. random: anywhere (`seed`). racks: nodes with the same label `rack`
    together. fragmentation: where the fewest devices become useless for the present mix of jobs (FGD). A job that the rule finds
    no place for, beside the other starts, keeps the policy's. `of`: the name of a policy, with options as
    `srtf` or `tiresias;promote=2`.
    """

    needs_estimates: bool = False
    preemptive: bool = True

    def __init__(self, of: str = "fifo", rule: str = "packed", seed: int = 0) -> None:
        from scheduler_sims.policies.resolve import resolve_policy  # it imports the table that has this class

        name, _, options = of.partition(";")
        if name == "placed":
            raise InputError("placed: of", "must be another policy than placed")
        if rule not in RULES:
            raise UnknownNameError("placed: rule", "rule", rule, RULES)
        self._rule: Rule = RULES[rule]
        self._rule_name, self._seed = rule, seed
        self._policy: Policy = resolve_policy(f"{name}:{options.replace(';', ',')}" if options else name)[1]
        self.needs_estimates = self._policy.needs_estimates
        self.preemptive = self._policy.preemptive
        self.one_node = getattr(self._policy, "one_node", False)
        self.rounds: Rounds | None = getattr(self._policy, "rounds", None)

    def plan(self, view: ClusterView) -> Plan:
        """The policy's plan with other places for the jobs that start."""
        plan = self._policy.plan(view)
        if plan.base is not view.plan:
            return plan
        held = view.plan.allocations
        starts = {job_id: a for job_id, a in plan.started.items() if job_id not in held and _movable(view, job_id, a)}
        if not starts:
            return plan
        return replace(plan, started={**plan.started, **self._placed(view, plan, starts)})

    def _placed(self, view: ClusterView, plan: Plan, starts: Mapping[str, Allocation]) -> Mapping[str, Allocation]:
        """All starts by the rule; if one of them finds no place, all keep the policy's, which fit together."""
        space = FreeSpace.now(view)
        for job in view.holding():
            if job.allocation and (job.job_id in plan.stopped or job.job_id not in view.plan.allocations):
                space.release(job.allocation)
        for job_id, allocation in plan.started.items():
            if job_id not in starts and job_id not in view.plan.allocations:
                space.take(allocation)
        mix = mix_of(view)
        placed: dict[str, Allocation] = {}
        for job_id, allocation in starts.items():
            job = view.jobs[job_id]
            wanted = job.configuration(allocation.configuration)
            order = self._rule(Question(job, wanted, mix, self._seed), _rooms(view, space))
            found = _place(space, wanted, [room.name for room in order])
            if found is None:
                return {}
            placed[job_id] = found
        return placed


def _place(space: FreeSpace, wanted: Configuration, nodes: list[str]) -> Allocation | None:
    """The job on the first nodes that fit, all tasks on devices of the same types."""
    one = replace(wanted, min_tasks=1, max_tasks=1)
    found: list[Allocation] = []
    for node in nodes:
        task = space.place(one, node=node)
        if task is None:
            continue
        if found and [s.gpu_type for s in task.tasks[0].shares] != [s.gpu_type for s in found[0].tasks[0].shares]:
            space.release(task)
            continue
        found.append(task)
        if len(found) == wanted.min_tasks:
            return Allocation(wanted.name, tuple(task for each in found for task in each.tasks))
    for task in found:
        space.release(task)
    return None


def _rooms(view: ClusterView, space: FreeSpace) -> list[Room]:
    return [Room(name, *space.free(name), view.nodes[name].labels.get("rack", name)) for name in view.nodes]


def _movable(view: ClusterView, job_id: str, allocation: Allocation) -> bool:
    """Whether the job may start elsewhere: it has whole devices, and the policy doesn't choose its GPUs, its CPUs, its memory or
    the nodes of its layers by place."""
    if job_id not in view.jobs:
        return False
    wanted = view.jobs[job_id].configuration(allocation.configuration)
    by_place = wanted.elastic or wanted.parallelism.nodes_per_layer(wanted.gpus) > 1
    tasks = allocation.tasks
    whole = all(share.milli == WHOLE_DEVICE_MILLI for task in tasks for share in task.shares)
    return whole and not by_place and not any(task.cpu_milli > wanted.cpu_milli for task in tasks)
