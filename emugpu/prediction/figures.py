"""What a step means to those who pay for it: throughput and cost, and the prediction as a JSON document."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

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

PARTS: Mapping[str, str] = {
    COMPUTE: "compute",
    MEMORY: "memory",
    LAUNCH: "small kernels",
    COMMUNICATION: "communication",
    BUBBLE: "bubble",
    PEERS: "slower ranks",
    COPIES: "copies",
    HOST: "host",
}
"""Where a step's time goes, in the words that users see."""
_HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class Amounts:
    """What a step of the whole job does, as far as the user says. `prices`: of a GPU for an hour, by GPU type."""

    tokens: float | None = None
    samples: float | None = None
    prices: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Figures:
    """Of the whole job; None: not known. Costs are in the currency of the prices."""

    tokens_per_s: float | None = None
    samples_per_s: float | None = None
    step_cost: float | None = None
    million_tokens_cost: float | None = None
    thousand_samples_cost: float | None = None


def cost_of(seconds: float, gpus: int, price: float) -> float:
    """What so many GPUs cost for a time. `price`: of a GPU for an hour."""
    return seconds * gpus * price / _HOUR_S


def figures(found: Prediction, amounts: Amounts) -> Figures:
    """Without a step nothing is known."""
    if not found.step_s:
        return Figures()
    price = amounts.prices.get(found.gpu_type)
    cost = None if price is None else cost_of(found.step_s, found.gpus, price)
    return Figures(
        tokens_per_s=None if amounts.tokens is None else amounts.tokens / found.step_s,
        samples_per_s=None if amounts.samples is None else amounts.samples / found.step_s,
        step_cost=cost,
        million_tokens_cost=None if cost is None or amounts.tokens is None else cost / amounts.tokens * 1e6,
        thousand_samples_cost=None if cost is None or amounts.samples is None else cost / amounts.samples * 1e3,
    )


def as_json(found: Prediction, amounts: Amounts) -> dict[str, object]:
    """All that is known of a GPU type."""
    known, gpus = figures(found, amounts), found.gpus
    return {
        "gpu_type": found.gpu_type,
        "gpus": gpus,
        "step_s": found.step_s,
        "total_s": found.total_s,
        "mfu": found.mfu,
        "bound": PARTS[found.bound],
        "step_seconds": _in_words(found.seconds),
        "exposed_communication_s": found.seconds.get(COMMUNICATION, 0.0),
        "bubble_part": bubble_part(found),
        "tokens_per_s": known.tokens_per_s,
        "tokens_per_s_per_gpu": None if known.tokens_per_s is None else known.tokens_per_s / gpus,
        "samples_per_s": known.samples_per_s,
        "samples_per_s_per_gpu": None if known.samples_per_s is None else known.samples_per_s / gpus,
        "price_per_gpu_hour": amounts.prices.get(found.gpu_type),
        "cost_of_a_step": known.step_cost,
        "cost_of_a_million_tokens": known.million_tokens_cost,
        "cost_of_a_thousand_samples": known.thousand_samples_cost,
        "memory_bytes": found.memory_bytes,
        "device_memory_bytes": found.device_memory_bytes,
        "out_of_memory_ranks": list(found.out_of_memory),
        "ranks": [_rank_as_json(rank) for rank in found.ranks],
    }


def bubble_part(found: Prediction) -> float:
    """The share of a step in which a rank computes nothing because it waits for the other side of a message: the mean."""
    length_s = sum(found.seconds.values())
    return found.seconds.get(BUBBLE, 0.0) / length_s if length_s else 0.0


def _rank_as_json(rank: RankPrediction) -> dict[str, object]:
    return {
        "rank": rank.rank,
        "steps": rank.steps,
        "step_s": rank.step_s,
        "total_s": rank.total_s,
        "mfu": rank.mfu,
        "factor": rank.factor,
        "step_seconds": _in_words(rank.seconds),
        "memory_bytes": {str(device): peak for device, peak in rank.memory_bytes.items()},
        "estimated_seconds_by_source": dict(rank.source_s),
        "estimate_errors_by_source": dict(rank.source_errors),
    }


def _in_words(seconds: Mapping[str, float]) -> dict[str, float]:
    return {PARTS[part]: value for part, value in seconds.items()}
