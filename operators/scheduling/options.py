"""What the command line says of a scheduler, in types: the one thing that a program and its command both know."""

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
    """What the command line says. `name` and `namespace` empty: the policy's name, all namespaces. `epoch_ns`: wall clock.

    `lease_namespace` empty: `namespace`, and SYSTEM_NAMESPACE for all of them.
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
    """LABEL=VALUE texts. Raises InputError at `place`, also for labels that nothing can have."""
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InputError(place, f"{text!r} is no label; write LABEL=VALUE")
        check_label(name, value, place)
        found[name] = value
    return found
