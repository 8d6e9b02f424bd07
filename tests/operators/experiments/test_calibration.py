from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator_runtime.domain.errors import ClusterError
from operators.experiments.calibration import calibration, estimates
from operators.experiments.calibration.calibration import Calibration, as_submitted
from operators.experiments.calibration.observations import Observations, ProbeRun, ProbeStop
from scheduler_sims.interface.costs import ClusterCosts
from scheduler_sims.record import JobRecord, RunRecord

S = 1_000_000_000


class Found(Calibration):
    """A calibration whose costs and numbers of usable observations are attributes, for short assertions."""

    def __getattr__(self, name: str) -> float:
        return self.seconds[name] if name in self.seconds else self.usable[name]


def seen(
    alone: Sequence[ProbeRun],
    burst: Sequence[ProbeRun],
    chain: Sequence[ProbeRun],
    stops: Sequence[ProbeStop] = (),
    together: Sequence[ProbeStop] = (),
    *,
    wide: Sequence[ProbeRun] = (),
    turnover: Sequence[ProbeRun] = (),
    coalesce_s: float = 0.0,
    planned: Mapping[str, int] | None = None,
) -> Observations:
    runs = {"alone": alone, "burst": burst, "wide": wide, "chain": chain, "turnover": turnover}
    return Observations(runs, {"stops": stops, "together": together}, planned or {}, coalesce_s)


def calibrated(observed: Observations) -> Found:
    found = calibration.calibrated(observed)
    return Found(found.seconds, found.coalesce_s, found.usable, found.notes)


def probe(submitted: float, asked: float, begin: float, end: float | None = None) -> ProbeRun:
    return ProbeRun(*(round(t * S) for t in (submitted, asked, begin, begin + 1 if end is None else end)))


def burst(count: int, base: float = 2.0, serial: float = 0.25) -> list[ProbeRun]:
    return [probe(0, 0.75, 0.75 + base + serial * k) for k in range(count)]


def chain(count: int, start: float = 2.0, gap: float = 1.5, first: float = 0.75) -> list[ProbeRun]:
    """Each is decided `gap` after the end of the one before."""
    runs, asked = [], first
    for _ in range(count):
        runs.append(probe(0, asked, asked + start))
        asked += start + 1 + gap
    return runs


ALONE = [probe(10 * n, 10 * n + 0.75, 10 * n + 2.75) for n in range(3)]


def test_figures_by_hand() -> None:
    again = [probe(0, t, t + 2.5) for t in (30, 50, 70)]
    times = zip((20, 40, 60), again, strict=True)
    stops = [ProbeStop(round(t * S), round((t + 1) * S), round((t + 2.25) * S), run) for t, run in times]
    late = [probe(0, 1.85, 1.85 + 2.0 + 0.25 * k) for k in range(12)]  # heard 1.1 s later than one alone: 11 x 0.1
    found = calibrated(seen(ALONE, late, chain(10, first=1.65), stops, coalesce_s=0.5))
    assert not 0 < found.host_slots < 8  # no start waited, and eight overlapped
    assert {**found.seconds, "host_slots": 0.0} == pytest.approx(
        {
            "arrive_s": 0.0,
            "submit_s": 0.25,
            "serial_submit_s": 0.1,
            "start_s": 2.0,
            "serial_start_s": pytest.approx(0.25, abs=0.001),
            "host_slots": 0.0,
            "program_start_s": 0.0,
            "program_slots": 0.0,
            "finish_s": 1.0,
            "stop_s": 1.75,
            "serial_stop_s": 0.0,
            "shared_stop_s": 0.0,
            "restart_s": 0.5,
        }
    )
    usable = {"alone": 3, "burst": 12, "wide": 0, "chain": 10, "turnover": 0, "stops": 3, "together": 0, "programs": 0}
    assert found.usable == usable
    assert found.coalesce_s == 0.5
    assert found.hand_over_s == pytest.approx(3.5)
    assert found.figures()["hand_over_s"] == 3.5
    assert found.costs(2.0) == ClusterCosts(
        submit_s=pytest.approx(0.25),
        serial_submit_s=pytest.approx(0.1),
        coalesce_s=2.0,
        start_s=pytest.approx(2.0),
        restore_s=pytest.approx(0.5),
        serial_start_s=pytest.approx(0.25, abs=0.001),
        host_slots=found.host_slots,
        stop_s=pytest.approx(1.75),
        finish_s=pytest.approx(1.0),
    )


