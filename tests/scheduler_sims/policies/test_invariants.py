"""Every policy keeps the invariants of scheduler_sims.testing, and the check finds policies that don't."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scheduler_sims.interface.plan import Plan
from scheduler_sims.policies import POLICIES
from scheduler_sims.policies.fifo import Fifo
from scheduler_sims.policies.placing import FreeSpace
from scheduler_sims.policies.resolve import resolve_policy
from scheduler_sims.policies.srtf import Srtf
from scheduler_sims.testing import Terms, check_policy

GOODPUT = {"pollux": "pollux:population=10,generations=5", "sia": "sia"}
"""Pollux with a search that is small enough for hundreds of rounds."""
VARIANTS = [
    *(GOODPUT.get(name, name) for name in POLICIES),
    "fifo:backfill=any",
    "fifo:backfill=easy",
    "fifo:backfill=conservative",
    "las:threshold_s=30,quantum_s=5",
    "tiresias:limits=10/60,promote=2",
    "tiresias:limits=10/60,fidelity=as_coded",
    "las-1d:limits=10/60",
    "gittins:limits=10/60,delta=20",
    "ftf:fidelity=as_coded",
    "themis:fidelity=as_coded",
    "muri-s:matching=false",
    "rounds:of=srtf,round_s=15",
    "rounds:of=tiresias;limits=10/60,round_s=15",
    "quota:gpus=*:2",
    "synergy:order=las,round_s=20",
    "placed:of=srsf,rule=spread",
    "placed:of=tiresias;limits=10/60,rule=random",
    "placed:of=fifo,rule=racks",
    "placed:of=srtf,rule=fragmentation",
]


@pytest.mark.parametrize("text", VARIANTS)
def test_the_policy_keeps_the_invariants(text):
    check_policy(lambda: resolve_policy(text)[1], terms=Terms(gpus=(1,)) if text.startswith("allox") else Terms())


@pytest.mark.parametrize("text", [GOODPUT.get(name, name) for name in POLICIES])
def test_the_policy_keeps_them_where_devices_of_a_node_differ(text):
    """As MIG instances do; and three GPUs are no power of two."""
    gpus = (1,) if text.startswith("allox") else (1, 1, 3)
    terms = Terms(jobs=16, gpus=gpus, gangs=False, nodes=(3, 3), memory_gib=(5, 20, 5))
    check_policy(lambda: resolve_policy(text)[1], seeds=(0, 1), terms=terms)


@pytest.mark.parametrize("text", [name for name in VARIANTS if not name.startswith(("allox", "pollux"))])
def test_the_policy_keeps_layers_where_nvlink_joins_their_devices(text):
    """Pairs of devices, of which jobs with one GPU break some. allox has jobs of one GPU; pollux refuses divided layers."""
    terms = Terms(jobs=16, gpus=(1, 1, 2, 4), nodes=(4, 4), nvlink_domain=2)
    check_policy(lambda: resolve_policy(text)[1], seeds=(0, 1), terms=terms)


@pytest.mark.parametrize("text", ["muri-s", "muri-l", "muri-s:fidelity=as_coded", "muri-l:matching=false"])
def test_groups_keep_the_invariants_on_shared_devices(text):
    check_policy(lambda: resolve_policy(text)[1], terms=Terms(sharing="fifo"))


class Lazy(Fifo):
    """Leaves a job out as long as others are there."""

    def plan(self, view):
        plan = super().plan(view)
        return replace(plan, started={job_id: a for job_id, a in plan.started.items() if job_id != "job-3"})


def test_a_job_that_is_never_started_is_found():
    with pytest.raises(Exception, match="job-3"):
        check_policy(Lazy)


class Unsteady(Fifo):
    """Has a memory beside `state`, so that runs differ."""

    runs = 0

    def __init__(self):
        super().__init__()
        type(self).runs += 1
        self.first = type(self).runs

    def plan(self, view):
        plan = super().plan(view)
        late = view.now_s < 20 * self.first and len(view.jobs) > 1
        return Plan.full(view.plan.allocations, wake_at_s=20.0 * self.first, state=plan.state) if late else plan


def test_a_policy_that_plays_another_game_each_time_is_found():
    with pytest.raises(AssertionError, match="same seed has another result"):
        check_policy(Unsteady)


class ByChange:
    """Starts jobs in the order in which the changes are handed over."""

    needs_estimates, preemptive = False, False

    def plan(self, view):
        space, starts = FreeSpace.now(view), {}
        for job_id in dict.fromkeys([*view.changes, *view.jobs]):
            job = view.jobs.get(job_id)
            if job is not None and job.queued and (allocation := space.place(job.configurations[0])):
                starts[job_id] = allocation
        return view.plan.evolve(start=starts)


def test_a_policy_that_depends_on_the_order_of_a_set_is_found():
    with pytest.raises(AssertionError, match="order in which jobs are listed"):
        check_policy(ByChange, seeds=range(6))


class Forgetful(Srtf):
    """Stops a running job at each arrival, for nothing."""

    def plan(self, view):
        plan = super().plan(view)
        first = next((job_id for job_id in view.plan.allocations if job_id not in plan.stopped), None)
        return replace(plan, stopped=plan.stopped | {first}) if first and "submitted" in view.triggers else plan


def test_needless_stops_break_no_invariant():
    check_policy(Forgetful, seeds=(0,))
