"""The cheapest preemption that Room finds from the top is the one that a look at all nodes finds."""

from __future__ import annotations

from dataclasses import replace
from math import inf

from hypothesis import given, settings
from hypothesis import strategies as st

from emulator_runtime.domain.job import Configuration
from scheduler_sims.interface.view import Phase
from scheduler_sims.policies.departures import Departures
from scheduler_sims.policies.placing import FreeSpace
from scheduler_sims.policies.preempting import Ranks, Room
from scheduler_sims.testing import Job, Node, cluster_view

NODES = [Node("a", gpus=4, cpus=8), Node("b", gpus=4, cpus=4), Node("c", gpus=2, cpus=8)]
DEVICES = [f"{node.name}/{index}" for node in NODES for index in range(node.gpus)]


@st.composite
def running(draw):
    """Jobs on disjoint devices; some of two nodes, some stopping, in order of submission."""
    free, jobs = draw(st.permutations(DEVICES)), []
    while free and len(jobs) < 7:
        gpus = draw(st.integers(1, 2))
        on, free = free[:gpus], free[gpus:]
        nodes = len({place[0] for place in on})
        phase = draw(st.sampled_from([Phase.RUNNING, Phase.RUNNING, Phase.STARTING, Phase.STOPPING]))
        number = len(jobs)
        jobs.append(
            Job(
                f"j{number}",
                gpu_s=10,
                gpus=len(on),
                nodes=nodes,
                cpus=nodes,
                on=" ".join(sorted(on)),
                phase=phase,
                submit_s=number,
            )
        )
    return jobs


ranks = st.lists(st.sampled_from([None, 1.0, 2.0, 2.0, 5.0, 9.0]), min_size=7, max_size=7)
wanted = st.builds(Configuration, st.just("gpu"), st.integers(1, 4), st.sampled_from([1000, 3000, 6000]))


def tasks_on(node, jobs):
    return [task for job in jobs for task in job.allocation.tasks if task.node == node]


def brute(space, holders, rank_of, wants, above):
    """Of each node the jobs that must leave, from the largest key on; the node whose least key is the largest."""
    best = None
    order = list(dict.fromkeys(node for job in holders for node in job.allocation.nodes))
    for node in order:
        there = [job for job in holders if node in job.allocation.nodes]
        keys = {
            job.job_id: (inf, inf, inf) if job.phase is Phase.STOPPING else (rank_of[job.job_id], *job.order)
            for job in there
        }
        there.sort(key=lambda job: (keys[job.job_id], job.job_id), reverse=True)
        leaving = []
        for job in there:
            if job.phase is not Phase.STOPPING and keys[job.job_id] <= (above, inf, inf):
                break
            leaving.append(job)
            if not space.fits(wants, node, tasks_on(node, leaving)):
                continue
            for other in reversed(list(leaving)):
                rest = [each for each in leaving if each is not other]
                if space.fits(wants, node, tasks_on(node, rest)):
                    leaving = rest
            least = min(
                (keys[each.job_id] for each in leaving if each.phase is not Phase.STOPPING), default=(inf, inf, inf)
            )
            if best is None or least > best[0]:
                best = least, node, {each.job_id for each in leaving if each.phase is not Phase.STOPPING}
            break
    return best


@settings(max_examples=300, deadline=None)
@given(
    jobs=running(),
    given_ranks=ranks,
    wants=wanted,
    above=st.sampled_from([0.0, 1.0, 2.0, 6.0, inf]),
    bounds=st.booleans(),
)
def test_the_cheapest_preemption_is_found(jobs, given_ranks, wants, above, bounds):
    view = cluster_view(NODES, jobs)
    rank_of = {job.job_id: rank for job, rank in zip(jobs, given_ranks, strict=False) if rank is not None}
    considered = [job for job in view.holding() if job.phase is Phase.STOPPING or job.job_id in rank_of]
    expected = (
        None if FreeSpace.now(view).place(wants) else brute(FreeSpace.now(view), considered, rank_of, wants, above)
    )
    space = FreeSpace.now(view)
    departures = Departures()
    for job in considered:
        departures.put(job, rank_of.get(job.job_id, inf) + (3.0 if bounds else 0.0))
    room = Room.kept(space, departures, (lambda job: rank_of[job.job_id]) if bounds else None)
    allocation = room.place(wants, above)
    if FreeSpace.now(view).place(wants):
        assert allocation == FreeSpace.now(view).place(wants)
    elif expected is None:
        assert allocation is None
        assert room.place(wants, above) is None  # remembered, not searched again
    else:
        assert allocation.nodes == (expected[1],)
        assert {job.job_id for job in room.stopped} == expected[2]
    room.finish()
    assert set(departures.jobs) == {job.job_id for job in considered}
    once = Room(FreeSpace.now(view), view.holding(), Ranks(dict(rank_of)))
    assert once.place(wants, above) == allocation