def test_submissions_of_an_instant_come_one_after_the_other() -> None:
    drip = [probe(0.05 * k, 0.75, 2.75) for k in range(12)]
    assert calibrated(seen(ALONE, drip, chain(3))).arrive_s == pytest.approx(0.05)


def test_a_prediction_s_jobs_are_seen_as_late_as_they_would_be() -> None:
    jobs = [
        JobRecord("a", "u", 0, 0.0, 3.0, 9.0, 0, ()),
        JobRecord("b", "u", 1, 5.0, 6.0, 9.0, 0, ()),
        JobRecord("c", "u", 2, 0.0, 0.25, 9.0, 0, ()),
        JobRecord("d", "u", 3, 0.0, None, 1.5, 0, (), "failed"),
    ]
    found = as_submitted(RunRecord("p", "simulated", 0, 1, ("n",), tuple(jobs), ()), 0.5)
    assert [job.submit_s for job in found.jobs] == [0.0, 5.0, 0.25, 1.0]
    assert [job.finish_s for job in found.jobs] == [9.0, 9.0, 9.0, 1.5]


def test_one_straggler_tells_nothing_of_the_rest() -> None:
    slow = [*burst(11), probe(0, 0.75, 60.0)]
    assert calibrated(seen(ALONE, slow, chain(10))).serial_start_s == pytest.approx(0.25, abs=0.001)
    late = [*chain(9)[:4], probe(0, 50, 90), *(probe(0, 100 + 10 * k, 102 + 10 * k) for k in range(5))]
    assert calibrated(seen(ALONE, burst(12), late)).start_s == pytest.approx(2.0)


def test_a_burst_that_shares_the_machines_has_as_many_slots_as_it_is_fast() -> None:
    """All of three begin after 4 s, one alone after 2 s: 1.5 of them at full speed."""
    found = calibrated(seen(ALONE, burst(3, base=4.0, serial=0.0), chain(10)))
    assert (found.start_s, found.serial_start_s) == (pytest.approx(2.0), pytest.approx(0.0))
    assert found.host_slots == pytest.approx(1.5, abs=0.002)
    assert found.costs(0.5).host_slots == found.host_slots


@pytest.mark.parametrize(
    ("ends", "slots"),
    [
        ([26.0, 26.0, 26.0, 26.0], 2.0),  # four of 3 s on two cores
        ([23.0, 23.0, 23.0, 23.0], 0.0),
        ([32.0, 32.0, 32.0, 32.0], 1.0),
        ([26.1, 25.8, 26.0, 26.1], 2.0),
    ],
)
def test_programs_that_compute_at_once_show_how_many_can(ends: Sequence[float], slots: float) -> None:
    """One alone takes 3 s; the others begin at 20 s."""
    runs = [probe(0, 0.5, 2.75, 5.75), *(probe(15, 16, 20, end) for end in ends)]
    observed = seen(ALONE, burst(2), chain(10))
    with_programs = Observations({**observed.runs, "programs": runs}, observed.stops, {"programs": 5})
    found = calibrated(with_programs)
    assert found.program_slots == pytest.approx(slots, abs=0.06)
    assert found.costs(0.5).program_slots == found.program_slots
    assert found.program_start_s == pytest.approx(0.25), "2.25 s after its decision instead of 2"
    lost = Observations({**observed.runs, "programs": runs[1:]}, observed.stops, {"programs": 5})
    assert (calibrated(lost).program_start_s, calibrated(lost).program_slots) == (0.0, 0.0), (
        "which one ran alone isn't known"
    )


def test_starts_that_never_meet_have_any_number_of_slots() -> None:
    """One begins 0.4 s after the other and takes 0.3 s."""
    alone = [probe(10 * n, 10 * n + 0.75, 10 * n + 1.05) for n in range(3)]
    short = [probe(0, t, t + 0.3) for t in range(0, 40, 4)]
    found = calibrated(seen(alone, burst(12, base=0.3, serial=0.4), short, wide=burst(32, base=0.3, serial=0.4)))
    assert (found.serial_start_s, found.host_slots) == (pytest.approx(0.4, abs=0.001), 0.0)


def test_stragglers_of_a_burst_change_little() -> None:
    """A start of 2 s each 0.1 s, two of them at full speed: the last of twelve begins after 12 s."""
    few = estimates.Overlap((0.0,) * 12, ran_s=1.0).predicted_s(0.1, 2.0, start_s=2.0, finish_s=1.5)
    late = [probe(0, 0, run_s + (20.0 if number == 11 else 0.0)) for number, run_s in enumerate(few)]
    found = calibrated(seen(ALONE, late, chain(10)))
    assert (found.serial_start_s, found.host_slots) == (pytest.approx(0.1, abs=0.02), pytest.approx(2.0, abs=0.02))


