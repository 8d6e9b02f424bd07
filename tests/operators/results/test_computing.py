"""A job's result from its events: the figures, what is tolerated, and what is told about the clocks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from operators.results.computing import job_result
from operators.results.facts_and_result import EVENT_LOG, KUBERNETES, CrossCheck, from_json, merged, to_json

S = 1_000_000_000
T0 = 1_700_000_000 * S


def at(result_ns):
    return None if result_ns is None else (result_ns - T0) / S


def run_through(node, begin_s, end_s, first, last, kind="finished", **more):
    node.tell("granted", begin_s - 0.1, first, from_step=first, **more)
    node.tell("attached", begin_s, first, detail="GPU-1,GPU-2", **more)
    for step in range(first + 1, last):
        node.tell("progress", begin_s + (end_s - begin_s) * (step - first) / (last - first), step, **more)
    node.tell(kind, end_s, last, **more)


@pytest.fixture
def preempted(teller):
    """Steps 0 to 4 on n1 from second 10 to 20, the others on n2 from second 30 to 50."""
    first, second = teller("n1"), teller("n2")
    run_through(first, 10, 20, 0, 4, "released")
    run_through(second, 30, 50, 4, 10, pod="pod-2")
    return [*first.events, *second.events]


def test_a_preempted_job_has_two_runs_and_the_time_between_is_neither_queueing_nor_service(preempted, facts):
    result = job_result(facts(steps=10, isolated_s=25.0, gpus=2), preempted)
    assert (result.jct_s, result.queueing_delay_s, result.service_s) == (50, 10, 30)
    assert (result.slowdown, result.preemptions, result.interruptions) == (2, 1, 0)
    assert (result.outcome, result.told_by, result.steps_done) == ("finished", EVENT_LOG, 10)
    assert (result.steps_missing, result.steps_repeated) == (0, 0)
    assert [(r.node, r.pod, r.devices, at(r.begin_ns), at(r.end_ns), r.from_step, r.to_step) for r in result.runs] == [
        ("n1", "pod-1", ("GPU-1", "GPU-2"), 10, 20, 0, 4),
        ("n2", "pod-2", ("GPU-1", "GPU-2"), 30, 50, 4, 10),
    ]
    assert result.notes == ()


def test_a_job_of_two_pods_ends_with_the_last_one_and_is_preempted_once(teller, facts):
    first, second = teller("n1"), teller("n2")
    for node, key, late_s in ((first, "job/0", 0), (second, "job/1", 2)):
        run_through(node, 10 + late_s, 20 + late_s, 0, 4, "released", key=key)
        run_through(node, 40, 60 + late_s, 4, 10, key=key, pod="b")
    both = job_result(facts(tasks=2, steps=10), [*first.events, *second.events])
    assert (both.jct_s, both.queueing_delay_s, both.service_s, both.preemptions) == (62, 10, 12 + 22, 1)
    alone = job_result(facts(tasks=2, steps=10), first.events)
    assert (alone.outcome, alone.jct_s, alone.steps_done) == ("", None, 0)


def test_the_steps_of_a_job_of_two_pods_are_those_of_its_slowest_when_that_told_of_them(teller, facts):
    first, second, gang = teller("n1"), teller("n2"), facts(tasks=2, steps=100)
    first.tell("attached", 5, key="job/0")
    assert at(job_result(gang, first.events).heard_ns) == 5
    second.tell("attached", 6, key="job/1")
    first.tell("progress", 10, 20, key="job/0")
    second.tell("progress", 9, 18, key="job/1")
    found = job_result(gang, [*first.events, *second.events])
    assert (found.steps_done, at(found.heard_ns)) == (18, 9)
    second.tell("progress", 12, 24, key="job/1")
    found = job_result(gang, [*first.events, *second.events])
    assert (found.steps_done, at(found.heard_ns)) == (20, 10)


def test_a_job_that_runs_has_no_completion_time_yet(teller, facts):
    node = teller("n1")
    node.tell("attached", 5)
    node.tell("progress", 8, 3)
    result = job_result(facts(steps=10, isolated_s=1.0), node.events)
    assert (result.outcome, result.jct_s, result.slowdown) == ("", None, None)
    assert (result.queueing_delay_s, result.service_s, result.steps_done) == (5, 3, 3)
    assert result.runs[0].end_ns is None
    assert not result.settled(T0 + 10**6 * S)


def test_a_job_without_events_is_queued(facts):
    result = job_result(facts(), [])
    assert (result.outcome, result.queueing_delay_s, result.service_s, result.runs) == ("", None, 0, ())


def test_a_run_whose_end_nobody_told_ends_with_its_last_word(teller, facts):
    lost, after = teller("n1"), teller("n2")
    lost.tell("attached", 10, 0)
    lost.tell("progress", 14, 4)
    run_through(after, 30, 50, 4, 10, pod="pod-2")
    result = job_result(facts(steps=10), [*lost.events, *after.events])
    assert [(r.ended, at(r.end_ns)) for r in result.runs] == [("untold", 14), ("finished", 50)]
    assert (result.preemptions, result.interruptions) == (0, 1)


def test_a_lost_beginning_and_a_lost_finish_are_seen_by_the_steps(teller, facts):
    node = teller("n1")
    node.tell("progress", 12, 6, from_step=2)
    node.tell("progress", 20, 10)
    result = job_result(facts(steps=10), node.events)
    assert [(r.from_step, r.to_step, at(r.begin_ns), at(r.end_ns)) for r in result.runs] == [(2, 10, 12, 20)]
    assert (result.jct_s, result.steps_missing) == (20, 2)


def test_steps_that_were_done_again_are_counted(teller, facts):
    node = teller("n1")
    node.tell("attached", 1)
    node.tell("progress", 5, 6)
    node.tell("attached", 7, 4)  # it came back with an older checkpoint
    node.tell("finished", 12, 10)
    result = job_result(facts(steps=10), node.events)
    assert (result.steps_done, result.steps_missing, result.steps_repeated) == (10, 0, 2)


def test_the_end_of_an_older_pod_on_the_same_node_does_not_end_the_newer_ones_run(teller, facts):
    node = teller("n1")
    node.tell("attached", 1, pod="old")
    node.tell("attached", 5, pod="new")
    node.tell("gone", 6, pod="old")
    result = job_result(facts(), node.events)
    assert [(r.pod, r.ended) for r in result.runs] == [("old", "gone"), ("new", "")]
    assert result.preemptions == 1


def test_a_failed_job_ends_when_it_was_given_up_and_has_no_slowdown(teller, facts):
    node = teller("n1")
    node.tell("attached", 1)
    node.tell("failed", 4, 2, detail="out of memory")
    result = job_result(facts(steps=10, isolated_s=1.0, failed_ns=T0 + 9 * S), node.events)
    assert (result.outcome, result.jct_s, result.slowdown, result.interruptions) == ("failed", 9, None, 1)
    assert not result.finished


def test_another_container_of_the_pod_ends_a_run_but_preempts_nobody(teller, facts):
    node = teller("n1")
    node.tell("attached", 1)
    node.tell("suspended", 2, 3)
    node.tell("attached", 3)
    node.tell("finished", 4, 10)
    result = job_result(facts(steps=10), node.events)
    assert ([r.ended for r in result.runs], result.preemptions) == (["suspended", "finished"], 0)


def teller_events(teller, ahead_s, node="n1"):
    node = teller(node, ahead_s=ahead_s)
    run_through(node, 10, 20, 0, 4)
    return node.events


@pytest.mark.parametrize(
    ("ahead_s", "begun_s", "ended_s", "told"),
    [
        (0.03, 10.005, 20.005, ""),  # events are received 5 ms after they happen
        (0.2, 10.005, 20.005, "at least 195 ms ahead; its times are cut to the reception"),
        (3600, 10.005, 20.005, "at least 3599995 ms ahead; its times are cut to the reception"),
        (-0.2, 9.8, 19.8, ""),  # nothing shows it
        (-15, 0, 5, "at least 5100 ms behind; its times are cut to the submission"),
        (-3600, 0, 0, "at least 3590100 ms behind; its times are cut to the submission"),
    ],
)
def test_times_that_a_nodes_clock_makes_impossible_are_bounded_and_noted(
    teller, facts, ahead_s, begun_s, ended_s, told
):
    result = job_result(facts(steps=4), teller_events(teller, ahead_s))
    assert (result.queueing_delay_s, result.jct_s) == (begun_s, ended_s)
    expected = (f"the clock of node n1 was {told}: synchronise its clock (NTP)",) if told else ()
    assert result.notes == expected


def test_a_gang_on_many_nodes_with_wrong_clocks_has_few_notes(teller, facts):
    events = [event for n in range(9) for event in teller_events(teller, 0.2 + n / 10, f"n{n}")]
    notes = job_result(facts(steps=4), events).notes
    assert [note[:20] for note in notes[:3]] == [f"the clock of node n{n}" for n in (8, 7, 6)]
    assert notes[3:] == ("the clocks of 6 more nodes are wrong too",)


def test_a_run_before_its_pod_was_created_is_noted(teller, facts):
    """The API server's clock made the pod at second 30; the second run's node says that it began there at second 20."""
    first, second = teller("n1"), teller("n2", ahead_s=-15)
    run_through(first, 10, 20, 0, 4, "released")
    run_through(second, 35, 50, 4, 10, pod="pod-2")
    started = replace(second.events[1], stream="kubernetes:pod-2", at_ns=T0 + 30 * S, wall_ns=T0 + 20 * S)
    result = job_result(facts(steps=10), [*first.events, *second.events, started])
    assert result.notes == (
        "a run on node n2 begins 10.000 s before the API server created its pod; compare the clocks",
    )


def test_a_clock_that_is_set_back_in_mid_run_gives_no_negative_times(teller, facts):
    node = teller("n1")
    node.tell("attached", 100)
    node.tell("progress", 40, 3)
    node.tell("released", 50, 4)
    result = job_result(facts(steps=10), node.events)
    assert [(at(r.begin_ns), at(r.end_ns), r.to_step) for r in result.runs] == [(100, 100, 4)]


def test_an_event_of_a_node_without_a_clock_happened_when_it_was_received(teller, facts):
    node = teller("n1")
    event = replace(node.tell("attached", 10), wall_ns=0)
    assert job_result(facts(), [event]).queueing_delay_s == 10.005


def test_an_event_that_was_sent_again_under_another_id_counts_once(preempted, facts):
    again = [replace(event, epoch=2000) for event in preempted if event.node == "n1"]
    assert job_result(facts(steps=10), [*again, *preempted]) == job_result(facts(steps=10), preempted)


def test_a_result_survives_its_archive(preempted, facts):
    result = job_result(facts(steps=10, isolated_s=25.0), preempted)
    assert from_json(to_json(result)) == result


@pytest.mark.parametrize(
    ("started_s", "finished_s", "told"),
    [
        (9, 20, []),
        (10, 19, []),  # Kubernetes cuts fractions off
        (11, 20, ["its first run begins 1.000 s before Kubernetes started a container; compare the clocks"]),
        (9, 18, ["its last step ends 1.000 s after Kubernetes' last container did; compare the clocks"]),
    ],
)
def test_the_cross_check_contradicts_only_what_can_not_be(started_s, finished_s, told):
    check = CrossCheck(T0 + started_s * S, T0 + finished_s * S)
    assert check.contradictions(T0 + 10 * S, T0 + 20 * S) == told


def test_what_kubernetes_tells_settles_only_after_a_while(teller, facts):
    told = [replace(e, stream="kubernetes:u") for e in teller_events(teller, 0)]
    result = job_result(facts(steps=4), told)
    assert (result.told_by, result.settled(T0 + 79 * S), result.settled(T0 + 80 * S)) == (KUBERNETES, False, True)


def test_facts_that_are_sent_again_keep_the_first_submission_and_the_first_failure(facts):
    known = facts(failed_ns=T0 + 5, isolated_s=3.0)
    news = replace(facts(policy="fifo"), submitted_ns=T0 + 9, failed_ns=T0 + 7)
    assert merged(known, news) == facts(failed_ns=T0 + 5, isolated_s=3.0, policy="fifo")
