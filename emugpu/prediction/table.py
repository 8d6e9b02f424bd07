"""The predictions of a job as a table in the terminal, and what is worth saying below it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from rich import box
from rich.table import Table

from emugpu.prediction.figures import PARTS, Amounts, bubble_part, figures
from emulator_runtime.domain.units import GIB, gib
from emulator_runtime.prediction.prediction import BUBBLE, COMMUNICATION, Prediction

CAPTION = (
    "Step: mean after the first two. MFU: operations at the data sheet's rate, as a share of the step. Exposed: "
    "collectives beside which nothing is computed.{bubble} Memory: of the rank that needs most. Bound: what takes most of a "
    "step. "
    "Estimates: where they come from, by time, and their median error where it is known."
)
_BUBBLE_CAPTION = " Bubble: share of a step that waits for the other side of a message."
_MOST_RANKS = 8


Columns = dict[str, Callable[[Prediction], str]]
"""What is known of a GPU type, by heading."""


def tables(predictions: Sequence[Prediction], amounts: Amounts) -> Iterator[Table]:
    """A line for each GPU type; throughput and cost, where they are known, in a table of their own."""
    columns = step_cells(predictions)
    bubble = _BUBBLE_CAPTION if "Bubble" in columns else ""
    yield _table(predictions, columns, CAPTION.format(bubble=bubble))
    if columns := amount_cells(predictions, amounts):
        yield _table(predictions, columns, "")


def _table(predictions: Sequence[Prediction], columns: Columns, caption: str) -> Table:
    found = Table(
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
        show_edge=False,
        caption=caption or None,
        caption_justify="left",
    )
    found.add_column("GPU type", no_wrap=True)
    for heading in columns:
        found.add_column(heading, justify="left" if heading in ("Bound", "Estimates") else "right")
    for one in predictions:
        found.add_row(one.gpu_type, *(cell(one) for cell in columns.values()))
    return found


def step_cells(predictions: Sequence[Prediction]) -> Columns:
    """The step, where it goes, and memory."""
    columns: Columns = {
        "Step": lambda one: f"{_length_s(one) * 1000:,.2f} ms",
        "MFU": lambda one: "-" if one.mfu is None else f"{one.mfu:.1%}",
        "Exposed": lambda one: f"{one.seconds.get(COMMUNICATION, 0.0) * 1000:,.2f} ms",
    }
    if any(one.seconds.get(BUBBLE) for one in predictions):
        columns["Bubble"] = lambda one: f"{bubble_part(one):.1%}"
    return {**columns, "Memory": _memory, "Bound": _bound, "Estimates": _estimates}


def amount_cells(predictions: Sequence[Prediction], amounts: Amounts) -> Columns:
    """Throughput and cost, as far as they are known."""
    known = [figures(one, amounts) for one in predictions]
    columns: Columns = {}
    for name, amount in (("Tokens", amounts.tokens), ("Samples", amounts.samples)):
        if amount is not None:
            columns |= _rates(name, amount)
    if any(one.step_cost is not None for one in known):
        columns["Cost of a step"] = lambda one: _money(figures(one, amounts).step_cost)
    if any(one.million_tokens_cost is not None for one in known):
        columns["1M tokens"] = lambda one: _money(figures(one, amounts).million_tokens_cost)
    if any(one.thousand_samples_cost is not None for one in known):
        columns["1,000 samples"] = lambda one: _money(figures(one, amounts).thousand_samples_cost)
    return columns


def _rates(name: str, amount: float) -> Columns:
    return {
        f"{name}/s": lambda one: _number(amount / one.step_s if one.step_s else None),
        f"{name}/s a GPU": lambda one: _number(amount / one.step_s / one.gpus if one.step_s else None),
    }


def _length_s(one: Prediction) -> float:
    return one.total_s if one.step_s is None else one.step_s


def _memory(one: Prediction) -> str:
    return "out of memory" if one.out_of_memory else f"{gib(one.memory_bytes)} of {gib(one.device_memory_bytes)}"


def _bound(one: Prediction) -> str:
    length_s = _length_s(one)
    return f"{PARTS[one.bound]} {one.seconds.get(one.bound, 0.0) / length_s:.0%}" if length_s else "-"


def _estimates(one: Prediction) -> str:
    return ", ".join(
        f"{source} {share:.0%}" + ("" if error is None else f" (±{error:.1%})")
        for source, (share, error) in sorted(one.sources.items(), key=lambda item: -item[1][0])
    )


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _money(value: float | None) -> str:
    return "-" if value is None else f"{value:,.2f}" if value >= 1 else f"{value:.3g}"


def notes(predictions: Sequence[Prediction], *, by_rank: bool = True) -> Iterator[str]:
    """Sentences. `by_rank`: also the memory of the ranks."""
    if any(one.step_s is None for one in predictions):
        yield "No step was found, since no sequence of work comes twice in a row: times are of the whole trace."
    for one in predictions:
        if one.out_of_memory:
            ranks = ", ".join(map(str, one.out_of_memory[:8])) + (" ..." if len(one.out_of_memory) > 8 else "")
            needs = f"{gib(one.memory_bytes)} of {gib(one.device_memory_bytes)}"
            yield f"{one.gpu_type}: out of memory on rank {ranks} ({needs}); the times are those of a GPU with more."
        if not one.settled:
            yield f"{one.gpu_type}: how long collectives take that share links didn't settle; times are of the last replay."
    if by_rank and (line := memory_by_rank(predictions[0])):
        yield line


def memory_by_rank(one: Prediction) -> str:
    """Empty for a job of one rank."""
    peaks = [(rank.rank, max(rank.memory_bytes.values(), default=0) / GIB) for rank in one.ranks]
    if len(peaks) < 2:
        return ""
    shown = ", ".join(f"{rank}: {peak:.2f}" for rank, peak in peaks[:_MOST_RANKS])
    rest = [peak for _, peak in peaks[_MOST_RANKS:]]
    more = f", the other {len(rest)}: {min(rest):.2f} to {max(rest):.2f}" if rest else ""
    return f"Memory peak by rank on {one.gpu_type}, GiB: {shown}{more}"
