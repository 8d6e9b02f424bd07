"""Draws figure.svg of an example: a published figure and the prediction, side by side. Run: python examples/figures.py

The published lines are of GPEmu (Wang et al., PVLDB 18(6), 2025): its figure 11 from rates and times in the README of salus-3,
its figure 12a from the ends of jobs in the files behind it (github.com/mengwanguc/gpemu, plots/rep/muri/queue).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from scheduler_sims.clusters.simulated import SimulatedCluster
from scheduler_sims.experiment import Experiment
from scheduler_sims.interface.plan import Plan
from scheduler_sims.interface.policy import Policy
from scheduler_sims.interface.view import ClusterView
from scheduler_sims.loop.scheduler_loop import SchedulerLoop
from scheduler_sims.policies.resolve import resolve_policy
from scheduler_sims.reports.page.palette import POLICY_COLOURS

EXAMPLES = Path(__file__).parent
BATCH = 128
Line = Sequence[tuple[float, float]]
"""A step line: each (seconds, value) holds until the next one."""
Panel = Mapping[str, Line]
"""Lines by name."""
MURI_ENDS_S = {
    "SJF": (23, 83, 113, 144, 189, 227, 305, 384, 481, 579),
    "two queues": (31, 63, 73, 114, 147, 175, 224, 231, 328, 429),
}
SALUS_RATES = {
    "first": ((0, 215), (30, 111), (60, 74), (440.6, 0)),
    "second": ((30, 111), (60, 74), (440.6, 111), (498.3, 0)),
    "third": ((60, 74), (440.6, 111), (498.3, 215), (514.9, 0)),
}


class Watched:
    """The plans of another policy; `seen` keeps how many steps each job had done at each decision."""

    def __init__(self, policy: Policy) -> None:
        self.policy, self.needs_estimates = policy, policy.needs_estimates
        self.seen: list[tuple[float, dict[str, int]]] = []

    def plan(self, view: ClusterView) -> Plan:
        self.seen.append((view.now_s, {job.job_id: view.steps_done(job) for job in view.jobs.values()}))
        return self.policy.plan(view)


def salus() -> str:
    """Images per second of each job; the predicted ones are means between two starts or ends of jobs."""
    folder = EXAMPLES / "salus-3"
    run = Experiment.load(folder / "workload.csv", folder / "cluster.yaml")
    policy = Watched(resolve_policy(f"{folder}/together.py:Together")[1])
    loop = SchedulerLoop(
        SimulatedCluster(run.truth, run.spec.costs), run.spec, policy, run.estimates, run.workload.jobs
    )
    loop.run()
    rates: dict[str, list[tuple[float, float]]] = {job.job_id: [] for job in run.workload.jobs}
    steps = {job.job_id: job.steps for job in run.workload.jobs}
    ends_s = {record.job_id: record.finish_s for record in loop.books.records()}
    for (since_s, before), (until_s, after) in pairwise([*policy.seen, (max(ends_s.values()), {})]):
        for job_id, done in before.items():
            if until_s > since_s:
                rates[job_id].append((since_s, BATCH * (after.get(job_id, steps[job_id]) - done) / (until_s - since_s)))
    predicted = {job_id: [*line, (ends_s[job_id], 0.0)] for job_id, line in rates.items()}
    return drawing(
        {"GPEmu, figure 11": SALUS_RATES, "predicted": predicted}, "images per second", (240, 60), (600, 100)
    )


def muri() -> str:
    """Jobs that have not ended over time."""
    folder = EXAMPLES / "muri-10"
    run = Experiment.load(folder / "as-run.csv", folder / "cluster.yaml")
    policies = {"SJF": "sjf", "two queues": f"{folder}/interleave.py:Interleave"}
    ends = {name: sorted(job.finish_s for job in run.simulate(text).jobs) for name, text in policies.items()}
    panels = {"GPEmu, figure 12a": MURI_ENDS_S, "predicted (as-run.csv)": ends}
    lines = {title: {name: _remaining(ends_s) for name, ends_s in panel.items()} for title, panel in panels.items()}
    return drawing(lines, "jobs that have not ended", (10, 2), (600, 100))


def _remaining(ends_s: Sequence[float]) -> Line:
    return [(0, len(ends_s)), *((end_s, len(ends_s) - n) for n, end_s in enumerate(ends_s, 1))]


FIGURES: Mapping[str, Callable[[], str]] = {"salus-3": salus, "muri-10": muri}
WIDTH, HEIGHT, LEFT, TOP, GAP = 340, 200, 50, 60, 45


def drawing(panels: Mapping[str, Panel], unit: str, y: tuple[int, int], x: tuple[int, int]) -> str:
    """The SVG of two panels with the same axes; `y` and `x`: the end of the axis, and the distance of its ticks."""
    parts = [f'<text x="{LEFT}" y="16">{unit}</text>']
    for number, name in enumerate(next(iter(panels.values()))):
        at = LEFT + 190 + 110 * number
        parts.append(f'<path d="M{at} 12h20" stroke="{POLICY_COLOURS[number]}" stroke-width="3"/>')
        parts.append(f'<text x="{at + 26}" y="16">{name}</text>')
    for number, (title, panel) in enumerate(panels.items()):
        parts.append(f'<g transform="translate({LEFT + number * (WIDTH + GAP)} {TOP})">')
        parts += [
            f'<text x="{WIDTH / 2:g}" y="-12" text-anchor="middle" font-weight="bold">{title}</text>',
            *_axes(y, x),
        ]
        # Earlier lines are wider, so that a later one on the same values doesn't hide them.
        for rank, line in enumerate(panel.values()):
            path, width = _path(line, y[0], x[0]), 2 * (len(panel) - rank) - 0.5
            colour = POLICY_COLOURS[rank]
            parts.append(f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="{width}"/>')
        parts.append("</g>")
    size = (LEFT + 2 * WIDTH + GAP + 20, TOP + HEIGHT + 45)
    style = 'font-family="sans-serif" font-size="12" fill="#808080"'
    body = "\n".join(parts)
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size[0]} {size[1]}" {style}>\n{body}\n</svg>\n'


def _axes(y: tuple[int, int], x: tuple[int, int]) -> Iterator[str]:
    for value in range(0, y[0] + 1, y[1]):
        at = HEIGHT * (1 - value / y[0])
        yield f'<path d="M0 {at:.1f}h{WIDTH}" stroke="#808080" stroke-opacity="0.3"/>'
        yield f'<text x="-6" y="{at + 4:.1f}" text-anchor="end">{value}</text>'
    for value in range(0, x[0] + 1, x[1]):
        yield f'<text x="{WIDTH * value / x[0]:.1f}" y="{HEIGHT + 18}" text-anchor="middle">{value}</text>'
    yield f'<text x="{WIDTH / 2:g}" y="{HEIGHT + 36}" text-anchor="middle">seconds</text>'


def _path(line: Line, most: float, end_s: float) -> str:
    points = [(WIDTH * at_s / end_s, HEIGHT * (1 - value / most)) for at_s, value in line]
    return f"M{points[0][0]:.1f} {points[0][1]:.1f}" + "".join(f"H{x:.1f}V{y:.1f}" for x, y in points[1:])


if __name__ == "__main__":
    for name, draw in FIGURES.items():
        (EXAMPLES / name / "figure.svg").write_text(draw(), encoding="utf-8")
