"""The page of a prediction: its charts, the timeline of a step, and what it says."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest

from emugpu.prediction.figures import Amounts
from emugpu.prediction.report import Subject, assumptions, render
from emugpu.prediction.report_charts import MOST_RANKS, by_rank, by_type, chosen, memory
from emugpu.prediction.step_timeline import MOST_BOXES, Box, boxes_of, step_figure
from emulator_runtime.domain.units import GIB
from emulator_runtime.prediction.network.topology import Topology
from emulator_runtime.prediction.prediction import Conditions, Prediction, RankPrediction
from tests.support.traces import Host, hosts, run

A100 = "NVIDIA_A100-SXM4-40GB"


def rank(
    number: int, seconds: dict[str, float], peak: int = GIB, sources: dict[str, float] | None = None
) -> RankPrediction:
    return RankPrediction(number, 1.0, 3, 0.1, seconds, 0.4, None, {0: peak}, sources or {"roofline": 1.0}, (0, 100))


def prediction(*ranks: RankPrediction, gpu_type: str = A100, settled: bool = True) -> Prediction:
    return Prediction(gpu_type, 40 * GIB, ranks, settled=settled)


def test_parts_are_stacked_in_milliseconds() -> None:
    one = prediction(rank(0, {"compute": 0.06, "bubble": 0.04}), rank(1, {"compute": 0.08, "host": 0.02}))
    figure = by_type([one])
    stacked = {trace["name"]: (trace["x"], trace["text"]) for trace in figure["data"]}
    assert stacked == {"compute": ([70], ["70%"]), "bubble": ([20], ["20%"]), "host": ([10], ["10%"])}
    assert figure["layout"]["barmode"] == "stack"
    by_ranks = {trace["name"]: trace["x"] for trace in by_rank(one)["data"]}
    assert by_ranks == {"compute": [60, 80], "bubble": [40, 0], "host": [0, 20]}


def test_memory_is_beside_what_a_gpu_has() -> None:
    figure = memory([prediction(rank(0, {}, 10 * GIB), rank(1, {}, 50 * GIB))])
    (bars,) = figure["data"]
    assert bars["x"] == [10, 50]
    assert len(set(bars["marker"]["color"])) == 2, "one doesn't fit"
    assert [line["x0"] for line in figure["layout"]["shapes"]] == [40]
    assert figure["layout"]["annotations"][0]["text"] == "A100: 40.0"


def test_many_ranks_are_chosen_at_equal_distances() -> None:
    ranks = [rank(number, {}) for number in range(1000)]
    some = [one.rank for one in chosen(ranks)]
    assert len(some) == MOST_RANKS
    assert some[0] == 0
    assert some[-1] == 999
    assert {b - a for a, b in pairwise(some)} <= {32, 33}


def boxes(host: Host, others: Sequence[Host] = (), step: tuple[int, int] = (0, 10_000), most: int = 100) -> list[Box]:
    return list(boxes_of(run(host, *others)[0], step, most))


def test_a_step_has_lanes_for_host_compute_copies_and_collectives() -> None:
    """Work from 0 to 4000, a copy beside it until 1000, an all-reduce from 5000, for which it waits since 4000, to 6000; the host
    waits from 100 on for its end."""
    one, two = hosts(2)
    one.launch(4000, name="_ZN2at6kernelEi")
    one.copy(1000, stream=1)
    one.all_reduce(0, 1000)
    one.at = 100
    one.synchronize(one.mark())
    two.at = 5000
    two.all_reduce(0, 1000)
    found = {(box.lane, box.kind): (box.start_ns, box.end_ns, box.name) for box in boxes(one, [two], (0, 6000))}
    assert found == {
        ("host", "host"): (0, 100, "host"),
        ("compute", "compute"): (0, 4000, "_ZN2at6kernelEi"),
        ("copies", "copies"): (0, 1000, "copy of 1,000 bytes"),
        ("collectives", "waits for ranks"): (4000, 5000, "all_reduce of 1,000 bytes"),
        ("collectives", "collectives"): (5000, 6000, "all_reduce of 1,000 bytes"),
    }
    cut = {box.kind: (box.start_ns, box.end_ns) for box in boxes(one, [two], (3000, 5500))}
    assert cut["compute"] == (3000, 4000)
    assert cut["collectives"] == (5000, 5500)
    assert "copies" not in cut


def test_work_that_follows_closely_is_one_box() -> None:
    """A step of 10,000: distances up to 5 count as close. 10 at 0, 20 at 13, then 10 at 100."""
    host = Host()
    for at, duration in ((0, 10), (13, 20), (100, 10)):
        host.at = at
        host.launch(duration, name=f"kernel_{duration}")
    compute = [box for box in boxes(host) if box.lane == "compute"]
    assert compute == [
        Box("compute", "compute", 0, 33, 2, 30, "kernel_20"),
        Box("compute", "compute", 100, 110, 1, 10, "kernel_10"),
    ]


def test_a_lane_has_a_limited_number_of_boxes() -> None:
    host = Host()
    for number in range(1500):
        host.at = 1000 * number
        host.launch(10)
    (done,) = run(host)
    figure, merged = step_figure([done], (0, 1_500_000))
    drawn = figure["data"][0]
    assert len(drawn["x"]) == MOST_BOXES // 4 + 1, "two launches each, and the host"
    assert merged == MOST_BOXES // 4
    assert "pieces, " in drawn["hovertext"][-1]
    assert all(len(drawn[name]) == len(drawn["y"]) for name in ("base", "x", "customdata", "hovertext"))


def test_the_page_says_what_it_rests_on() -> None:
    mixed = prediction(rank(0, {"compute": 0.1}, sources={"roofline": 3.0, "table": 1.0}))
    lines = " ".join(
        assumptions([mixed], Conditions(topology=Topology(nodes_per_rack=4, oversubscription=2, nvlink_domain=1)))
    )
    assert "A100: 75.0% of the time of kernels is estimated from the data sheet" in lines
    assert "A100: 25.0% of the time of kernels is measured times of kernels (table)." in lines
    assert "Network: 100 Gbit/s a node, no NVLink, 4 nodes a rack, oversubscribed 2:1." in lines
    assert "share the bandwidth" in lines
    assert "don't share links" in " ".join(assumptions([mixed], Conditions(shared_links=False)))
    anchored = RankPrediction(0, 1.0, 3, 0.1, {}, None, 1.25, {0: 1}, {"anchored": 1.0})
    assert "A100: estimates are multiplied by 1.250." in list(assumptions([prediction(anchored)], Conditions()))


@pytest.mark.parametrize("settled", [True, False])
def test_the_page_begins_with_what_distorts_it(settled: bool) -> None:
    page = render(
        [prediction(rank(0, {"compute": 0.1}), settled=settled)], Subject(["train"], Conditions(), Amounts(tokens=5))
    )
    assert ("Read this first" in page) is not settled
    assert "A step takes 100.00 ms on A100. On A100 most of it is compute." in page
    assert "<dt>tokens a step</dt><dd>5</dd>" in page
