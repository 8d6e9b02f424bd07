"""Which entries of a full outbox are merged, decided without a database."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from sharing_manager.store.compaction import Compactor
from sharing_manager.store.entries import Entry

HISTORIES = st.lists(
    st.tuples(
        st.sampled_from(["progress", "progress", "progress", "attached", "failed"]),
        st.sampled_from("abc"),
        st.integers(-2, 3),
        st.sampled_from(["p1", "p1", "p1", "p2"]),
    ),
    max_size=60,
)


def history(steps):
    """Entries as a manager writes them: each begins where its job's last one ended; some go back."""
    reached, entries = {}, []
    for sequence, (kind, job, change, pod) in enumerate(steps, start=1):
        start = reached.get(job, 0)
        done = max(0, start + change) if kind == "progress" else start
        reached[job] = done
        entries.append(Entry("n", sequence, sequence, 0, kind, job, job, start, done, "", "ns", pod))
    return entries


def compacted(entries):
    compactor, kept = Compactor(), {}
    for entry in entries:
        kept[entry.sequence] = entry
        absorb = compactor.feed(entry)
        if absorb is not None:
            del kept[absorb.gone.sequence]
            assert absorb.into.sequence == entry.sequence
            kept[entry.sequence] = absorb.into
    return list(kept.values())


@given(HISTORIES)
def test_no_step_and_no_turn_of_a_job_is_lost(steps):
    entries = history(steps)
    kept = compacted(entries)
    assert [entry.sequence for entry in kept] == sorted(entry.sequence for entry in kept)
    assert sum(1 + entry.absorbed for entry in kept) == len(entries)
    for job in "abc":
        before = [entry for entry in entries if entry.job_id == job]
        after = [entry for entry in kept if entry.job_id == job]
        others = [entry.sequence for entry in before if entry.kind != "progress"]
        assert [entry.sequence for entry in after if entry.kind != "progress"] == others
        if after:
            assert (after[0].from_step, after[-1].steps_done) == (0, before[-1].steps_done)
        assert all(one.steps_done == next_one.from_step for one, next_one in pairwise(after))
        assert max((e.steps_done for e in after), default=0) == max((e.steps_done for e in before), default=0)


def test_a_long_run_becomes_one_range():
    progress = [("progress", "a", 1, "p1")] * 50
    kept = compacted(history([("attached", "a", 0, "p1"), *progress, ("failed", "a", 0, "p1")]))
    assert [(entry.kind, entry.from_step, entry.steps_done) for entry in kept] == [
        ("attached", 0, 0),
        ("progress", 0, 50),
        ("failed", 50, 50),
    ]
    assert [entry.absorbed for entry in kept] == [0, 49, 0]


def test_what_is_done_again_after_an_older_checkpoint_stays_told():
    changes = [3, 2, -4, 1, 1]
    kept = compacted(history([("progress", "a", change, "p1") for change in changes]))
    assert [(entry.from_step, entry.steps_done) for entry in kept] == [(0, 5), (5, 1), (1, 3)]


def test_two_pods_of_one_job_are_not_made_one():
    kept = compacted(history([("progress", "a", 1, "p1"), ("progress", "a", 1, "p2")]))
    assert [entry.pod for entry in kept] == ["p1", "p2"]
