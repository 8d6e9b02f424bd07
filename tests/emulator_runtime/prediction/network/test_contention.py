"""Replays in which collectives share links, and kernels run beside collectives; worked by hand. Times are in nanoseconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from emulator_runtime.prediction.network import contention
from emulator_runtime.prediction.network.contention import Contention, Replay, Route, replay, slowed_ns
from emulator_runtime.prediction.records import Collective, Communicator, Trace
from tests.support.traces import Host, Stated, hosts, times

US = 1000


@dataclass(frozen=True)
class Card:
    """All calls use this part of one link (by default all of it), if they are of a communicator in `on`."""

    on: tuple[str, ...] = ("world", "other")
    parts: Mapping[str, float] = field(default_factory=dict)

    def route(self, call: Collective, communicator: Communicator) -> Route:
        return (("card", self.parts.get(communicator.key, 1.0)),) if communicator.key in self.on else ()


ONE_CARD = Card()


def shared(*ranks: Host, routes: Card | None = ONE_CARD, sm_share: float = 0.0) -> Replay:
    stated = Stated()
    trace = Trace([rank.trace() for rank in ranks])
    return replay(trace, lambda place, device: stated, stated, Contention(routes, sm_share))


def two_pairs() -> list[Host]:
    """Ranks 0 and 1 have the communicator "world", 2 and 3 another one."""
    ranks = [*hosts(2), *hosts(2)]
    for number, host in enumerate(ranks):
        host.rank = number
        if number > 1:
            members = host.communicators[0].members
            host.communicators = {0: Communicator(0, "other", number - 2, members)}
    return ranks


def test_two_communicators_halve_a_card() -> None:
    """100 us from 0, and 100 us from 50 us on: 150 and 200; the kernels behind them begin then."""
    ranks = two_pairs()
    calls, behind = [], []
    for host in ranks:
        host.at = 0 if host.rank < 2 else 50 * US
        calls.append(host.all_reduce(0, 100 * US))
        behind.append(host.launch(10))
    found = shared(*ranks)
    assert found.settled
    assert found.replays == 2
    for number, run in enumerate(found.runs):
        begin, end = ((0, 150 * US), (50 * US, 200 * US))[number // 2]
        assert times(run)[calls[number]] == (begin, end)
        assert times(run)[behind[number]] == (end, end + 10)


def test_a_later_start_moves_what_follows() -> None:
    """The second pair begins its second all-reduce when the first one ends, which is 100 us later than alone. Together from 0 to
    200 us (100 done by both), then the second pair's next one is alone."""
    ranks = two_pairs()
    for host in ranks:
        for number in range(1 if host.rank < 2 else 2):
            host.all_reduce(number, 100 * US)
    found = shared(*ranks)
    assert list(found.runs[0].collectives.ends_ns) == [200 * US]
    assert list(found.runs[2].collectives.ends_ns) == [200 * US, 300 * US]


def test_without_an_encounter_nothing_changes() -> None:
    ranks = two_pairs()
    for host in ranks:
        host.at = 0 if host.rank < 2 else 101
        host.all_reduce(0, 101)
    found = shared(*ranks)
    assert found.replays == 1
    assert [list(run.collectives.ends_ns) for run in found.runs] == [[101], [101], [202], [202]]
    assert shared(*two_pairs(), routes=Card(on=())).replays == 1


@pytest.mark.parametrize("routes", [None, Card(on=("world",)), Card(parts={"world": 0.5, "other": 0.5})])
def test_links_that_are_not_shared_or_suffice_change_nothing(routes: Card | None) -> None:
    ranks = two_pairs()
    for host in ranks:
        host.all_reduce(0, 100 * US)
    found = shared(*ranks, routes=routes)
    assert found.replays == 1
    assert {run.end_ns for run in found.runs} == {100 * US}


def test_messages_share_a_link_with_collectives() -> None:
    """The card has to serve an all-reduce that wants all of it, and both sides of a message that want a half each: both have half
    of what they want."""
    ranks = two_pairs()
    for host in ranks[:2]:
        host.all_reduce(0, 100 * US)
    ranks[2].exchange((1, 8, 0), duration=100 * US)
    ranks[3].exchange((0, 0, 8), duration=100 * US)
    found = shared(*ranks, routes=Card(parts={"other": 0.5}))
    assert {run.end_ns for run in found.runs} == {200 * US}


def test_replays_end_if_nothing_settles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contention, "MOST_REPLAYS", 1)
    ranks = two_pairs()
    for host in ranks:
        host.all_reduce(0, 100 * US)
    found = shared(*ranks)
    assert not found.settled
    assert found.runs[0].end_ns == 100 * US


def test_collectives_take_compute_units_from_kernels_beside_them() -> None:
    """The kernel of 100 us begins at 0; the all-reduce runs from 40 to 80 us with a quarter of the units: 30 done meanwhile, and
    10 us more at the end. The next kernel runs alone; on rank 1 nothing runs beside."""
    ranks = hosts(2)
    first, second = ranks[0].launch(100 * US), ranks[0].launch(50 * US)
    for host in ranks:
        host.at = 40 * US
        host.all_reduce(0, 40 * US, stream=1)
    found = shared(*ranks, sm_share=0.25)
    assert found.settled
    assert times(found.runs[0])[first] == (0, 110 * US)
    assert times(found.runs[0])[second] == (110 * US, 160 * US)
    unchanged = shared(*ranks)
    assert unchanged.replays == 1
    assert times(unchanged.runs[0])[second] == (100 * US, 150 * US)


def test_work_beside_busy_times() -> None:
    busy = [(4, 8), (20, 30)]
    assert slowed_ns(0, 10, busy, 0.5) == 12
    assert slowed_ns(0, 4, busy, 0.5) == 4
    assert slowed_ns(5, 1, busy, 0.5) == 2
    assert slowed_ns(0, 20, busy, 0.5) == 24, "18 done at 20, 2 at half the rate"
    assert slowed_ns(0, 30, busy, 0.5) == 37
    assert slowed_ns(9, 11, busy, 0.5, first=1) == 11
