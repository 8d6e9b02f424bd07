"""Ranges of progress become fewer as they age, and tell the same."""

from __future__ import annotations

from dataclasses import replace

from operators.results.computing import job_result
from operators.results.store import Batch
from operators.results.thinning import thinned

S = 1_000_000_000
T0 = 1_700_000_000 * S


def training(node, seconds, pod="pod-1", begin_s=0.0, steps=0):
    """A run that is told of five times a second, ten steps each second."""
    node.tell("attached", begin_s, steps, pod=pod, detail="GPU-1")
    for tick in range(1, seconds * 5):
        node.tell("progress", begin_s + tick / 5, steps + 2 * tick, pod=pod)
    node.tell("released", begin_s + seconds, steps + 10 * seconds, pod=pod)


def test_an_hour_becomes_some_hundred_events(teller, facts):
    node = teller("n1")
    training(node, 3600)
    once = thinned(node.events, T0 + 3600 * S)
    left = len(node.events) - len(once.gone)
    assert 150 < left < 450
    gone = {event.place for event in once.gone}
    later = {event.place: event for event in node.events if event.place not in gone}
    later |= {event.place: event for event in once.changed}
    assert len(thinned(later.values(), T0 + 100 * 3600 * S).gone) > left - 10
    assert job_result(facts(), later.values()) == job_result(facts(), node.events)


def test_the_newest_words_are_five_seconds_apart(teller):
    node = teller("n1")
    training(node, 20)
    (first, *ranges) = [e for e in thinned(node.events, T0 + 20 * S).changed if e.kind == "progress"]
    assert [round((e.wall_ns - e.since_ns) / S) for e in (first, *ranges)] == [5, 5, 5, 4]
    assert first.from_step == 2


def test_what_is_not_one_story_stays_apart(teller):
    def untouched(events):
        done = thinned(events, T0 + 10**6 * S)
        return not done.changed and not done.gone

    node = teller("n1")
    told = [node.tell("progress", second, second) for second in range(1, 4)]
    assert not untouched(told)
    assert untouched([told[0], replace(told[1], pod="other"), told[2]])
    assert untouched([told[0], told[1], replace(told[2], from_step=1)])  # from an older checkpoint
    assert untouched([told[0], told[1], replace(told[2], kind="oom")])
    assert untouched([told[0], replace(told[1], epoch=999), told[2]])
    assert untouched([told[0], told[1], replace(told[2], wall_ns=told[1].wall_ns - 1)])  # its clock was set back
    assert untouched([replace(event, stream="kubernetes:u") for event in told])


def test_what_went_into_a_range_is_known_when_it_is_sent_again(teller, facts, store):
    """After Redis lost everything, a node tells its last events again under other ids."""
    node = teller("n1")
    training(node, 60)
    store.note_job(facts())
    store.write(Batch(tuple(node.events)))
    before = store.job("job")
    assert store.thin("job", T0 + 60 * S) > 200
    assert store.job("job") == before
    store.write(Batch(tuple(replace(event, epoch=2000) for event in node.events[-50:])))
    assert store.job("job") == before
    store.thin("job", T0 + 100 * S)
    assert store.job("job") == before
    assert len(store.events("job")) < 25


def test_a_node_that_was_wiped_begins_its_numbers_anew_and_is_heard(teller, facts):
    node, anew = teller("n1"), teller("n1")
    training(node, 30)
    done = thinned(node.events, T0 + 30 * S)
    kept = [
        event for event in node.events if event not in done.gone and event.place not in {e.place for e in done.changed}
    ]
    training(anew, 30, begin_s=40, steps=300)
    moved = [replace(event, epoch=3000) for event in anew.events]
    assert job_result(facts(), [*kept, *done.changed, *moved]).steps_done == 600
    assert job_result(facts(), [*kept, *done.changed, *moved]).steps_missing == 0
