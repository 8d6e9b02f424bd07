"""What the turns of the benchmark of EmuJobs have shown, as tables: lags of each, then all costs beside each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

ALONE, PLAIN, SCHEDULED = "Jobs alone", "EmuJobs", "scheduled"
CONTROLLER, SCHEDULER = "operators.jobs", "emugpu scheduler"
BENCHMARK, OTHERS = "(this benchmark)", "(all other processes)"


@dataclass
class Turn:
    """What one turn has shown. `at`: for each thing that can happen to a job, when it first did, by the job's name."""

    at: dict[str, dict[str, float]] = field(default_factory=dict)
    rate_per_s: float = 0.0
    cpu_s: dict[str, float] = field(default_factory=dict)
    memory_mib: dict[str, float] = field(default_factory=dict)
    requests: dict[tuple[str, str], int] = field(default_factory=dict)
    decisions_ms: list[float] = field(default_factory=list)
    unfinished: int = 0
    load: float = 0.0

    def mark(self, what: str, name: str, now_s: float) -> None:
        self.at.setdefault(what, {}).setdefault(name, now_s)

    def lags(self, since: str, until: str) -> list[float]:
        """Milliseconds, of all jobs that both have happened to; sorted."""
        began, ended = self.at.get(since, {}), self.at.get(until, {})
        return sorted(1e3 * (ended[name] - began[name]) for name in began if name in ended)


KUBERNETES = ("(Kubernetes: pod ended until complete)", "pod Succeeded", "Complete")
LAGS = {
    ALONE: (("Job accepted until its pod is there", "accepted", "pod"), KUBERNETES),
    PLAIN: (
        ("EmuJob accepted until its Job is there", "accepted", "Job"),
        ("pod runs until phase Running", "pod Running", "phase Running"),
        ("Job complete until phase Succeeded", "Complete", "phase Succeeded"),
        ("pod ended until phase Succeeded", "pod Succeeded", "phase Succeeded"),
        ("(Kubernetes: a Job until its pod)", "let go", "pod"),
        KUBERNETES,
    ),
}
LAGS[SCHEDULED] = (*LAGS[PLAIN], ("Job is there until it is let go", "Job", "let go"))
TURNS = tuple(LAGS)


def print_lags(name: str, turn: Turn) -> None:
    """One turn's block; times in milliseconds."""
    print(f"\n{name:38}{'count':>8}{'p50 ms':>10}{'p99 ms':>10}{'max ms':>10}")
    for what, since, until in LAGS[name]:
        print_quantiles(what, turn.lags(since, until))
    if name == SCHEDULED:
        print_quantiles("a decision", turn.decisions_ms)
    print(f"accepted {turn.rate_per_s:.2f}/s, not ended {turn.unfinished}, load average {turn.load:.1f}", flush=True)


def print_quantiles(what: str, values: Sequence[float]) -> None:
    figures = [f"{rank(values, share):.0f}" if values else "-" for share in (0.5, 0.99, 1.0)]
    print(f"{what:38}{len(values):8}" + "".join(f"{figure:>10}" for figure in figures))


def rank(values: Sequence[float], share: float) -> float:
    """The quantile of sorted values."""
    return values[min(len(values) - 1, int(share * len(values)))]


def print_costs(turns: Mapping[str, Turn], jobs: int) -> None:
    """CPU, memory and requests of all turns beside each other; ratios to the peer."""
    titles = "".join(f"{name:>24}" for name in turns)
    print(f"\n{'CPU s, peak MiB':36}{titles}")
    programs = list(dict.fromkeys(program for turn in turns.values() for program in turn.cpu_s))
    for program in programs:
        cells = [cost(turn.cpu_s.get(program), turn.memory_mib.get(program)) for turn in turns.values()]
        print(f"{program:36}" + "".join(cells))
    ours = (CONTROLLER, SCHEDULER)
    beside = (*ours, BENCHMARK, OTHERS)
    print_row("Kubernetes and kwok, CPU s per job", turns, lambda turn: total(turn.cpu_s, without=beside) / jobs)
    print_row("and ours", turns, lambda turn: total(turn.cpu_s, without=beside[2:]) / jobs)
    print_row("API requests per job", turns, lambda turn: sum(turn.requests.values()) / jobs)
    keys = {key for turn in turns.values() for key, count in turn.requests.items() if count >= jobs / 2}
    for verb, resource in sorted(keys, key=lambda key: (key[1], key[0])):
        print_row(f"  {verb} {resource}", turns, partial(requests_of, verb, resource, jobs))


def cost(cpu_s: float | None, memory_mib: float | None) -> str:
    if cpu_s is None:
        return f"{'-':>14}{'':10}"
    return f"{cpu_s:14.1f}" + (f"{memory_mib:10.0f}" if memory_mib is not None else f"{'':10}")


def total(values: Mapping[str, float], *, without: Sequence[str]) -> float:
    return sum(value for name, value in values.items() if name not in without)


def requests_of(verb: str, resource: str, jobs: int, turn: Turn) -> float:
    return turn.requests.get((verb, resource), 0) / jobs


def print_row(what: str, turns: Mapping[str, Turn], figure: Callable[[Turn], float]) -> None:
    peer = figure(turns[ALONE]) if ALONE in turns else 0.0
    cells = ""
    for turn in turns.values():
        ratio = f"{figure(turn) / peer:.2f} x" if peer else ""
        cells += f"{figure(turn):14.3f}{ratio:>10}"
    print(f"{what:36}{cells}")
