"""The bar charts of a prediction's page, as plotly figures in plain JSON values: where time goes, and memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from emugpu.prediction.figures import PARTS
from emulator_runtime.domain.units import GIB
from emulator_runtime.prediction.estimators import COMPUTE, LAUNCH, MEMORY
from emulator_runtime.prediction.prediction import (
    BUBBLE,
    COMMUNICATION,
    COPIES,
    HOST,
    PEERS,
    Prediction,
    RankPrediction,
)
from emulator_runtime.profiles.catalogue import bundled_catalogue
from scheduler_sims.reports.page.palette import POLICY_COLOURS, plotly_text
from scheduler_sims.reports.page.series import short

Figure = dict[str, Any]
MOST_RANKS = 32
"""Of a chart with a bar for each; of more ranks, some are chosen at equal distances."""
_IDLE_COLOUR = "#8b949e"
COLOURS: Mapping[str, str] = {
    COMPUTE: POLICY_COLOURS[0],
    MEMORY: POLICY_COLOURS[2],
    LAUNCH: POLICY_COLOURS[7],
    COMMUNICATION: POLICY_COLOURS[1],
    BUBBLE: POLICY_COLOURS[6],
    PEERS: POLICY_COLOURS[3],
    COPIES: POLICY_COLOURS[4],
    HOST: _IDLE_COLOUR,
}
"""By part of a step. Work is blue and green, what stands in its way warm, the host grey."""


def short_name(gpu_type: str) -> str:
    """Such as A100."""
    return next(iter(bundled_catalogue().short_names(gpu_type)), gpu_type)


def chosen(ranks: Sequence[RankPrediction], most: int = MOST_RANKS) -> list[RankPrediction]:
    """At most so many, from the first to the last at equal distances."""
    if len(ranks) <= most:
        return list(ranks)
    return [ranks[round(number * (len(ranks) - 1) / (most - 1))] for number in range(most)]


def by_type(predictions: Sequence[Prediction]) -> Figure:
    """A bar for each GPU type: the parts of its step, mean over the ranks."""
    rows = [short_name(one.gpu_type) for one in predictions]
    return _stacked(rows, [one.seconds for one in predictions], "milliseconds of a step, mean over the ranks")


def by_rank(prediction: Prediction) -> Figure:
    """A bar for each rank."""
    ranks = chosen(prediction.ranks)
    rows = [f"rank {rank.rank}" for rank in ranks]
    return _stacked(rows, [rank.seconds for rank in ranks], "milliseconds of a step")


def _stacked(rows: Sequence[str], seconds: Sequence[Mapping[str, float]], title: str) -> Figure:
    totals_ms = [1000 * sum(parts.values()) or 1.0 for parts in seconds]
    traces = []
    for part, name in PARTS.items():
        values_ms = [1000 * parts.get(part, 0.0) for parts in seconds]
        if not any(values_ms):
            continue
        shares = [value / total for value, total in zip(values_ms, totals_ms, strict=True)]
        traces.append(
            {
                "type": "bar",
                "orientation": "h",
                "name": name,
                "y": [plotly_text(row) for row in rows],
                "x": [short(value) for value in values_ms],
                "text": [f"{share:.0%}" if share >= 0.05 else "" for share in shares],
                "textposition": "inside",
                "insidetextanchor": "middle",
                "textangle": 0,
                "insidetextfont": {"color": "#ffffff", "size": 11},
                "customdata": [short(100 * share) for share in shares],
                "hovertemplate": f"%{{y}}: {name} %{{x:,}} ms, %{{customdata}}%<extra></extra>",
                "marker": {"color": COLOURS[part], "line": {"width": 1}},
            }
        )
    return {
        "data": traces,
        "layout": {
            **_layout(len(rows), title),
            "barmode": "stack",
            "legend": {"orientation": "h", "x": 0, "y": 1, "yanchor": "bottom", "traceorder": "normal"},
        },
    }


def memory(predictions: Sequence[Prediction]) -> Figure:
    """A bar for each rank and a line for the capacity of each GPU type; GPU types differ in the size of a context only."""
    first = predictions[0]
    ranks = chosen(first.ranks)
    peaks = [max(rank.memory_bytes.values(), default=0) for rank in ranks]
    capacities: dict[int, list[str]] = {}
    for one in predictions:
        capacities.setdefault(one.device_memory_bytes, []).append(short_name(one.gpu_type))
    top = max([*capacities, *peaks]) / GIB * 1.06
    figure = {
        "type": "bar",
        "orientation": "h",
        "y": [f"rank {rank.rank}" for rank in ranks],
        "x": [short(peak / GIB) for peak in peaks],
        "text": [f"{peak / GIB:.2f}" for peak in peaks],
        "textposition": "auto",
        "textangle": 0,
        "hovertemplate": "%{y}: %{x} GiB<extra></extra>",
        "marker": {
            "color": [POLICY_COLOURS[6] if peak > first.device_memory_bytes else POLICY_COLOURS[0] for peak in peaks],
            "line": {"width": 0},
        },
    }
    layout = {**_layout(len(ranks), f"GiB at the peak, on {short_name(first.gpu_type)}"), "showlegend": False}
    layout["xaxis"] |= {"range": [0, short(top)]}
    layout["margin"] = {**layout["margin"], "t": 28 + 16 * len(capacities)}
    layout["height"] += 16 * len(capacities)
    layout["shapes"] = [
        {"type": "line", "x0": short(size / GIB), "x1": short(size / GIB), "yref": "paper", "y0": 0, "y1": 1}
        | {"line": {"color": POLICY_COLOURS[6], "width": 1.5, "dash": "4px,3px"}}
        for size in capacities
    ]
    layout["annotations"] = [
        {"x": short(size / GIB), "yref": "paper", "y": 1, "yanchor": "bottom", "xanchor": "right", "showarrow": False}
        | {"text": plotly_text(f"{', '.join(names)}: {size / GIB:.1f}"), "yshift": 16 * number, "font": {"size": 11.5}}
        for number, (size, names) in enumerate(sorted(capacities.items()))
    ]
    return {"data": [figure], "layout": layout}


def _layout(rows: int, title: str) -> Figure:
    return {
        "height": 120 + max(2, rows) * (34 if rows <= 8 else 22),
        "hovermode": "closest",
        "bargap": 0.28,
        "uniformtext": {"mode": "hide", "minsize": 9},
        "xaxis": {"title": {"text": title}, "rangemode": "tozero"},
        "yaxis": {"autorange": "reversed", "type": "category", "showgrid": False, "fixedrange": True},
        "margin": {"l": 60, "r": 24, "t": 40, "b": 50},
    }
