"""Whatever order events come in, however often, from however many nodes: the result is the same."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from operators.results.computing import job_result
from operators.results.events import BEGINS, ENDS, JobEvent
from operators.results.facts_and_result import JobFacts
from operators.results.runs_from_events import union_length
from operators.results.store import Batch, ResultStore
from operators.results.thinning import thinned

S = 1_000_000_000
KINDS = [BEGINS, "granted", "progress", "progress", "stopping", "oom", "device-lost", *sorted(ENDS)]


@st.composite
def streams(draw):
    """What up to three nodes tell of a job of up to two pods; clocks may go back, beginnings and ends be lost."""
    events = []
    for node in draw(st.sampled_from([["a"], ["a", "b"], ["a", "b", "c"]])):
        reached: dict[str, int] = {}
        for number in range(1, draw(st.integers(1, 12))):
            key = draw(st.sampled_from(["job/0", "job/1"]))
            pod = draw(st.sampled_from(["p", "q"]))
            step = draw(st.integers(0, 10))
            wall_ns = draw(st.integers(0, 60)) * S
            stream = draw(st.sampled_from([f"emugpu:events:{node}", f"emugpu:events:{node}", f"kubernetes:{node}"]))
            kind = draw(st.sampled_from(KINDS))
            story = (kind, key, reached.get(key, 0), step, "GPU", "team", pod, 0, wall_ns + 1)
            events.append(JobEvent(stream, 1, number, node, number, 0, wall_ns, *story))
            reached[key] = step
    return events


FACTS = st.builds(
    JobFacts,
    uid=st.just("job"),
    namespace=st.just("team"),
    name=st.just("train"),
    submitted_ns=st.just(0),
    tasks=st.integers(1, 2),
    steps=st.sampled_from([0, 10]),
    isolated_s=st.sampled_from([None, 5.0]),
    failed_ns=st.sampled_from([None, 70 * S]),
)


@settings(deadline=None)  # the machine may be busy
@given(FACTS, streams(), st.data())
def test_the_order_and_the_number_of_times_make_no_difference(facts, events, data):
    result = job_result(facts, events)
    again = data.draw(st.lists(st.sampled_from(events), max_size=8)) if events else []
    moved = [replace(e, epoch=2) for e in again if not e.from_kubernetes]  # the same, sent under another id
    shuffled = data.draw(st.permutations([*events, *again, *moved]))
    assert job_result(facts, shuffled) == result


@given(FACTS, streams())
def test_a_result_is_consistent_whatever_was_reported(facts, events):
    result = job_result(facts, events)
    assert all(r.end_ns is None or r.begin_ns <= r.end_ns for r in result.runs)
    assert result.steps_missing >= 0
    assert result.steps_repeated >= 0
    assert result.service_s >= 0
    going = [r.job_key for r in result.runs if r.end_ns is None]
    assert len(going) == len(set(going)), "a key runs in one place at a time"
    assert not (going and result.outcome)
    assert (result.jct_s is None) == (result.outcome == "")
    assert result.preemptions + result.interruptions <= len(result.runs)
    assert (result.first_started_ns is None) == (not result.runs)


@settings(deadline=None)  # it waits for the disk
@given(streams(), st.data())
def test_the_store_gives_back_what_was_written_in_any_batches(tmp_path_factory, events, data):
    facts = JobFacts("job", "team", "train", 0, steps=10)
    store = ResultStore(tmp_path_factory.mktemp("store") / "results.db")
    try:
        store.note_job(facts)
        left = data.draw(st.permutations([*events, *events[:5]]))
        while left:
            size = data.draw(st.integers(1, 6))
            store.write(Batch(tuple(left[:size])))
            left = left[size:]
        assert store.job("job") == job_result(facts, events)
        newest = max(((e.epoch, e.sequence) for e in events if e.stream == "emugpu:events:a"), default=None)
        assert store.position("emugpu:events:a") == newest
    finally:
        store.close()


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 10))))
def test_the_union_of_spans_is_what_counting_says(spans):
    closed = [(begin, begin + length) for begin, length in spans]
    assert union_length(closed) == len({second for begin, end in closed for second in range(begin, end)})


@given(FACTS, streams(), st.lists(st.integers(0, 3000), min_size=1, max_size=4), st.data())
def test_what_is_thinned_tells_the_same(facts, events, ages_s, data):
    """At any moment, again and again, and whatever of it is told once more under other ids."""
    kept = {event.place: event for event in events}
    for age_s in sorted(ages_s):
        done = thinned(kept.values(), (60 + age_s) * S)
        for event in done.gone:
            del kept[event.place]
        kept |= {event.place: event for event in done.changed}
    assert job_result(facts, kept.values()) == job_result(facts, events)
    told = [event for event in events if not event.from_kubernetes]
    again = data.draw(st.lists(st.sampled_from(told), max_size=8)) if told else []
    moved = [replace(event, epoch=2) for event in again]
    assert job_result(facts, [*kept.values(), *moved]) == job_result(facts, events)
