"""The learned estimator: a roofline, corrected by what was measured on a real GPU."""

from __future__ import annotations

import math
from pathlib import Path

from emulator_runtime.domain.errors import InputError
from emulator_runtime.prediction.estimators import LEARNED, TABLE, Estimate, Estimator, Roofline, whole_ns
from emulator_runtime.prediction.learned.estimator_file import LARGEST_RATIO, STEPS, LearnedGpu, read_estimator
from emulator_runtime.prediction.learned.features import KINDS, feature, identity, vector
from emulator_runtime.prediction.records import Work
from emulator_runtime.profiles.catalogue import gpu_spec


class Learned:
    """Estimates of the kinds of work that were measured; `others` has the rest, and copies."""

    def __init__(self, gpu_type: str, learned: LearnedGpu, others: Estimator) -> None:
        """Raises InputError and UnknownNameError for a GPU type that there isn't."""
        self._learned, self._others = learned, others
        self._base = Roofline(gpu_type, constants=learned.roofline)
        self._features = [found for name in learned.features if (found := feature(name)) is not None]
        self._kinds = {int(KINDS[name]): learned.error(name) for name in learned.kinds}
        self._launches_ns = {int(KINDS[name]): int(ns) for name, ns in learned.launches_ns.items()}
        self._estimates: dict[Work, Estimate] = {}

    @property
    def dispatch_ns(self) -> int:
        """From steps it is learned, too: whether the host was what the measured steps waited for."""
        return self._base.dispatch_ns if self._learned.trained_from == STEPS else self._others.dispatch_ns

    def work(self, work: Work) -> Estimate:
        if work.kind not in self._kinds:
            return self._others.work(work)
        found = self._estimates.get(work)
        if found is None:
            found = self._estimates[work] = self._estimate(work)
        return found

    def copy(self, to_device: int, from_device: int, amount_bytes: int) -> Estimate:
        copies = self._base if self._learned.trained_from == STEPS else self._others
        return copies.copy(to_device, from_device, amount_bytes)

    def _estimate(self, work: Work) -> Estimate:
        base = self._base.work(work)
        launch_ns = self._launches_ns.get(work.kind)
        measured_ns = self._learned.measured.get(identity(work)) if self._learned.measured else None
        if measured_ns is not None:
            return Estimate(whole_ns(measured_ns / 1e9), TABLE, base.limit, dispatch_ns=launch_ns)
        duration_ns = whole_ns(base.duration_ns * math.exp(self.log_ratio(work, base.duration_ns)) / 1e9)
        return Estimate(duration_ns, LEARNED, base.limit, self._kinds[work.kind], launch_ns)

    def log_ratio(self, work: Work, base_ns: float) -> float:
        """The logarithm of its time divided by that of the roofline."""
        learned = self._learned
        x = [
            min(max(value, least), most)
            for value, (least, most) in zip(vector(self._features, work, base_ns), learned.ranges, strict=True)
        ]
        ratio = sum(weight * value for weight, value in zip(learned.weights, x, strict=True)) + learned.forest.predict(
            x
        )
        return min(max(ratio, learned.least, -LARGEST_RATIO), learned.most, LARGEST_RATIO)


def learned_estimator(path: Path, gpu_type: str, others: Estimator) -> Learned:
    """What a file has learned of a GPU type. Raises InputError, also if that isn't in the file, UnknownNameError and OSError."""
    wanted = gpu_spec(gpu_type, "--gpu").gpu_type
    gpus = read_estimator(path)
    if wanted not in gpus:
        raise InputError(
            "--estimator",
            f"{path} was trained on {', '.join(sorted(gpus))}, not on {wanted}; name another --gpu or file",
        )
    return Learned(wanted, gpus[wanted], others)
