"""Jobs that were submitted together are told together."""

from __future__ import annotations

from typing import Any

import pytest

from operators.jobs.objects import EmuJobFacts, Key
from operators.scheduling import batches
from operators.scheduling.batches import Batch, batch_of
from operators.scheduling.names import BATCH
from operators.scheduling.objects import Order


def submit(here: Any, name: str, seconds: float, batch: str) -> None:
    here.submit(name, seconds, metadata={"annotations": {BATCH: batch, "emugpu.dev/row": str(here.made)}})


def ended(world: Any, *names: str) -> Any:
    return lambda: all(world.phase(name) == "Succeeded" for name in names)


def order_of_starts(here: Any) -> list[str]:
    return [name for name, _, _ in here.runs]


def test_the_shortest_of_a_batch_goes_first_whenever_it_comes(world: Any, lab: Any) -> None:
    here = world.of(gpus=1)
    submit(here, "long", 20, "b/3")
    submit(here, "middle", 10, "b/3")
    program = lab(here, "sjf")
    program.run(lambda: here.now_ns > 1_767_225_600_000_000_000 + 3 * 10**9)
    assert order_of_starts(here) == []
    submit(here, "short", 5, "b/3")
    lab(here, "sjf").run(ended(here, "long", "middle", "short"))
    assert order_of_starts(here) == ["short", "middle", "long"]


def test_jobs_of_a_batch_count_as_submitted_at_once_and_keep_their_rows(world: Any, lab: Any) -> None:
    """`second` came first, but its row is the later one."""
    here = world.of(gpus=1)
    note = {BATCH: "b/2", "emugpu.dev/row": "7"}
    here.submit("second", 5, metadata={"annotations": note})
    lab(here, "fifo").run(lambda: here.now_ns > 1_767_225_600_000_000_000 + 2 * 10**9)
    here.submit("first", 5, metadata={"annotations": {**note, "emugpu.dev/row": "6"}})
    lab(here, "fifo").run(ended(here, "first", "second"))
    assert order_of_starts(here) == ["first", "second"]


def test_others_do_not_wait_for_a_batch(world: Any, lab: Any) -> None:
    here = world.of(gpus=2)
    submit(here, "lonely", 5, "b/9")
    here.submit("other", 5)
    lab(here).run(ended(here, "other"))
    assert order_of_starts(here) == ["other"]


def test_a_batch_that_stays_incomplete_is_given_up(world: Any, lab: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "PATIENCE_S", 0.05)
    here = world.of(gpus=1)
    submit(here, "lonely", 5, "b/9")
    lab(here).run(ended(here, "lonely"))
    assert order_of_starts(here) == ["lonely"]


def test_a_scheduler_that_begins_in_the_middle_of_a_batch_goes_on_with_it(world: Any, lab: Any) -> None:
    here = world.of(gpus=1)
    for name in ("a", "b", "c"):
        submit(here, name, 8, "b/3")
    lab(here, "fifo").run(lambda: here.phase("b") == "Running")
    lab(here, "fifo").run(ended(here, "a", "b", "c"))
    assert order_of_starts(here) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("text", "size"), [("b/3", 3), ("a/b/12", 12), ("b", 0), ("", 0), ("b/1", 0), ("b/x", 0), ("b/-2", 0), ("b/²", 0)]
)
def test_an_annotation_that_says_no_number_is_none(text: str, size: int) -> None:
    order = Order(EmuJobFacts(Key("lab", "j", "u")), {}, {BATCH: text})
    assert batch_of(order) == (Batch("lab", text) if size else None)
    assert batch_of(order) is None or Batch("lab", text).size == size
