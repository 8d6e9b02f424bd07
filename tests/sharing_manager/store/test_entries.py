"""An event as the fields of a stream entry, and back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator_runtime.domain.errors import ProtocolError
from sharing_manager.store.entries import Entry, EntryId, furthest

TEXT = st.text(max_size=20)
NUMBER = st.integers(0, 2**62)
ENTRIES = st.builds(
    Entry, TEXT, NUMBER, NUMBER, NUMBER, TEXT, TEXT, TEXT, NUMBER, NUMBER, TEXT, TEXT, TEXT, absorbed=NUMBER
)


def as_redis_gives_it(entry):
    flat = [str(part) for part in entry.to_fields()]
    return dict(zip(flat[::2], flat[1::2], strict=True))


@given(ENTRIES)
def test_an_entry_survives_the_way_through_redis(entry):
    assert Entry.from_fields("here", as_redis_gives_it(entry)) == entry


def test_the_fields_are_those_of_the_contract():
    names = ["node", "sequence", "at_ns", "wall_ns", "kind", "job_id", "job_key", "from_step", "steps_done", "detail"]
    assert list(as_redis_gives_it(Entry("n", 1, 2, 3, "k", "j", "j", 0, 1))) == [*names, "namespace", "pod"]
    assert as_redis_gives_it(Entry("n", 1, 2, 3, "k", "j", "j", 0, 1, absorbed=4))["absorbed"] == "4"


@pytest.mark.parametrize(("name", "value"), [("sequence", None), ("steps_done", "many"), ("absorbed", "x")])
def test_an_entry_that_somebody_else_wrote_is_named(name, value):
    given = as_redis_gives_it(Entry("n", 1, 2, 3, "k", "j", "j", 0, 1))
    given.pop(name, None)
    if value is not None:
        given[name] = value
    with pytest.raises(ProtocolError, match=f"emugpu:events:n 1-1: field '{name}' must be a whole number"):
        Entry.from_fields("emugpu:events:n 1-1", given)


def test_ids_are_ordered_as_redis_orders_them():
    ids = [EntryId(2, 1), EntryId(1, 10), EntryId(1, 9)]
    assert [str(entry_id) for entry_id in sorted(ids)] == ["1-9", "1-10", "2-1"]
    assert EntryId.parse("1-10") == EntryId(1, 10)


@pytest.mark.parametrize("text", ["", "7", "a-1", "1-", "-1-2", "1-2-3"])
def test_what_is_no_id_is_refused(text):
    with pytest.raises(ProtocolError, match="is not the id of a stream entry"):
        EntryId.parse(text)


def test_progress_is_the_most_of_a_batch_even_where_a_job_came_back_with_an_older_checkpoint():
    def entry(job, done, wall_ns):
        return Entry("n", 1, 0, wall_ns, "progress", job, job, 0, done)

    batch = [entry("a", 9, 3_000_000), entry("b", 1, 0), entry("a", 4, 8_000_000), entry("", 100, 0)]
    assert furthest(batch) == {"a": (9, 8), "b": (1, 0)}
