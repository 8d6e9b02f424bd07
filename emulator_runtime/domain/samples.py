"""Progress in samples: what remains true of a job when the number of samples in its steps changes between two runs."""

from __future__ import annotations

from typing import NamedTuple

MAX_SAMPLES = 2**53
"""The longest job: Redis keeps progress as floating-point numbers, which are exact up to here."""
MAX_BATCH_SIZE = 2**31
"""Samples of one step on all GPUs."""


class RunSamples(NamedTuple):
    """Which samples the steps of one run process. Steps and samples are counted over all runs of the job, from 0.

    The run begins with step `first_step` and sample `first_sample`, and each of its steps has `batch_size` samples, except that
    the job's last step has what is left of `total`. So each sample is in exactly one step, whatever the batch sizes.
    Example: of 1,000 samples 2 steps of 256 are done; in steps of 128 the rest are 3 full steps and one of 104.
    """

    first_step: int
    first_sample: int
    batch_size: int
    total: int

    @property
    def steps(self) -> int:
        """How many steps the job has had at its end, if this run goes on until then."""
        return self.first_step - (self.first_sample - self.total) // self.batch_size

    def done(self, steps_done: int) -> int:
        """How many samples are done when `steps_done` steps are, during this run or at its end."""
        return min(self.total, self.first_sample + (steps_done - self.first_step) * self.batch_size)

    def steps_at(self, samples_done: int) -> int:
        """How many steps are done when `samples_done` samples are: the inverse of `done`. A half of a step is none."""
        if samples_done >= self.total:
            return self.steps
        return self.first_step + (samples_done - self.first_sample) // self.batch_size
