"""One session has the whole device."""

from emulator_runtime.memory.rules import sum_of_peaks
from emulator_runtime.sharing.constant_rate import ConstantRate
from emulator_runtime.sharing.modes.mode import Mode

EXCLUSIVE = Mode("exclusive", "one job has the device", ConstantRate, sum_of_peaks, shared=False)
