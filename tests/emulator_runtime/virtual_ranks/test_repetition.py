"""Which rank repeats another one's trace. A step of these ranks is three kernels and, where stated, an all-reduce."""

from __future__ import annotations

from pathlib import Path

from emulator_runtime.prediction.reading import Joined, ProcessRecords
from emulator_runtime.prediction.records import Collective, Launch, Record, Work
from emulator_runtime.virtual_ranks.repetition import Reference, Rolling, differs, reference, repeated, rolling

STEPS = 5


def process(records: list[Record], members: tuple[int, ...] = (0, 1), rank: int = 0) -> ProcessRecords:
    joined = Joined("key", rank, tuple((member, b"") for member in members))
    return ProcessRecords(Path("f"), 1, None, (), records, {1: joined}, True, 0, 0)


def steps(count: int = STEPS, depth: int = 3, collective_bytes: int = 0, first: str = "init") -> list[Record]:
    records: list[Record] = [Launch(0, 0, 0, 1, Work(first, 0))]
    for step in range(count):
        records += [Launch(step, 0, 0, 1, Work(f"kernel {number}", 0, bytes=number)) for number in range(depth)]
        if collective_bytes:
            records.append(Collective(step, 0, 0, 2, 1, step, "all_reduce", collective_bytes))
    return records


def prints(records: list[Record], rank: int = 0, **more: tuple[int, ...]) -> Rolling:
    return rolling(process(records, **more), rank, 8)


def finished(records: list[Record], rank: int = 0) -> Reference:
    return reference(process(records), prints(records, rank))


def test_a_rank_that_has_done_two_equal_steps_repeats() -> None:
    other = finished(steps())
    assert repeated(prints(steps(2)), [other], ended=False) == 0
    assert repeated(prints(steps(1)), [other], ended=False) is None, "one step isn't enough"


def test_addresses_times_and_devices_do_not_count() -> None:
    moved: list[Record] = [Launch(999, 3, 5, 1, record.work) for record in steps() if isinstance(record, Launch)]
    assert repeated(prints(moved), [finished(steps())], ended=True) == 0


def test_an_earlier_difference_shows_in_all_that_follows() -> None:
    assert repeated(prints(steps(first="other")), [finished(steps())], ended=True) is None
    assert differs(prints(steps(1, first="other")), [finished(steps())])
    assert not differs(prints(steps(1)), [finished(steps())])


def test_one_that_has_ended_must_have_done_all() -> None:
    assert repeated(prints(steps(STEPS - 1)), [finished(steps())], ended=True) is None
    assert (
        repeated(prints(steps()), [finished(steps(first="other"), rank=3), finished(steps(), rank=7)], ended=True) == 7
    )


def test_collectives_count_by_bytes_and_by_the_structure_of_their_communicator() -> None:
    other = finished(steps(collective_bytes=64))
    assert repeated(prints(steps(collective_bytes=64)), [other], ended=True) == 0
    assert repeated(prints(steps(collective_bytes=65)), [other], ended=True) is None
    assert repeated(prints(steps(collective_bytes=64), members=(2, 3)), [other], ended=True) == 0
    assert repeated(prints(steps(collective_bytes=64), members=(2, 9)), [other], ended=True) is None, "on two nodes"
    assert repeated(prints(steps(collective_bytes=64), members=(1, 2, 3)), [other], ended=True) is None


def test_streams_may_be_filled_in_another_order() -> None:
    """Two threads, each with its stream: what counts is each stream's order."""
    one: list[Record] = [Launch(0, 0, 0, 1, Work("a", 0)), Launch(0, 1, 0, 2, Work("b", 0))]
    assert repeated(prints(one[::-1]), [finished(one)], ended=True) == 0
    assert repeated(prints([one[0]]), [finished(one)], ended=True) is None


def test_without_steps_all_is_decisive() -> None:
    once: list[Record] = [Launch(0, 0, 0, 1, Work(f"kernel {number}", 0)) for number in range(6)]
    other = finished(once)
    assert repeated(prints(once[:5]), [other], ended=False) is None
    assert repeated(prints(once), [other], ended=False) == 0


def test_messages_count_by_the_distance_of_the_peer() -> None:
    def sends(rank: int, peer: int) -> Rolling:
        record = Collective(0, 0, 0, 1, 1, 0, "send_receive", 8, ((peer, 8, 0),))
        return rolling(process([record], members=(0, 1, 2), rank=rank), rank, 8)

    other = reference(process([]), sends(0, 1))
    assert repeated(sends(1, 2), [other], ended=True) == 0
    assert repeated(sends(1, 0), [other], ended=True) is None
