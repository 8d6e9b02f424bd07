"""Typed command-line options of `emugpu scheduler`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from emulator_runtime.domain.errors import InputError
from operators.scheduling.names import check_label
from operators.scheduling.track.tracked_jobs import Until
from scheduler_sims.interface.costs import ClusterCosts


@dataclass(frozen=True)
class Options:
    """`name` empty: the policy's name; `namespace` empty: all namespaces; `lease_namespace` empty: `namespace`, or
    SYSTEM_NAMESPACE for a scheduler of all namespaces. `epoch_ns`: the wall clock at emulated time 0.
    """

    policy: str
    name: str = ""
    namespace: str = ""
    lease_namespace: str = ""
    identity: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    actuators: tuple[str, ...] = ()
    kubeconfig: Path | None = None
    context: str = ""
    costs: ClusterCosts = field(default_factory=ClusterCosts)
    estimates: str = "oracle"
    seed: int = 0
    profiles: Path | None = None
    explain: bool = False
    json: bool = False
    metrics_port: int = 0
    until: Until | None = None
    epoch_ns: int | None = None
    predictions: bool = True


def parse_labels(texts: list[str], place: str) -> dict[str, str]:
    """Labels of texts LABEL=VALUE. Raises InputError at `place`, also for invalid labels."""
    labels = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InputError(place, f"{text!r} is not a label; write LABEL=VALUE")
        check_label(name, value, place)
        labels[name] = value
    return labels
