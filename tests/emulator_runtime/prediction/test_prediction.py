"""Predictions for GPU types: steps, what bounds them, memory, anchors."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from emulator_runtime.domain.errors import InputError, UnknownNameError
from emulator_runtime.domain.units import GIB, MIB
from emulator_runtime.prediction.estimators import Roofline
from emulator_runtime.prediction.intervals import total, union, within, without
from emulator_runtime.prediction.links import Links
from emulator_runtime.prediction.prediction import Conditions, Prediction, Predictor, recorded_type
from emulator_runtime.prediction.records import Communicator, Launch, RankTrace, Trace, Work, WorkKind
from emulator_runtime.prediction.timeline import write_timeline
from tests.support.traces import Host, hosts

A100, H100 = "NVIDIA_A100-SXM4-40GB", "NVIDIA-H100-80GB-HBM3"
MS = 1_000_000
NORMALISATION = Work("norm", WorkKind.MEMORY_BOUND, bytes=1e9)
PRODUCT = Work("gemm", WorkKind.PRODUCT, flops=4e12, bytes=1e8, precision=4)


def launch(host: Host, work: Work, *, dispatched: bool = False) -> None:
    host.records.append(Launch(host.at, 0, 0, 0, work, dispatched))


def training(host: Host, steps: int = 5) -> Host:
    """A product and a normalisation a step, issued in no time; the host waits for each step."""
    for _ in range(steps):
        launch(host, PRODUCT)
        launch(host, NORMALISATION)
        host.synchronize(host.mark())
    return host


def predicted(*ranks: Host, gpu: str = A100, conditions: Conditions | None = None) -> Prediction:
    return Predictor(Trace([host.trace() for host in ranks])).predict(gpu, conditions or Conditions())


def work_s(gpu: str) -> float:
    roofline = Roofline(gpu)
    return (roofline.work(PRODUCT).duration_ns + roofline.work(NORMALISATION).duration_ns) / 1e9


def test_the_first_two_steps_do_not_count() -> None:
    host = Host()
    for wait_ms in (900, 400, 100, 100, 100):
        host.at += wait_ms * MS
        training(host, 1)
    assert predicted(host).step_s == pytest.approx(0.1 + work_s(A100))
    assert predicted(training(Host(), 2)).step_s == pytest.approx(work_s(A100)), "unless there are only two"


@pytest.mark.parametrize("gpu", [A100, H100])
def test_a_step_takes_its_work(gpu: str) -> None:
    found = predicted(training(Host()), gpu=gpu)
    assert found.step_s == pytest.approx(work_s(gpu), rel=1e-12)
    assert found.ranks[0].steps == 5
    assert found.total_s == pytest.approx(5 * work_s(gpu), rel=1e-12)
    assert found.mfu == pytest.approx(4e12 / Roofline(gpu).peak_operations_per_s(4) / work_s(gpu))
    assert sum(found.seconds.values()) == pytest.approx(found.step_s)
    assert found.ranks[0].source_s == pytest.approx({"roofline": work_s(gpu)})


def test_a_host_that_needs_longer_is_what_bounds_a_step() -> None:
    """100 ms of data loading a step, after which the work begins."""
    host = Host()
    for _ in range(4):
        host.at += 100 * MS
        training(host, 1)
    found = predicted(host)
    assert found.step_s == pytest.approx(0.1 + work_s(A100))
    assert found.bound == "host"
    assert found.seconds["host"] == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("work", "bound"),
    [
        (PRODUCT, "compute"),
        (NORMALISATION, "memory"),
        (Work("tiny", WorkKind.KERNEL, bytes=1000), "launch"),
    ],
)
def test_what_most_work_is_limited_by_bounds_a_step(work: Work, bound: str) -> None:
    host = Host()
    for _ in range(3):
        launch(host, work)
        launch(host, work)
        launch(host, Work("end", 0, bytes=1))
    assert predicted(host).bound == bound


def test_copies_that_nothing_hides_bound_a_step() -> None:
    host = Host()
    for _ in range(3):
        host.copy(10**9)
        launch(host, PRODUCT)
        host.synchronize(host.mark())
    found = predicted(host)
    assert found.bound == "copies"
    assert found.seconds["copies"] == pytest.approx(1e9 / 25e9, rel=0.01)


def test_communication_counts_where_nothing_computes_beside_it() -> None:
    """The all-reduce of 1 GB takes longer than the normalisation beside it; rank 1 comes 5 ms later, for which rank 0 waits."""
    ranks = hosts(2)
    for host in ranks:
        for step in range(4):
            launch(host, PRODUCT)
            host.at += 5 * MS * host.rank
            reached = host.mark()
            host.wait(reached, 1)
            host.all_reduce(step, 10**9, stream=1)
            launch(host, NORMALISATION)
            host.synchronize(host.mark(stream=1))
    found = predicted(*ranks)
    links = Links.between([Roofline(A100).spec])
    all_reduce_s = links.collective_ns("all_reduce", 1e9, 2, 1) / 1e9
    beside_s = Roofline(A100).work(NORMALISATION).duration_ns / 1e9
    assert all_reduce_s > beside_s
    for rank in found.ranks:
        assert rank.seconds["communication"] == pytest.approx(all_reduce_s - beside_s, rel=1e-6)
    slower = Conditions(network_gbps=1)
    assert predicted(*ranks, conditions=slower).step_s == found.step_s, "both ranks are on one node"


def test_a_slower_network_makes_collectives_longer() -> None:
    ranks = hosts(2, nodes=2)
    for host in ranks:
        for step in range(3):
            launch(host, PRODUCT)
            host.all_reduce(step, 10**9)
            launch(host, NORMALISATION)
    fast, slow = (predicted(*ranks, conditions=Conditions(gbps)).seconds["communication"] for gbps in (400, 100))
    assert slow == pytest.approx(4 * fast, rel=0.01)


def test_a_rank_that_waits_for_others_says_so() -> None:
    ranks = hosts(2)
    for host in ranks:
        for step in range(3):
            host.at += 50 * MS * host.rank
            launch(host, NORMALISATION)
            host.all_reduce(step, 8)
            host.synchronize(host.mark())
    found = predicted(*ranks)
    assert found.ranks[0].seconds["peers"] == pytest.approx(0.05, rel=0.01)
    assert found.ranks[1].seconds["peers"] == 0
    assert found.ranks[1].seconds["host"] == pytest.approx(0.05, rel=0.01)


def test_waiting_for_the_other_side_of_a_message_is_a_bubble() -> None:
    """Rank 1 works on what rank 0 sends it after its own product; it sends nothing back, so it waits as long as a product takes
    less its own normalisation."""
    ranks = hosts(2)
    for _ in range(4):
        launch(ranks[0], PRODUCT)
        ranks[0].exchange((1, 8, 0), duration=0)
        ranks[1].exchange((0, 0, 8), duration=0)
        launch(ranks[1], NORMALISATION)
    found = predicted(*ranks)
    roofline, message_s = Roofline(A100), 11.8e-6
    product_s, other_s = (roofline.work(work).duration_ns / 1e9 for work in (PRODUCT, NORMALISATION))
    assert product_s > other_s
    assert found.ranks[0].seconds["bubble"] == 0
    assert found.ranks[1].seconds["bubble"] == pytest.approx(product_s - other_s, rel=1e-6)
    assert found.ranks[1].seconds["communication"] == pytest.approx(message_s, rel=1e-3)
    assert found.ranks[1].seconds["peers"] == 0
    assert found.gpus == 2


def test_communicators_of_a_node_share_its_network() -> None:
    """4 ranks on 2 nodes, in 2 pairs across them: the all-reduces of both pairs begin at once, and take twice as long; if one
    pair comes when the other is done, each takes what it takes alone."""
    alone_s = Links.between([Roofline(A100).spec]).collective_ns("all_reduce", 1e9, 2, 2) / 1e9
    for late, conditions, expected_s in (
        (False, Conditions(), 2 * alone_s),
        (False, Conditions(shared_links=False), alone_s),
        (True, Conditions(), alone_s),
    ):
        ranks = hosts(4, nodes=2)
        for host in ranks:
            pair = host.rank % 2
            members = tuple(host.communicators[0].members[rank] for rank in (pair, pair + 2))
            host.communicators = {0: Communicator(0, f"pair {pair}", host.rank // 2, members)}
            host.at = round(1.5 * alone_s * 1e9) * pair * late
            host.all_reduce(0, 10**9)
        runs = predicted(*ranks, conditions=conditions).runs
        for run in runs:
            took_ns = run.collectives.ends_ns[0] - run.collectives.starts_ns[0]
            assert took_ns / 1e9 == pytest.approx(expected_s, rel=0.01)
            assert took_ns == round(alone_s * 1e9) or expected_s > alone_s


def test_a_collective_takes_compute_units_from_work_beside_it() -> None:
    ranks = hosts(2)
    for host in ranks:
        launch(host, NORMALISATION)
        host.all_reduce(0, 10**9, stream=1)
    full, less = (predicted(*ranks, conditions=Conditions(sm_share=share)).runs[0] for share in (0.0, 0.5))
    beside_ns = Roofline(A100).work(NORMALISATION).duration_ns
    assert full.collectives.ends_ns[0] > 2 * beside_ns
    assert full.device_work.ends_ns[0] == beside_ns
    assert less.device_work.ends_ns[0] == 2 * beside_ns


def test_without_steps_the_whole_trace_counts() -> None:
    host = Host()
    launch(host, PRODUCT)
    found = predicted(host)
    assert found.step_s is None
    assert found.ranks[0].steps == 0
    assert found.total_s == pytest.approx(Roofline(A100).work(PRODUCT).duration_ns / 1e9)
    assert found.bound == "compute"


def test_a_trace_that_does_nothing_is_bound_by_its_host() -> None:
    found = predicted(Host())
    assert (found.total_s, found.bound, found.mfu, found.memory_bytes) == (0, "host", None, 0)


def test_memory_has_the_other_types_context_and_may_be_too_little() -> None:
    """50 GiB with the context of an A100: no A100 of 40 GB has that."""
    host = Host(rank=2)
    context = Roofline(A100).context_bytes
    host.memory(50 * GIB + context)
    trace = Trace([RankTrace(0, []), RankTrace(2, host.records, {}, (A100,), context)])
    predictor = Predictor(trace)
    assert predictor.predict(A100).out_of_memory == (2,)
    on_h100 = predictor.predict("H100")
    assert on_h100.out_of_memory == ()
    assert on_h100.gpu_type == H100
    assert on_h100.memory_bytes == 50 * GIB + Roofline(H100).context_bytes
    assert context % MIB == 0


def test_estimates_are_anchored_to_a_steps_time() -> None:
    """On the other type the factor stays."""
    trace = Trace([training(Host()).trace()])
    predictor = Predictor(trace)
    anchors = predictor.anchor("A100", 1.5 * work_s(A100))
    found = predictor.predict("A100", anchors=anchors)
    assert found.step_s == pytest.approx(1.5 * work_s(A100), rel=1e-6)
    assert found.ranks[0].factor == pytest.approx(1.5, rel=1e-6)
    assert set(found.ranks[0].source_s) == {"anchored"}
    assert predictor.predict("H100", anchors=anchors).step_s == pytest.approx(1.5 * work_s(H100), rel=1e-6)


@pytest.mark.parametrize("ratio", [0.3, 3.0])
def test_a_step_time_that_nothing_is_near_is_an_error(ratio: float) -> None:
    predictor = Predictor(Trace([training(Host(rank=1)).trace()]))
    with pytest.raises(InputError, match="--step-time: rank 1 does nothing twice in a row"):
        predictor.anchor("A100", ratio * work_s(A100))


def test_a_wrong_type_or_trace_is_an_error() -> None:
    with pytest.raises(InputError, match="TRACE: has no ranks"):
        Predictor(Trace([]))
    with pytest.raises(UnknownNameError, match="--gpu"):
        predicted(Host(), gpu="A10000")


def test_the_type_of_a_trace_is_its_devices() -> None:
    assert recorded_type(Trace([RankTrace(0, [], gpu_types=(A100, A100))])) == A100
    with pytest.raises(InputError, match="with the GPU types A, B; name"):
        recorded_type(Trace([RankTrace(0, [], gpu_types=("A",)), RankTrace(1, [], gpu_types=("B",))]))
    with pytest.raises(InputError, match="with no GPU type"):
        recorded_type(Trace([RankTrace(0, [])]))


def test_a_timeline_has_a_row_for_each_stream_and_thread(tmp_path: Path) -> None:
    ranks = hosts(2)
    for host in ranks:
        host.launch(1000, name="_ZN2at6kernelEi")
        host.copy(1000, stream=1)
        host.copy(1000, stream=1, to=-1, source=0)
        host.function(1000, stream=1)
        host.all_reduce(0, 8)
        host.synchronize(host.mark())
    path = tmp_path / "timeline.json.gz"
    write_timeline(path, predicted(*ranks).runs)
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    rows = {(event["pid"], event["tid"]): event["args"]["name"] for event in events if event["name"] == "thread_name"}
    done = [
        (event["name"], rows[event["pid"], event["tid"]])
        for event in events
        if event["ph"] == "X" and event["pid"] == 1
    ]
    one, two, host_row = "device 0, stream 0", "device 0, stream 1", "host thread 0"
    assert sorted(done) == sorted(
        [
            ("at::kernel(int)", one),
            ("Memcpy HtoD", two),
            ("Memcpy DtoH", two),
            ("host function", two),
            ("all_reduce", one),
            ("wait", host_row),
        ]
    )
    assert all(event["dur"] >= 0 for event in events if event["ph"] == "X")


def test_sets_of_times() -> None:
    taken = union([(5, 7), (0, 2), (2, 3), (6, 9), (4, 4)])
    assert taken == [(0, 3), (5, 9)]
    assert total(taken) == 7
    assert within(taken, 1, 6) == [(1, 3), (5, 6)]
    assert without([(0, 10), (12, 14)], taken) == [(3, 5), (9, 10), (12, 14)]
    assert without(taken, [(0, 20)]) == []
    assert without(taken, []) == taken
