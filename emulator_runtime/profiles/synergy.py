"""The speed of ten models as a function of CPUs and memory, as measured for Synergy; the `synergy` policy uses it.

Source: Mohan et al., OSDI 2022 (repository msr-fiddle/synergy at 1bb2bed, MIT). It has the iteration times with the
proportional share of a server with 8 GPUs, 24 CPUs and 500 GB, and matrices of the relative throughput for CPUs x memory per
GPU. Each matrix is exactly the minimum of one curve over CPUs and one over memory; this module has these curves. Synergy's GB
are taken as GiB. The repository's matrices for several GPUs are not used, neither there nor here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from emulator_runtime.domain.sensitivity import HostShare, Knots, Sensitivity
from emulator_runtime.domain.units import GIB

FAMILY = "synergy/"
"""The prefix of these models in a workload, as in synergy/alexnet."""

PROPORTIONAL = HostShare(3000, round(62.5 * GIB))
"""The resources per GPU with which the step times were measured."""


@dataclass(frozen=True, slots=True)
class SynergyModel:
    """Seconds of a step at speed 1, and the speed per GPU."""

    step_s: float
    sensitivity: Sensitivity

    def least(self, gpus: int) -> HostShare:
        """The smallest CPUs and memory with which a job on `gpus` devices is as fast as with its proportional share."""
        best = self.sensitivity.best
        cpu_milli = min(PROPORTIONAL.cpu_milli, best.cpu_milli)
        return HostShare(cpu_milli * gpus, min(PROPORTIONAL.memory_bytes, best.memory_bytes) * gpus)


def _cpus(*speeds: float) -> Knots:
    """Speeds at 1, 2, 3, 4, 5, 6, 9 and 12 CPUs."""
    return tuple((cpus * 1000, speed) for cpus, speed in zip((1, 2, 3, 4, 5, 6, 9, 12), speeds, strict=False))


def _memory(*speeds: float) -> Knots:
    """Speeds at 62.5, 125 and 187.5 GiB. With a third of the first amount, the cache of the data set has hardly any effect."""
    known = tuple((round(62.5 * GIB) * index, speed) for index, speed in enumerate(speeds, 1))
    return ((round(20.83 * GIB), 0.1), *known)


def _steady(step_s: float) -> SynergyModel:
    """A language model, for which one CPU and 20 GiB are enough."""
    return SynergyModel(step_s, Sensitivity(((1000, 1.0),), ((20 * GIB, 1.0),)))


_BIG_IMAGES = (0.3, 0.66, 1.0, 1.25, 1.53, 1.75, 2.0)
_SMALL = (0.37, 0.72, 1.0, 1.3)

SYNERGY_MODELS: Mapping[str, SynergyModel] = {
    "synergy/alexnet": SynergyModel(0.6, Sensitivity(_cpus(*_BIG_IMAGES, 2.94), _memory(2.0, 2.94))),
    "synergy/shufflenet": SynergyModel(0.615, Sensitivity(_cpus(*_BIG_IMAGES, 2.89), _memory(2.0, 2.89))),
    "synergy/res18": SynergyModel(0.64, Sensitivity(_cpus(*_SMALL, 1.53, 1.75, 2.4), _memory(2.4))),
    "synergy/m5": SynergyModel(0.6, Sensitivity(_cpus(0.3, 0.66, 1.0, 1.2, 1.4, 2.5), _memory(1.5, 2.0, 2.5))),
    "synergy/mobilenet": SynergyModel(0.71, Sensitivity(_cpus(*_SMALL, 1.49, 1.55), _memory(1.55))),
    "synergy/res50": SynergyModel(0.78, Sensitivity(_cpus(0.4, 0.74, 1.0, 1.15), _memory(1.15))),
    "synergy/deepspeech": SynergyModel(0.757, Sensitivity(_cpus(0.3, 0.66, 1.0), _memory(1.0))),
    "synergy/transformer": _steady(0.67),
    "synergy/gnmt": _steady(0.12),
    "synergy/lstm": _steady(0.011),
}
