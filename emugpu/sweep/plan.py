"""What a sweep varies, and what all its points have in common."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

from emugpu import VERSION
from emulator_runtime.domain.errors import InputError
from scheduler_sims.generators.generate import Recipe
from scheduler_sims.policies.resolve import policy_file

_FORMAT = 1
"""Of the journal; another one when results mean something else."""
AS_IT_IS = 0.0
"""The load of a trace whose submissions aren't changed."""


@dataclass(frozen=True, slots=True)
class Point:
    """One simulation. `load`: AS_IT_IS, or GPU-seconds needed over those there are until the last submission."""

    load: float
    seed: int
    estimates: str
    policy: str

    @property
    def condition(self) -> Condition:
        """What it has in common with its neighbours of other seeds and policies."""
        return Condition(self.load, self.estimates)


@dataclass(frozen=True, slots=True, order=True)
class Condition:
    """Load and estimates: policies are compared under the same ones."""

    load: float
    estimates: str

    def __str__(self) -> str:
        load = f"load {self.load:g}" if self.load else "as it is"
        return load if self.estimates == "oracle" else f"{load}, estimates {self.estimates}"


@dataclass(frozen=True, slots=True)
class Inputs:
    """What all points share; it goes to every process.

    `workload`: a trace, or None with `recipe`. `jobs`: successive jobs of the trace that a seed chooses, None for all; `sample`:
    the part of them that a seed chooses. `warm_up`, `cool_down`: the first and last jobs, in the order of submission, that
    don't count for figures of jobs.
    """

    cluster: Path
    workload: Path | None = None
    recipe: Recipe | None = None
    gpus_per_node: int = 8
    jobs: int | None = None
    sample: float = 1.0
    profiles: Path | None = None
    warm_up: int = 0
    cool_down: int = 0

    def subject(self) -> dict[str, Any]:
        """What results depend on besides the point: contents of files, not their names. Raises InputError."""
        return {
            "sweep": _FORMAT,
            "version": VERSION,
            "files": {name: _digest(path) for name, path in self._files().items() if path is not None},
            "recipe": None if self.recipe is None else asdict(self.recipe),
            "gpus_per_node": self.gpus_per_node,
            "jobs": self.jobs,
            "sample": self.sample,
            "warm_up": self.warm_up,
            "cool_down": self.cool_down,
        }

    def _files(self) -> dict[str, Path | None]:
        return {"workload": self.workload, "cluster": self.cluster, "profiles": self.profiles}


@dataclass(frozen=True, slots=True)
class Sweep:
    """All points: each policy under each condition with the same seeds, so that policies can be compared pair by pair."""

    inputs: Inputs
    loads: Sequence[float]
    seeds: Sequence[int]
    estimates: Sequence[str]
    policies: Sequence[str]

    def points(self) -> Iterator[Point]:
        """In the order of the results."""
        for load, estimates, policy, seed in product(self.loads, self.estimates, self.policies, self.seeds):
            yield Point(load, seed, estimates, policy)

    @property
    def conditions(self) -> list[Condition]:
        return [Condition(load, estimates) for load, estimates in product(self.loads, self.estimates)]


def expanded(policies: Sequence[str]) -> list[str]:
    """Policies whose options have alternatives, as `las:threshold_s=300|3000`, become one for each combination."""
    found: list[str] = []
    for text in policies:
        parts = re.split(r"(?<==)([^,:=]*\|[^,:=]*)", text)
        found += ["".join(choice) for choice in product(*(part.split("|") for part in parts))]
    if twice := next((text for text in found if found.count(text) > 1), None):
        raise InputError("--policy", f"{twice} is named twice")
    return found


def identity(policy: str) -> str:
    """Of a policy's own file the contents; empty for the built-in ones. Raises InputError."""
    path = policy_file(policy)
    return "" if path is None else _digest(path)


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    except OSError as error:
        raise InputError(str(path), f"can't be read: {error.strerror}") from error
