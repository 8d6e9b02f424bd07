"""spec.profiles of an EmuJob: profiles that the job brings with it, such as those of traced programs.

They are a part of the job, so that a user who may create EmuJobs in a namespace describes only own work: a profile that all
jobs of a cluster look up would be one that others' predictions depend on. They don't change while the job lives.

The members are those of a file of profiles (emulator_runtime/profiles/user_file.py), which reads them; this is their schema for
the API server. An operator's limits keep a job small: it is read again with each change of its status.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any

from annotated_types import Ge, Len
from pydantic import ConfigDict, Field, StrictFloat

from operators.objects.custom_resource import Part, Rule
from operators.objects.forms import Int64, Positive

MOST_BYTES = 64 * 1024


class _Written(Part):
    """Members have the names of the file."""

    model_config = ConfigDict(alias_generator=None)


class MemoryKnot(_Written):
    """Memory at a batch size."""

    batch: Annotated[Int64, Ge(1)]
    peak_bytes: Annotated[Int64, Ge(1)]
    persistent_bytes: Annotated[Int64, Ge(1)]


class StepKnot(_Written):
    """A step at a batch size, in seconds. `start_s`: what a run takes beside its steps."""

    batch: Annotated[Int64, Ge(1)]
    forward_s: Positive
    backward_s: Positive
    start_s: Annotated[StrictFloat, Ge(0)] = 0.0


class MemoryCurve(_Written):
    """By batch size, which grows."""

    knots: Annotated[tuple[MemoryKnot, ...], Len(1, 64)]


class StepCurve(_Written):
    """By batch size, which grows."""

    knots: Annotated[tuple[StepKnot, ...], Len(1, 64)]


class OwnProfile(_Written):
    """A model. For a bundled one, what isn't stated stays as it is."""

    sample_bytes: Annotated[Int64, Ge(0)] = Field(0, description="Bytes of a sample that are copied to the GPU.")
    memory: MemoryCurve | None = Field(None, description="Memory of a GPU.")
    gpus: Annotated[dict[str, StepCurve], Len(1, 16)] = Field(description="Times of a step, by GPU type.")

    @cached_property
    def document(self) -> Mapping[str, Any]:
        """As the user wrote it."""
        return self.model_dump(mode="json", exclude_unset=True)


def _size_of(profiles: Mapping[str, OwnProfile]) -> int:
    return sum(len(name) + len(json.dumps(profile.document)) for name, profile in profiles.items())


size_rule = Rule(
    f"must have at most {MOST_BYTES} bytes together; keep the batch sizes and GPU types that the job can use",
    holds=lambda profiles: _size_of(profiles) <= MOST_BYTES,
)
