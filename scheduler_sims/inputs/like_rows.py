"""Rows of a workload that differ from an earlier one only in their name, user, times and steps.

Checking all cells of a row takes much longer than reading them, and traces have hundreds of thousands of rows with a few dozen
shapes. So a row is checked in full when its shape is seen for the first time; the others take configurations and work
from that row. A row that isn't plainly right is left to the full check, which says what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from emulator_runtime.domain.job import JobSpec, TimedWork, Work
from emulator_runtime.domain.units import MAX_SECONDS, NS_PER_S

GPU_CONFIGURATION = "gpu"
CPU_CONFIGURATION = "cpu"
DEFAULT_STEPS = 100
MOST_WHOLE = 10**12
"""The largest whole number that a row may have, be it of GPUs or steps."""
_OWN = ("job_id", "user", "submit_s", "steps", "gpu_duration_s", "cpu_duration_s")
"""The cells in which like rows differ."""
_LEAST_S = 1 / NS_PER_S


class Likes:
    """The shapes of rows that have been checked. `header`: the columns of the file."""

    def __init__(self, header: Sequence[str]) -> None:
        self._width = len(header)
        self._at = [header.index(name) if name in header else -1 for name in _OWN]
        self._others = [index for index in range(len(header)) if index not in self._at]
        self._models = {name: header.index(name) for name in ("model", "host_s", "speedup") if name in header}
        self._known: dict[tuple[str, ...], JobSpec] = {}

    def learn(self, cells: Sequence[str], job: JobSpec) -> None:
        """The row is right, and this is its job."""
        model, host_s, speedup = (
            cells[self._models[name]].strip() if name in self._models else "" for name in ("model", "host_s", "speedup")
        )
        if not speedup and not host_s and not model:  # else the work depends on the row's own cells in other ways
            self._known[self._shape(cells)] = job

    def job(self, cells: Sequence[str], row: int) -> JobSpec | None:
        """The job of a row of a known shape; None if its shape isn't known, or if a cell of its own isn't plainly right."""
        if len(cells) != self._width:
            return None
        like = self._known.get(self._shape(cells))
        if like is None:
            return None
        job_id, user, submit, steps, on_gpu, on_cpu = (cells[at].strip() if at >= 0 else "" for at in self._at)
        if not (job_id and job_id.isprintable() and user.isprintable()):
            return None
        submit_s, count = _seconds(submit, 0.0), _count(steps)
        if submit_s is None or count is None:
            return None
        work: dict[str, Work] = {}
        for name, own in like.work.items():
            duration_s = _seconds(on_gpu if name == GPU_CONFIGURATION else on_cpu, _LEAST_S)
            if duration_s is None or not isinstance(own, TimedWork):
                return None
            same = own.sensitivity is None and not own.stages
            work[name] = TimedWork(duration_s) if same else replace(own, duration_s=duration_s)
        return JobSpec(job_id, user or "user", submit_s, count, like.configurations, work, row, like.weight)

    def _shape(self, cells: Sequence[str]) -> tuple[str, ...]:
        """The cells that like rows have in common, and which of their own cells are empty."""
        own = ("" if at < 0 else "x" if cells[at].strip() else "" for at in self._at[2:])
        return (*(cells[index] for index in self._others), *own)


def _seconds(text: str, least: float) -> float | None:
    if not text:
        return 0.0 if not least else None
    try:
        value = float(text)
    except ValueError:
        return None
    return value if least <= value <= MAX_SECONDS else None


def _count(text: str) -> int | None:
    if not text:
        return DEFAULT_STEPS
    plain = text.isascii() and text.isdigit() and len(text) < len(str(MOST_WHOLE))
    return int(text) if plain and int(text) else None
