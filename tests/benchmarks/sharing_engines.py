"""Decisions per second of CPU time of the engines that divide a GPU, beside a plain one that refills all shares at each event."""

from __future__ import annotations

import argparse
import statistics
import time
from collections import defaultdict
from collections.abc import Callable

from emulator_runtime.sharing.demands import Demand, Engine, Session
from emulator_runtime.sharing.modes import MODES

SESSIONS = (1, 8, 48)
MS = 1_000_000
CAPS = (100, 300, 1000)
DESIGNS: tuple[tuple[str, Callable[[], Engine] | None], ...] = (
    *((mode.name, mode.engine) for mode in MODES.values() if mode.shared),
    ("plain filling", None),
)


def main(argv: list[str]) -> int:
    """Print the table; always 0."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks sharing_engines", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a twentieth of the decisions")
    parser.add_argument("--rounds", type=int, default=3, help="turns of each engine (default 3; the median counts)")
    options = parser.parse_args(argv)
    decisions = 2_000 if options.quick else 40_000
    print(
        f"{'engine':16}" + "".join(f"{f'{number} sessions':>16}" for number in SESSIONS) + "   decisions per CPU second"
    )
    rates: defaultdict[tuple[str, int], list[float]] = defaultdict(list)
    for _ in range(options.rounds):
        for name, make in DESIGNS:
            for sessions in SESSIONS:
                rate = rate_of(make(), sessions, decisions) if make else plain_rate(sessions, decisions // 10)
                rates[name, sessions].append(rate)
    for name, _ in DESIGNS:
        row = [statistics.median(rates[name, sessions]) for sessions in SESSIONS]
        print(f"{name:16}" + "".join(f"{rate:>16,.0f}" for rate in row))
    return 0


def terms(number: int) -> Session:
    return Session(f"s{number}", number, weight=1 + number % 3, cap_milli=CAPS[number % 3])


def rate_of(engine: Engine, sessions: int, decisions: int) -> float:
    """Sessions with steps of 1 to 5 ms that queue one step ahead."""
    for number in range(sessions):
        engine.join(terms(number))
        engine.submit(Demand(f"s{number}", 0, 0, (1 + number % 5) * MS, remaining_ns=number))
    decided, began_s = 0, time.process_time()
    while decided < decisions:
        now_ns = engine.next_ns()
        assert now_ns is not None
        for answer in engine.advance(now_ns):
            decided += 1
            step = Demand(answer.session, answer.sequence + 1, answer.piece.end_ns, answer.piece.work_ns)
            engine.submit(step)
    return decided / (time.process_time() - began_s)


def plain_rate(sessions: int, decisions: int) -> float:
    """Weighted max-min fair shares with caps, filled anew for all sessions at each end."""
    left = {number: float((1 + number % 5) * MS) for number in range(sessions)}
    all_terms = {number: terms(number) for number in left}
    decided, began_s = 0, time.process_time()
    while decided < decisions:
        open_, room = dict(all_terms), 1000.0
        rates: dict[int, float] = {}
        while open_:
            level = room / sum(session.weight for session in open_.values())
            capped = {n: s.cap_milli for n, s in open_.items() if s.cap_milli <= s.weight * level}
            if not capped:
                rates |= {n: s.weight * level for n, s in open_.items()}
                break
            rates |= capped
            room -= sum(capped.values())
            open_ = {n: s for n, s in open_.items() if n not in capped}
        first = min(left, key=lambda n: left[n] / rates[n])
        passed = left[first] / rates[first]
        left = {n: work - passed * rates[n] for n, work in left.items()}
        left[first] = float((1 + first % 5) * MS)
        decided += 1
    return decided / (time.process_time() - began_s)
