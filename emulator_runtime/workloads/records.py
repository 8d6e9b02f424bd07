"""Records how long the steps of a run took: for the summary, and on request in a file, step by step."""

from __future__ import annotations

import math
import os
from array import array
from dataclasses import dataclass

from emulator_runtime.domain.errors import InputError
from emulator_runtime.domain.units import NS_PER_S

HEADER = "step,start_ns,end_ns,seen_ns"


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One step in host nanoseconds: device work from `start_ns` to `end_ns`; this process continued at `seen_ns`."""

    step: int
    start_ns: int
    end_ns: int
    seen_ns: int


class StepLog:
    """A CSV file with one line for each step, complete up to the last step however the process ends."""

    def __init__(self, path: str) -> None:
        """Open the file and append to existing lines. Raises InputError if it can't be written."""
        self._path = path
        try:
            self._file = open(path, "ab", buffering=0)  # noqa: SIM115
        except OSError as error:
            raise self._cannot(error) from error
        if not os.fstat(self._file.fileno()).st_size:
            self._write(HEADER)

    def add(self, record: StepRecord) -> None:
        """Write one line. Raises InputError if that fails, for example on a full disk."""
        self._write(f"{record.step},{record.start_ns},{record.end_ns},{record.seen_ns}")

    def close(self) -> None:
        self._file.close()

    def _write(self, line: str) -> None:
        try:
            self._file.write(f"{line}\n".encode("ascii"))
        except OSError as error:
            self._file.close()
            raise self._cannot(error) from error

    def _cannot(self, error: OSError) -> InputError:
        return InputError(
            "--log-steps",
            f"can't write {self._path}: {error.strerror}; give a file that this container may write, on a volume with room",
        )


class ObservedStepTimes:
    """The durations of steps as this process observed them: from the end of one step to the end of the next."""

    def __init__(self) -> None:
        self._durations_ns = array("q")
        self._last_ns = 0

    def begin(self, now_ns: int) -> None:
        """Start of the first step."""
        self._last_ns = now_ns

    def add(self, seen_ns: int) -> None:
        """End of a step."""
        self._durations_ns.append(seen_ns - self._last_ns)
        self._last_ns = seen_ns

    def __len__(self) -> int:
        return len(self._durations_ns)

    @property
    def total_s(self) -> float:
        return sum(self._durations_ns) / NS_PER_S

    @property
    def mean_s(self) -> float:
        """The mean; 0 if no step has ended."""
        return self.total_s / len(self) if len(self) else 0.0

    def quantiles_s(self, *shares: float) -> list[float]:
        """The quantiles of the durations (nearest rank); 0 if no step has ended."""
        ordered = sorted(self._durations_ns)
        if not ordered:
            return [0.0 for _ in shares]
        return [ordered[max(1, math.ceil(share * len(ordered))) - 1] / NS_PER_S for share in shares]
