"""Jobs that were submitted together are told together."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from operators.kube.documents import Key
from operators.objects.emujob import EmuJob
from operators.objects.names import BATCH
from operators.scheduling.track import batches
from operators.scheduling.track.batches import Batch, Batches, batch_of


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
    monkeypatch.setattr(batches, "MAX_WAIT_S", 0.05)
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


def one_of(batch: str, uid: str, submitted: str = "", phase: str = "Queued") -> EmuJob:
    status = {"phase": phase, "submittedAt": submitted}
    return EmuJob(Key("lab", f"j-{uid}", uid), status_json=status, annotations={BATCH: batch})


class Feed:
    """Calls a Batches object as a store does, with the EmuJobs before and after a change, by uid."""

    def __init__(self) -> None:
        self.batches = Batches(lambda: None)
        self.emujobs: dict[str, EmuJob] = {}

    def put(self, *emujobs: EmuJob) -> None:
        for emujob in emujobs:
            self.batches.heard(self.emujobs.get(emujob.key.uid), emujob)
            self.emujobs[emujob.key.uid] = emujob

    def remove(self, *uids: str) -> None:
        for uid in uids:
            self.batches.heard(self.emujobs.pop(uid), None)


def test_a_batch_is_forgotten_with_its_last_job_and_its_name_may_be_used_again() -> None:
    async def story() -> None:
        feed = Feed()
        first, second = one_of("b/2", "1", "2026-01-01T00:00:01Z"), one_of("b/2", "2", "2026-01-01T00:00:02Z")
        feed.put(first, one_of("b/2", "2", "", "Pending"))
        assert not feed.batches.is_released(first)
        feed.put(second)
        assert feed.batches.take_released() == {"lab/j-1"}
        assert feed.batches.is_released(second) and feed.batches.submitted(second) == "2026-01-01T00:00:01Z"
        feed.remove("1")
        assert feed.batches.is_released(second)
        feed.remove("2")
        again = [one_of("b/2", uid, "2026-02-02T00:00:00Z") for uid in ("3", "4")]
        feed.put(again[0])
        assert not feed.batches.is_released(again[0])
        assert feed.batches.submitted(again[0]) == "2026-02-02T00:00:00Z"
        feed.put(again[1])
        assert feed.batches.is_released(again[1])

    asyncio.run(story())


def test_a_job_released_by_the_time_limit_keeps_its_own_submission_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "MAX_WAIT_S", 0.01)

    async def story() -> None:
        feed = Feed()
        feed.put(one_of("b/3", "1", ""))
        assert not feed.batches.is_released(feed.emujobs["1"])
        await asyncio.sleep(0.03)  # the limit has passed; the submission time isn't known
        assert feed.batches.take_released() == {"lab/j-1"}
        feed.put(one_of("b/3", "1", "2026-01-01T00:00:01Z"))
        assert feed.batches.submitted(feed.emujobs["1"]) == "2026-01-01T00:00:01Z"

    asyncio.run(story())


def test_the_time_limit_of_a_deleted_batch_does_not_release_the_next_one_of_that_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(batches, "MAX_WAIT_S", 0.03)

    async def story() -> None:
        feed = Feed()
        feed.put(one_of("b/3", "1", "2026-01-01T00:00:01Z"))
        assert not feed.batches.is_released(feed.emujobs["1"])
        feed.remove("1")
        monkeypatch.setattr(batches, "MAX_WAIT_S", 30.0)
        feed.put(one_of("b/3", "2", "2026-01-01T00:00:02Z"))
        assert not feed.batches.is_released(feed.emujobs["2"])
        await asyncio.sleep(0.06)
        assert not feed.batches.is_released(feed.emujobs["2"])

    asyncio.run(story())


def test_a_job_that_changes_its_batch_leaves_the_former_one() -> None:
    async def story() -> None:
        feed = Feed()
        feed.put(one_of("b/2", "1", "2026-01-01T00:00:01Z"))
        feed.put(one_of("c/2", "1", "2026-01-01T00:00:01Z"), one_of("b/2", "2", "2026-01-01T00:00:02Z"))
        assert not feed.batches.is_released(feed.emujobs["2"])
        assert not feed.batches.is_released(feed.emujobs["1"])

    asyncio.run(story())


@pytest.mark.parametrize(
    ("text", "size"), [("b/3", 3), ("a/b/12", 12), ("b", 0), ("", 0), ("b/1", 0), ("b/x", 0), ("b/-2", 0), ("b/²", 0)]
)
def test_an_annotation_without_a_number_is_ignored(text: str, size: int) -> None:
    emujob = EmuJob(Key("lab", "j", "u"), annotations={BATCH: text})
    assert batch_of(emujob) == (Batch("lab", text) if size else None)
    assert batch_of(emujob) is None or Batch("lab", text).size == size
