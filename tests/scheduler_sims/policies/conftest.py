"""A small event loop for policies: no costs, exact run times, each plan applied at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import pytest

from scheduler_sims.interface.plan import Plan
from scheduler_sims.interface.policy import Policy
from scheduler_sims.interface.view import ClusterView
from scheduler_sims.testing import Job, Node, cluster_view, places

_EPSILON_S = 1e-7


@dataclass
class Replayed:
    """When and where jobs ran: finish times, and (time, job, place) of each start, with "" for each stop."""

    jobs: Sequence[Job]
    finish_s: dict[str, float] = field(default_factory=dict)
    moves: list[tuple[float, str, str]] = field(default_factory=list)

    def starts(self) -> dict[str, float]:
        """The first start of each job."""
        return {name: at_s for at_s, name, place in reversed(self.moves) if place}

    def place(self, job_id: str) -> str:
        return next(place for _, name, place in self.moves if name == job_id)

    @property
    def total_jct_s(self) -> float:
        return sum(self.finish_s[job.job_id] - job.submit_s for job in self.jobs)


def replay(
    policy: Policy, nodes: Sequence[Node], jobs: Sequence[Job], check: Callable[[ClusterView, Plan], None] | None = None
) -> Replayed:
    """Runs `jobs` to their ends; `check` sees each view with its plan."""
    out = Replayed(jobs)
    coming = sorted((replace(job, row=row) for row, job in enumerate(jobs)), key=lambda job: (job.submit_s, job.row))
    here: dict[str, Job] = {}
    changed: set[str] = set()
    now_s, plan = 0.0, Plan()
    while coming or here:
        while coming and coming[0].submit_s <= now_s + _EPSILON_S:
            arrived = coming.pop(0)
            changed.add(arrived.job_id)
            here[arrived.job_id] = arrived
        view = cluster_view(nodes, list(here.values()), now_s=now_s, after=plan, rounds=getattr(policy, "rounds", None))
        view = replace(view, changes=frozenset(changed))
        plan = policy.plan(view)
        if check:
            check(view, plan)
        wanted = places(view, plan)
        changed = {name for name, job in here.items() if job.on != wanted.get(name, "")}
        for name in sorted(changed):
            here[name] = _moved(here[name], wanted.get(name, ""), now_s)
            out.moves.append((round(now_s, 6), name, here[name].on))
        ends = {name: now_s + (1 - job.done) * run_s(job) for name, job in here.items() if job.on}
        times = [*ends.values(), *(job.submit_s for job in coming[:1])]
        round_end_s = view.round.end_s if view.round is not None else None
        times += [at_s for at_s in (plan.wake_at_s, round_end_s) if at_s is not None]
        assert times, f"nothing runs, although {sorted(here)} wait"
        next_s = min(times)
        for name, end_s in ends.items():
            here[name] = replace(here[name], done=min(1.0, here[name].done + (next_s - now_s) / run_s(here[name])))
            if end_s <= next_s + _EPSILON_S:
                out.finish_s[name] = next_s
                changed.add(name)
                del here[name]
        plan = Plan.full({name: a for name, a in plan.allocations.items() if name in here}, state=plan.state)
        now_s = next_s
    return out


def run_s(job: Job) -> float:
    """The whole run time of a job where it is."""
    seconds = job.gpu_s if "/" in job.on else job.cpu_s
    assert isinstance(seconds, int | float)
    return seconds


def _moved(job: Job, on: str, now_s: float) -> Job:
    assert not (job.on and on), f"{job.job_id} moves from {job.on} to {on}"
    held = len(job.on.split()) if "/" in job.on else 0
    attained = job.attained_gpu_s + held * (now_s - job.running_since_s)
    return replace(job, on=on, running_since_s=now_s, queued_since_s=now_s, attained_gpu_s=attained)


@pytest.fixture(name="replay", scope="session")
def _replay() -> Callable[..., Replayed]:
    return replay
