"""report.html of predictions: figures for each GPU type, where a step's time goes, memory, a timeline, what it all rests on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from emugpu.prediction.figures import PARTS, Amounts
from emugpu.prediction.report_charts import by_rank, by_type, chosen, memory, short_name
from emugpu.prediction.step_timeline import step_figure
from emugpu.prediction.table import Columns, amount_cells, notes, step_cells
from emulator_runtime.prediction.estimators import ANCHORED, ROOFLINE, TABLE
from emulator_runtime.prediction.prediction import Conditions, Prediction
from scheduler_sims.reports.files import write_atomically
from scheduler_sims.reports.page.frame import chart_section, document, gantt_section, json_in_script

_TIMELINE_RANKS = 8
_TIMELINE_TEXT = (
    "The last step, a box for each piece of work, or for several that follow each other closely. Host: the program's own part, "
    "without its waits. Collectives: from when all ranks have come; before that, a rank waits for others."
)
_PARTS_TEXT = (
    "compute and memory: work that is limited by its operations or by its memory traffic. small kernels: work whose fixed time "
    "is the largest part. While nothing is computed: communication is a collective or message, bubble is waiting for the "
    "other side of a message, slower ranks is waiting for a collective to begin, copies is a copy from or to the host, host is "
    "the rest."
)
_MEMORY_TEXT = "Dashed: what a GPU has. GPU types differ in their context."
_SOURCES = {
    ROOFLINE: "estimated from the data sheet of the GPU type, with constants fitted to published measurements",
    TABLE: "measured times of kernels",
    ANCHORED: "estimated, multiplied so that a step takes its measured time",
}


@dataclass(frozen=True, slots=True)
class Subject:
    """What was predicted. `command`: of the traced program."""

    command: Sequence[str]
    conditions: Conditions
    amounts: Amounts


def write_report(path: Path, predictions: Sequence[Prediction], subject: Subject) -> None:
    """Raises InputError if the file can't be written."""
    write_atomically(path, render(predictions, subject))


def render(predictions: Sequence[Prediction], subject: Subject) -> str:
    """The whole page. There is at least one prediction."""
    charts: dict[str, Any] = {"parts": by_type(predictions)}
    first = predictions[0]
    sections = [
        _header(predictions, subject),
        _notes_section(predictions),
        _table_section(predictions, subject.amounts),
    ]
    sections.append(chart_section("parts", "Where a step's time goes", _PARTS_TEXT))
    if len(first.ranks) > 1:
        charts["ranks"] = by_rank(first)
        heading = f"Where it goes on each rank, on {short_name(first.gpu_type)}"
        sections.append(chart_section("ranks", heading, _some_of("The parts are those above.", first)))
    charts["memory"] = memory(predictions)
    sections.append(
        chart_section(
            "memory",
            "Memory of each rank",
            _some_of(_MEMORY_TEXT, first),
        )
    )
    sections.append(gantt_section("One steady step", _TIMELINE_TEXT, ("GPU type", "ranks")))
    sections.append(_assumptions_section(predictions, subject.conditions))
    data = {"charts": charts, "gantt": [_timelines(one) for one in predictions]}
    return document(_title(subject), "\n".join(filter(None, sections)), json_in_script(data))


def _title(subject: Subject) -> str:
    words = " ".join(subject.command) or "a traced program"
    return f"Predicted: {words if len(words) <= 90 else words[:89] + '…'}"


def _header(predictions: Sequence[Prediction], subject: Subject) -> str:
    first = predictions[0]
    steps = min(rank.steps for rank in first.ranks)
    meta = {
        "ranks": f"{len(first.ranks):,}",
        "GPUs": f"{first.gpus:,}",
        "steps in the trace": f"{steps:,}" if steps else "none found",
        "tokens a step": _amount(subject.amounts.tokens),
        "samples a step": _amount(subject.amounts.samples),
        "network": _network(subject.conditions),
    }
    items = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in meta.items() if value
    )
    return (
        f"<header><h1>{escape(_title(subject))}</h1><p class='lead'>{escape(_lead(predictions))}</p>"
        f"<dl class='meta'>{items}</dl></header>"
    )


def _lead(predictions: Sequence[Prediction]) -> str:
    steps = {short_name(one.gpu_type): one.step_s for one in predictions if one.step_s}
    if not steps:
        return "No step was found: times are of the whole trace."
    fastest = min(steps, key=lambda name: steps[name] or 0)
    text = f"A step takes {(steps[fastest] or 0) * 1000:,.2f} ms on {fastest}"
    others = [f"{(time or 0) * 1000:,.2f} on {name}" for name, time in steps.items() if name != fastest]
    bound = PARTS[next(one for one in predictions if short_name(one.gpu_type) == fastest).bound]
    return text + (f", {', '.join(others)}" if others else "") + f". On {fastest} most of it is {bound}."


def _amount(value: float | None) -> str:
    return "" if value is None else f"{value:,.0f}"