def turnover(begins: Sequence[float], apart: float = 1.0) -> list[ProbeRun]:
    """Two jobs for each of `begins`: the first ones end from 20 s on, `apart` one after the other; the others begin then."""
    first = [probe(0, 0.5, 2.0, 20.0 + apart * number) for number in range(len(begins))]
    return [*first, *(probe(0, 20.5, begin, begin + 20) for begin in begins)]


def test_hand_overs_of_many_places_show_slots_that_bursts_do_not() -> None:
    """Ends of 2 s, one at full speed: four ends at once are through after 8 s; the starts of 1 s follow one by one."""
    short, alone = chain(10, start=1.0, gap=2.0), [probe(10 * n, 10 * n + 0.75, 10 * n + 1.75) for n in range(3)]
    apart = burst(2, base=1.0, serial=1.0)  # no start meets another, nor an end
    assert calibrated(seen(alone, apart, short)).host_slots == 0.0
    found = calibrated(seen(alone, apart, short, turnover=turnover([29.0, 30.0, 31.0, 32.0], apart=0.0)))
    assert (found.finish_s, found.serial_start_s) == (pytest.approx(2.0), pytest.approx(1.0, abs=0.01))
    assert found.host_slots == pytest.approx(1.0, abs=0.01)


def test_hand_overs_with_a_missing_job_show_nothing() -> None:
    """Which end let which job start isn't known then; the report says that nothing of the probe could be used."""
    some = turnover([26.0, 28.0, 29.0])[1:]
    planned = {**PLANNED, "turnover": 6}
    found = calibrated(seen(ALONE, burst(12), chain(10), turnover=some, planned={**planned, "wide": 0}))
    assert found.usable["turnover"] == 0
    assert (
        "calibration: only 0 of 6 probe jobs that end shortly one after the other can be used; host_slots may be wrong"
        in found.notes
    )


def stopped(asked: float, end: float, freed: float, others: int = 0) -> ProbeStop:
    return ProbeStop(round(asked * S), round(end * S), round(freed * S), probe(0, freed + 5, freed + 7), others)


def test_stops_of_one_decision_are_heard_one_by_one_and_share_the_machines() -> None:
    """Alone 1.5 s from the last step to the next decision; with eleven others 1.1 s more, and one every 0.2 s."""
    alone = [stopped(t, t + 0.1, t + 1.6) for t in (20, 40, 60)]
    together = [stopped(80, 80.1 + 0.2 * k, 80.1 + 0.2 * k + 2.6, others=11) for k in range(12)]
    strays = [stopped(90, 95, 130), stopped(91, 95, 130)]  # of other decisions
    found = calibrated(seen(ALONE, burst(12), chain(10), alone, [*strays, *reversed(together)], coalesce_s=0.3))
    assert (found.stops, found.together) == (3, 12)
    assert found.stop_s == pytest.approx(1.3)
    assert found.serial_stop_s == pytest.approx(0.2)
    assert found.shared_stop_s == pytest.approx(0.1)
    assert found.costs(0.3).serial_stop_s == pytest.approx(0.2)
    assert found.costs(0.3).shared_stop_s == pytest.approx(0.1)


def test_of_devices_whose_news_was_gathered_only_the_first_counts() -> None:
    """Each pair is heard of together, when the scheduler has gathered: the second one of a pair waited for less."""
    alone = [stopped(20, 20.0, 21.0)]
    pairs = [stopped(80, 80 + 0.5 * k, 80 + 0.5 * (k - k % 2) + 3.0, others=3) for k in range(4)]
    assert calibrated(seen(ALONE, burst(2), chain(2), alone, pairs)).shared_stop_s == pytest.approx(2 / 3)


def test_one_stop_of_a_decision_tells_nothing_about_many() -> None:
    found = calibrated(seen(ALONE, burst(2), chain(2), [stopped(20, 20, 21)], [stopped(80, 80, 85)]))
    assert (found.together, found.serial_stop_s, found.shared_stop_s) == (1, 0.0, 0.0)


def test_only_starts_of_one_decision_are_a_burst() -> None:
    late = [probe(0, 10.0, 12.0), probe(0, 10.0, 12.25)]
    assert calibrated(seen(ALONE, [*burst(6), *late], chain(3))).serial_start_s == pytest.approx(0.25, abs=0.001)


