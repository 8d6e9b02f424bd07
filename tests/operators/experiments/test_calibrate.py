from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator_runtime.domain.errors import ClusterError
from operators.experiments.calibrate import Calibration, ProbeRun, Probes, ProbeStop, calibrated, warning
from scheduler_sims.interface.costs import ClusterCosts

S = 1_000_000_000


def probe(submitted: float, asked: float, begin: float, end: float | None = None) -> ProbeRun:
    return ProbeRun(*(round(t * S) for t in (submitted, asked, begin, begin + 1 if end is None else end)))


def burst(count: int, base: float = 2.0, serial: float = 0.25) -> list[ProbeRun]:
    return [probe(0, 0.75, 0.75 + base + serial * k) for k in range(count)]


def chain(count: int, start: float = 2.0, gap: float = 1.5) -> list[ProbeRun]:
    """Each is decided `gap` after the end of the one before."""
    runs, asked = [], 0.75
    for _ in range(count):
        runs.append(probe(0, asked, asked + start))
        asked += start + 1 + gap
    return runs


def test_figures_by_hand() -> None:
    again = [probe(0, t, t + 2.5) for t in (30, 50, 70)]
    stops = [
        ProbeStop(round(t * S), round((t + 1) * S), round((t + 2.25) * S), a)
        for t, a in zip((20, 40, 60), again, strict=True)
    ]
    found = calibrated(Probes(burst(12), chain(10), stops, coalesce_s=0.5))
    assert found == Calibration(
        burst=12,
        chain=10,
        stops=3,
        coalesce_s=0.5,
        arrive_s=0.0,
        hear_s=pytest.approx(0.25),
        start_s=pytest.approx(2.0),
        serial_start_s=pytest.approx(0.25),
        finish_s=pytest.approx(0.75),
        stop_s=pytest.approx(1.5),
        restart_s=pytest.approx(0.5),
    )
    assert found.hand_over_s == pytest.approx(3.5)
    assert found.figures()["hand_over_s"] == 3.5
    assert found.costs(2.0) == ClusterCosts(
        coalesce_s=2.0,
        decide_s=pytest.approx(0.25),
        start_s=pytest.approx(2.0),
        restore_s=pytest.approx(0.5),
        serial_start_s=pytest.approx(0.25),
        stop_s=pytest.approx(1.5),
        finish_s=pytest.approx(0.75),
    )


def test_a_scheduler_gathers_as_long_as_a_batch_takes_to_come() -> None:
    drip = [probe(0.05 * k, 0.75, 2.75) for k in range(12)]
    found = calibrated(Probes(drip, chain(3)))
    assert found.arrive_s == pytest.approx(0.05)
    assert (found.gather_s(1), found.gather_s(40)) == (0.3, 2.8)  # 0.3 + 1.3 x 39 x 0.05


def test_one_straggler_tells_nothing_of_the_rest() -> None:
    slow = [*burst(11), probe(0, 0.75, 60.0)]
    assert calibrated(Probes(slow, chain(10))).serial_start_s == pytest.approx(0.25)
    late = [*chain(9)[:4], probe(0, 50, 90), *(probe(0, 100 + 10 * k, 102 + 10 * k) for k in range(5))]
    assert calibrated(Probes(burst(12), late)).start_s == pytest.approx(2.0)


def test_only_starts_of_one_decision_are_a_burst() -> None:
    late = [probe(0, 10.0, 12.0), probe(0, 10.0, 12.25)]
    assert calibrated(Probes([*burst(6), *late], chain(3))).serial_start_s == pytest.approx(0.25)


def test_noise_never_makes_a_cost_negative() -> None:
    early = [probe(0, 0, 0.5), probe(0, 0.4, 0.9), probe(0, 0.8, 1.3)]
    stop = ProbeStop(0, 0, 0, probe(0, 5, 5.1))
    found = calibrated(Probes([probe(0, 0, 1)], early, [stop], coalesce_s=1.0))
    assert (found.hear_s, found.serial_start_s, found.finish_s, found.stop_s, found.restart_s) == (0, 0, 0, 0, 0)


def test_a_place_of_one_burst_and_no_stops_are_enough() -> None:
    found = calibrated(Probes(burst(1), chain(2)))
    assert (found.burst, found.stops, found.serial_start_s, found.stop_s) == (1, 0, 0.0, 0.0)


@pytest.mark.parametrize(("bursts", "chains"), [(0, 5), (3, 1), (0, 0)])
def test_too_few_probes_are_refused(bursts: int, chains: int) -> None:
    with pytest.raises(ClusterError, match=f"{bursts} of the burst and {chains} of the chain"):
        calibrated(Probes(burst(bursts), chain(chains)))


@given(st.permutations(range(8)))
def test_the_order_in_which_a_burst_is_told_is_no_matter(order: list[int]) -> None:
    runs = burst(8)
    assert calibrated(Probes([runs[k] for k in order], chain(3))) == calibrated(Probes(runs, chain(3)))


def test_large_costs_are_a_warning() -> None:
    found = calibrated(Probes(burst(12), chain(10)))  # 1.5 + 2 s from end to beginning
    assert warning(found, 71.0) is None
    assert warning(found, None) is None
    assert "takes 3.50 s on this cluster, 5.8% of the predicted mean JCT" in str(warning(found, 60.0))