def _network(conditions: Conditions) -> str:
    topology = conditions.topology
    if topology is None:
        return f"{conditions.network_gbps:g} Gbit/s a node, ranks where they were recorded"
    parts = [f"{topology.network_gbps:g} Gbit/s a node"]
    if topology.network_cards > 1:
        parts.append(f"{topology.network_cards} cards a node")
    parts.append(f"{topology.gpus_per_node} GPUs a node" if topology.gpus_per_node else "")
    parts.append(f"{topology.nodes} nodes" if topology.nodes else "")
    if topology.nvlink_domain:
        parts.append("no NVLink" if topology.nvlink_domain == 1 else f"NVLink joins {topology.nvlink_domain} GPUs")
    if topology.nodes_per_rack:
        parts.append(f"{topology.nodes_per_rack} nodes a rack, oversubscribed {topology.oversubscription:g}:1")
    return ", ".join(filter(None, parts))


def _notes_section(predictions: Sequence[Prediction]) -> str:
    lines = list(notes(predictions, by_rank=False))
    if not lines:
        return ""
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f"<section class='warnings'><h2>Read this first</h2><ul>{items}</ul></section>"


def _table_section(predictions: Sequence[Prediction], amounts: Amounts) -> str:
    tables = _table(predictions, step_cells(predictions))
    if columns := amount_cells(predictions, amounts):
        tables += _table(predictions, columns)
    return f"<section><h2>On each GPU type</h2>{tables}</section>"


def _table(predictions: Sequence[Prediction], columns: Columns) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in columns)
    rows = "".join(
        f"<tr><td class='name'>{escape(one.gpu_type)}</td>"
        + "".join(f"<td>{escape(cell(one))}</td>" for cell in columns.values())
        + "</tr>"
        for one in predictions
    )
    return (
        f"<div class='scroll'><table><thead><tr><th class='name'>GPU type</th>{head}</tr></thead>"
        f"<tbody>{rows}</tbody></table></div>"
    )


def _some_of(text: str, prediction: Prediction) -> str:
    shown, count = len(chosen(prediction.ranks)), len(prediction.ranks)
    return text if shown == count else f"{text} {shown} of {count:,} ranks, at equal distances."


def _timelines(prediction: Prediction) -> dict[str, Any]:
    groups = {"all": list(prediction.ranks)}
    if len(prediction.ranks) > _TIMELINE_RANKS:
        some = chosen(prediction.ranks, _TIMELINE_RANKS)
        first = list(prediction.ranks[:_TIMELINE_RANKS])
        groups = {f"{len(some)}, at equal distances": some, f"the first {len(first)}": first}
    runs = {run.trace.rank: run for run in prediction.runs}
    choices = []
    for name, ranks in groups.items():
        step_ns = max((rank.last_step_ns for rank in ranks), key=lambda step: step[1] - step[0])
        figure, merged = step_figure([runs[rank.rank] for rank in ranks if rank.rank in runs], step_ns)
        boxes = len(figure["data"][0]["x"])
        caption = f"{boxes:,} boxes, {merged:,} of which stand for several pieces of work. Drag to enlarge it."
        choices.append({"name": name, "caption": caption, "figure": figure})
    return {"policy": short_name(prediction.gpu_type), "runs": choices}


def _assumptions_section(predictions: Sequence[Prediction], conditions: Conditions) -> str:
    lines = [f"<li>{escape(line)}</li>" for line in assumptions(predictions, conditions)]
    return f"<section><h2>What it rests on</h2><ul>{''.join(lines)}</ul></section>"


def assumptions(predictions: Sequence[Prediction], conditions: Conditions) -> Iterable[str]:
    """Sentences."""
    for one in predictions:
        sources: Counter[str] = Counter()
        for rank in one.ranks:
            sources.update(rank.source_s)
        total = sum(sources.values())
        for source, seconds in sources.most_common() if total else ():
            meaning = _SOURCES.get(source, source)
            yield f"{short_name(one.gpu_type)}: {seconds / total:.1%} of the time of kernels is {meaning} ({source})."
        yield from _factors(one)
    yield "The host's own time between calls is that of the machine that recorded the trace."
    yield f"Network: {_network(conditions)}."
    if conditions.topology is not None:
        names = ", ".join(conditions.topology.algorithms)
        yield f"Collectives take the fastest of these algorithms: {names}."
    yield (
        "Collectives that run at once share the bandwidth of their links."
        if conditions.shared_links
        else "Collectives that run at once don't share links."
    )
    yield f"A collective takes {conditions.sm_share:.0%} of the compute units from kernels beside it."
    yield "docs/prediction.md has the method, its accuracy and its limits."


def _factors(one: Prediction) -> Iterable[str]:
    factors: Mapping[float, int] = Counter(rank.factor for rank in one.ranks if rank.factor is not None)
    if factors:
        low, high = min(factors), max(factors)
        between = f"{low:.3f}" if low == high else f"{low:.3f} to {high:.3f}"
        yield f"{short_name(one.gpu_type)}: estimates are multiplied by {between}."