def test_noise_never_makes_a_cost_negative() -> None:
    early = [probe(0, 0, 0.5), probe(0, 0.4, 0.9), probe(0, 0.8, 1.3)]
    stop = ProbeStop(0, 0, 0, probe(0, 5, 5.1))
    found = calibrated(seen(ALONE, [probe(0, 0, 1)], early, [stop], coalesce_s=1.0))
    assert (found.submit_s, found.serial_start_s, found.finish_s, found.stop_s, found.restart_s) == (0, 0, 0, 0, 0)


def test_a_place_of_one_burst_and_no_stops_are_enough() -> None:
    found = calibrated(seen(ALONE, burst(1), chain(2)))
    assert (found.burst, found.stops, found.serial_start_s, found.stop_s) == (1, 0, 0.0, 0.0)


@pytest.mark.parametrize(("alone", "bursts", "chains"), [(3, 0, 5), (3, 3, 1), (0, 3, 3)])
def test_too_few_probes_are_refused(alone: int, bursts: int, chains: int) -> None:
    with pytest.raises(ClusterError, match=f"{alone} alone, {bursts} of the burst and {chains} of the chain"):
        calibrated(seen(ALONE[:alone], burst(bursts), chain(chains)))


@given(st.permutations(range(8)))
def test_the_order_in_which_a_burst_is_reported_is_no_matter(order: list[int]) -> None:
    runs = burst(8)
    assert calibrated(seen(ALONE, [runs[k] for k in order], chain(3))) == calibrated(seen(ALONE, runs, chain(3)))


def test_large_costs_are_a_warning() -> None:
    found = calibrated(seen(ALONE, burst(12), chain(10)))  # 1.5 + 2 s from end to beginning
    assert found.warnings(71.0) == []
    assert found.warnings(None) == []
    (said,) = found.warnings(60.0)
    assert "takes 3.50 s on this cluster, 5.8% of the predicted mean JCT" in said


PLANNED = {"alone": 3, "burst": 12, "wide": 32, "chain": 10, "stops": 3, "together": 12}


def test_kinds_of_which_too_few_came_through_are_reported() -> None:
    """Four of twelve were started with the first, one of twelve was stopped with others, no wide one came; the rest is enough."""
    apart = [*burst(4), *(probe(0, 10 + n, 13 + n) for n in range(8))]
    alone = [stopped(t, t + 0.1, t + 1.6) for t in (20, 40)]
    found = calibrated(seen(ALONE[:2], apart, chain(5), alone, [stopped(80, 80, 85)], planned=PLANNED))
    assert found.notes == (
        "calibration: only 4 of 12 probe jobs started at once can be used; serial_start_s and host_slots may be wrong",
        "calibration: only 0 of 32 probe jobs of the larger burst can be used; serial_start_s and host_slots may be wrong",
        "calibration: only 1 of 12 probe jobs stopped at once can be used; serial_stop_s and shared_stop_s may be wrong",
    )
    assert found.warnings(None) == list(found.notes)
    assert len(found.warnings(1.0)) == 4
    assert "notes" not in found.figures()


def test_what_was_not_planned_is_not_missed() -> None:
    found = calibrated(
        seen(ALONE, burst(1), chain(10), planned={**PLANNED, "burst": 1, "wide": 0, "stops": 0, "together": 0})
    )
    assert found.notes == ()


def test_stops_of_which_half_were_lost_cost_what_they_did() -> None:
    """Twelve, one every 0.2 s, 1.1 s more for the other eleven; of every other pair nothing is known."""
    alone = [stopped(t, t + 0.1, t + 1.6) for t in (20, 40, 60)]
    all_of_them = [stopped(80, 80.1 + 0.2 * k, 80.1 + 0.2 * k + 2.6, others=11) for k in range(12)]
    known = [all_of_them[k] for k in (0, 2, 4, 7, 9, 11)]
    found = calibrated(seen(ALONE, burst(12), chain(10), alone, known, planned=PLANNED))
    assert (found.together, found.shared_stop_s) == (6, pytest.approx(0.1))
    assert found.serial_stop_s == pytest.approx(0.2, rel=0.25)
    assert not [note for note in found.notes if "stopped" in note]


def test_one_known_stop_of_many_tells_what_they_share() -> None:
    found = calibrated(seen(ALONE, burst(2), chain(2), [stopped(20, 20, 21)], [stopped(80, 80, 85, others=4)]))
    assert (found.together, found.serial_stop_s, found.shared_stop_s) == (1, 0.0, pytest.approx(1.0))
