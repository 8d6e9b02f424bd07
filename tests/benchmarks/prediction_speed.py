"""Records per second of the prediction, beside a plain walk over the same records, and the memory that it needs for each.

Four traces: one rank that trains alone (copies, events, a wait a step), 8 ranks with 10 collectives a step beside their work
(DDP), 256 ranks with 100 (FSDP), and 64 ranks with 10, each with the ranks at its place in 8 nodes, so that 8 communicators share
the network of each node. `simulate` is the replay alone, `shared` finds out what shares links, and replays until that stays (the
number of replays is beside it); `predict` has the estimates, the steps and what bounds them, too.
Memory is what the replay allocates at its peak, by tracemalloc, in a run of its own.
"""

from __future__ import annotations

import argparse
import sys
import time
import tracemalloc
from collections.abc import Callable

from emulator_runtime.prediction.estimators import Roofline
from emulator_runtime.prediction.links import Links
from emulator_runtime.prediction.network.contention import Contention, replay
from emulator_runtime.prediction.network.fabric import Fabric
from emulator_runtime.prediction.network.topology import RING, TREE, Topology
from emulator_runtime.prediction.prediction import Predictor
from emulator_runtime.prediction.records import (
    Await,
    Collective,
    Communicator,
    Copy,
    HostWaits,
    Launch,
    Mark,
    RankTrace,
    Record,
    Trace,
    Work,
)
from emulator_runtime.prediction.simulation import simulate

LAUNCHES = 800
"""Of a step; a ResNet-50's has 793."""
WORKS = [
    Work(f"kernel_{i}", i % 5, flops=1e8 * (i % 7), bytes=1e6 * (1 + i % 11), precision=4) for i in range(LAUNCHES)
]
HOST_NS = 8_000
GPU_TYPE = "A100"


def main(argv: list[str]) -> int:
    """Print the table; always 0."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks prediction_speed", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a tenth of the records")
    parser.add_argument("--rounds", type=int, default=3, help="how often each is timed (default 3; the fastest counts)")
    options, _ = parser.parse_known_args(argv)
    steps = 60 if options.quick else 600
    traces = {
        "alone": lambda: training(1, steps, 0),
        "8 ranks, DDP": lambda: training(8, max(1, steps // 8), 10),
        "256 ranks, FSDP": lambda: training(256, max(1, steps // 256), 100),
        "64 ranks, shared": lambda: training(64, max(1, steps // 64), 10, places=8),
    }
    print(
        f"{'':18}{'records':>10}{'walk /s':>13}{'simulate /s':>13}{'ratio':>7}{'shared /s':>13}{'replays':>9}{'predict /s':>13}"
        f"{'bytes a record':>16}"
    )
    for name, make in traces.items():
        print_row(name, make(), options.rounds)
    return 0


def print_row(name: str, trace: Trace, rounds: int) -> None:
    """One line of the table."""
    roofline = Roofline(GPU_TYPE)
    links = Links.between([roofline.spec])
    records = sum(len(rank.records) for rank in trace.ranks)
    walk_s = fastest(lambda: walk(trace), rounds)
    simulate_s = fastest(lambda: simulate(trace, lambda place, device: roofline, links), rounds)
    contention = Contention(Fabric.of(Topology(algorithms=(RING, TREE)), roofline.spec, trace.ranks))
    shared_s = fastest(lambda: replay(trace, lambda place, device: roofline, links, contention), rounds)
    replays = replay(trace, lambda place, device: roofline, links, contention).replays
    predict_s = fastest(lambda: Predictor(trace).predict(GPU_TYPE), 1)
    tracemalloc.start()
    kept = simulate(trace, lambda place, device: roofline, links)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    del kept
    rates = (f"{records / walk_s:>13,.0f}", f"{records / simulate_s:>13,.0f}", f"{walk_s / simulate_s:>7.2f}")
    sharing = f"{records / shared_s:>13,.0f}{replays:>9}"
    print(
        f"{name:18}{records:>10,}{''.join(rates)}{sharing}{records / predict_s:>13,.0f}{peak / records:>16.0f}",
        flush=True,
    )


def fastest(work: Callable[[], object], rounds: int) -> float:
    """Wall seconds."""
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        work()
        times.append(time.perf_counter() - began)
    return min(times)


def walk(trace: Trace) -> int:
    """The least that any replay does: look at each record's time and kind."""
    latest, launches = 0, 0
    for rank in trace.ranks:
        for record in rank.records:
            latest = record.at_ns if record.at_ns > latest else latest
            if record.__class__ is Launch:
                launches += 1
    return launches


def training(ranks: int, steps: int, collectives: int, places: int = 1) -> Trace:
    """So many steps of so many ranks on nodes of 8 GPUs, with collectives on a stream of their own: of all ranks, or of those
    whose numbers have the same remainder."""
    members = tuple((f"node-{rank // 8}", rank % 8) for rank in range(ranks))
    joined = [
        Communicator(0, f"place {rank % places}", rank // places, members[rank % places :: places])
        for rank in range(ranks)
    ]
    return Trace([rank_of(rank, joined[rank], steps, collectives) for rank in range(ranks)])


def rank_of(rank: int, communicator: Communicator, steps: int, collectives: int) -> RankTrace:
    records: list[Record] = []
    at_ns = moment = number = 0
    for _ in range(steps):
        records.append(Copy(at_ns, 0, 0, 2, 0, -1, 38_000_000))
        records.append(Mark(at_ns, 0, 0, 2, moment))
        records.append(Await(at_ns, 0, 0, 0, moment))
        moment += 1
        for index, work in enumerate(WORKS):
            at_ns += HOST_NS
            records.append(Launch(at_ns, 0, 0, 0, work))
            if collectives and index % (LAUNCHES // collectives) == 0:
                records.append(Mark(at_ns, 0, 0, 0, moment))
                records.append(Await(at_ns, 0, 0, 1, moment))
                records.append(Collective(at_ns, 0, 0, 1, 0, number, "all_reduce", 25_000_000))
                moment, number = moment + 1, number + 1
        for stream in (1, 0):
            records.append(Mark(at_ns, 0, 0, stream, moment))
            records.append(Await(at_ns, 0, 0, 0, moment))
            moment += 1
        records.append(HostWaits(at_ns, 0, moment - 1))
    return RankTrace(rank, records, {0: communicator}, (GPU_TYPE,))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
