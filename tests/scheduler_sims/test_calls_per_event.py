"""The work of an event doesn't grow with the number of jobs that wait or run: counted in Python calls, without a clock."""

from __future__ import annotations

import sys
from collections.abc import Callable
from random import Random

import pytest

from emulator_runtime.domain.job import Configuration, JobSpec, TimedWork
from emulator_runtime.profiles.table import ProfileTable
from scheduler_sims.clusters.base import Event
from scheduler_sims.clusters.simulated import SimulatedCluster
from scheduler_sims.inputs.cluster_file import ClusterSpec
from scheduler_sims.inputs.truth import WorkloadTruth
from scheduler_sims.inputs.workload import Workload
from scheduler_sims.interface.estimates import parse_estimates
from scheduler_sims.loop.scheduler_loop import SchedulerLoop
from scheduler_sims.loop.strategies import Ending
from scheduler_sims.policies.resolve import resolve_policy
from scheduler_sims.testing import Node

MOST_CALLS = {"fifo": 200, "sjf": 260, "srtf": 575, "las": 470, "tiresias": 420}
"""Python calls of one event (arrival, end of a run): a seventh more than were measured when this was written."""
MOST_GROWTH = 1.3
"""For four times as many jobs. Searching a heap or a sorted list takes a little longer; walking over them, four times."""


class Counting(SimulatedCluster):
    """Counts the events that it hands out, beside those of starts, which are no news."""

    events = 0

    def wait(self, until_ns: int | None) -> list[Event]:
        events = super().wait(until_ns)
        self.events += sum(event.what != "started" for event in events)
        return events


def calls_per_event(cluster: ClusterSpec, policy: str, waiting: int) -> float:
    """Python calls of an event while about so many jobs wait: an arrival for each end of a job."""
    draw = Random(f"{policy}/calls")
    gpus = cluster.gpus
    jobs = []
    for row in range(gpus + waiting + 150):
        width = draw.choice([1, 1, 1, 2, 4])
        submit_s = max(0, row - gpus - waiting) * 2.0
        work = {"gpu": TimedWork(draw.uniform(100.0, 4 * gpus))}
        configuration = Configuration("gpu", width, 1000 * width)
        jobs.append(JobSpec(f"j{row}", f"u{row % 7}", submit_s, 50, (configuration,), work, row))
    truth = WorkloadTruth(Workload("calls", tuple(jobs), ProfileTable.bundled()), cluster)
    simulated = Counting(truth, cluster.costs)
    first, last = 20, 90

    def run(until: int) -> None:
        loop._ending = Ending(lambda books: books.ended >= until)
        loop.run()

    loop = SchedulerLoop(simulated, cluster, resolve_policy(policy)[1], parse_estimates("oracle", truth, 0), jobs)
    run(first)
    began = simulated.events + arrived(loop)
    calls = counted(lambda: run(last))
    assert len(loop.books.views) - len(loop.books.held) >= waiting / 2
    return calls / (simulated.events + arrived(loop) - began)


def arrived(loop: SchedulerLoop) -> int:
    return loop.books.ended + len(loop.books.views)


def counted(work: Callable[[], None]) -> int:
    """The Python functions that `work` calls; resumed generators count too."""
    calls = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(before)
    return calls


@pytest.mark.parametrize("policy", MOST_CALLS)
def test_more_waiting_jobs_cost_an_event_nothing(cluster_spec, policy):
    cluster = cluster_spec([Node(f"n{i}", gpus=8) for i in range(4)])
    few, many = (calls_per_event(cluster, policy, waiting) for waiting in (150, 600))
    assert many <= MOST_CALLS[policy]
    assert many <= MOST_GROWTH * few


@pytest.mark.parametrize("policy", MOST_CALLS)
def test_more_running_jobs_cost_an_event_nothing(cluster_spec, policy):
    few, many = (
        calls_per_event(cluster_spec([Node(f"n{i}", gpus=8) for i in range(nodes)]), policy, 200) for nodes in (4, 16)
    )
    assert many <= MOST_GROWTH * few
