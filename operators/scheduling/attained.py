"""The service that jobs attained: policies count on it, and no object of a job tells it, so schedulers hand it over."""

from __future__ import annotations

from dataclasses import dataclass

from scheduler_sims.interface.view import JobView


@dataclass(frozen=True, slots=True)
class AttainedService:
    """GPU-seconds of a job's former runs, and since when it has had `gpus` now (None: it waits). Emulated seconds."""

    attained_gpu_s: float = 0.0
    since_s: float | None = None
    gpus: int = 0

    @classmethod
    def of(cls, view: JobView) -> AttainedService:
        gpus = view.allocation.gpus if view.allocation is not None else 0
        return cls(view.attained_gpu_s, view.running_since_s, gpus)

    def until(self, end_s: float) -> float:
        """GPU-seconds up to `end_s`, when its last run was over."""
        return self.attained_gpu_s + (0.0 if self.since_s is None else max(0.0, end_s - self.since_s) * self.gpus)


NEW = AttainedService()