@st.composite
def happenings(draw):
    """Attempts with any limits, between which ranks fall, jobs come under way, and some are spared."""
    few = st.sampled_from([draw(wanted), Configuration("gpu", 2, 1000)])
    place = st.tuples(st.just("place"), few, st.sampled_from([0.0, 1.0, 2.0, 4.0, 6.0, inf]))
    put = st.tuples(st.just("put"), st.integers(0, 6), st.sampled_from([1.0, 2.0, 3.0, 5.0, 9.0]))
    drop = st.tuples(st.just("drop"), st.integers(0, 6), st.none())
    return draw(st.lists(st.one_of(place, place, put, drop), min_size=4, max_size=24))


@settings(max_examples=300, deadline=None)
@given(jobs=running(), told=happenings(), bounds=st.booleans())
def test_nothing_that_may_be_possible_is_taken_for_in_vain(jobs, told, bounds):
    """The same as without what earlier attempts have shown."""
    view = cluster_view(NODES, jobs)
    holders = dict(enumerate(view.holding()))
    refine = (lambda job: job.row % 3 + 0.5) if bounds else None
    worlds = [(FreeSpace.now(view), Departures()) for _ in range(2)]
    told = [*(("put", number, 2.0 * number + 1.0) for number in holders), *told]
    for what, given_what, value in told:
        found = []
        for forgetful, (space, departures) in enumerate(worlds):
            if what == "place":
                if forgetful:
                    departures.hopes.clear()
                    departures.failed.clear()
                room = Room.kept(space, departures, refine)
                found.append((room.place(given_what, value), [job.job_id for job in room.stopped]))
                room.finish()
            elif (job := holders.get(given_what)) is not None:
                departures.drop(job.job_id)
                if what == "put":
                    departures.put(job, value)
        assert len(found) < 2 or found[0] == found[1]


def test_what_was_in_vain_is_tried_again_when_another_job_may_leave():
    view = cluster_view([Node("n", gpus=1)], [Job("r", gpu_s=9, on="n/0")])
    (job,) = view.holding()
    space, departures, wants = FreeSpace.now(view), Departures(), Configuration("gpu", 1, 1000)
    assert Room.kept(space, departures).place(wants, 0.0) is None
    departures.put(job, 1.0)
    assert Room.kept(space, departures).place(wants, 2.0) is None
    assert Room.kept(space, departures).place(wants, 0.0) is not None


def test_what_was_in_vain_is_tried_again_when_something_is_released():
    view = cluster_view([Node("n", gpus=1)], [Job("r", gpu_s=9, on="n/0")])
    (job,) = view.holding()
    space, departures, wants = FreeSpace.now(view), Departures(), Configuration("gpu", 1, 1000)
    assert Room.kept(space, departures).place(wants, 0.0) is None
    space.release(job.allocation)
    assert Room.kept(space, departures).place(wants, 0.0) is not None


def test_departures_forget_who_left():
    view = cluster_view(
        [Node("n", gpus=2)], [Job("r", gpu_s=9, on="n/0"), Job("s", gpu_s=9, on="n/1", phase=Phase.STOPPING)]
    )
    departures = Departures()
    for job in view.holding():
        departures.put(job, 1.0)
        departures.put(replace(job), 2.0)
    assert (departures.devices("n"), len(departures.ranked), list(departures.leaving)) == (2, 1, ["s"])
    for job in view.holding():
        departures.drop(job.job_id)
        departures.drop(job.job_id)
    assert (departures.devices("n"), departures.ranked, departures.leaving) == (0, [], {})
    assert list(departures.on("n")) == []
