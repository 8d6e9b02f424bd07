"""Step times and memory of all models on all GPU types, for every program.

It interpolates within the measured range. A batch size above it may not even fit into the GPU's memory, so the table refuses
it unless the caller allows extrapolation; extrapolated results are marked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from emulator_runtime.domain.errors import BeyondProfileError, InputError, UnknownNameError
from emulator_runtime.domain.gpu import GpuSpec
from emulator_runtime.domain.json_document import Field
from emulator_runtime.domain.mig import profile_of, rate_milli
from emulator_runtime.domain.step import StepProfile
from emulator_runtime.profiles.bundled import read_knots
from emulator_runtime.profiles.catalogue import Catalogue, bundled_catalogue
from emulator_runtime.profiles.curves import Curve, ModelProfile, StepCurves
from emulator_runtime.profiles.user_file import read_models, read_profile_file

_PLACE = "profiles"

_COPIES_OF_PARAMETERS = 3


@dataclass(frozen=True, slots=True)
class ProfileTable:
    """Profiles of models on GPU types; immutable. Reading the bundled table takes a few milliseconds, so keep it."""

    catalogue: Catalogue
    _models: Mapping[str, ModelProfile] = field(repr=False)

    @classmethod
    def bundled(cls) -> ProfileTable:
        """The profiles distributed with emugpu: 36 vision models on six GPU types (GPEmu, PVLDB 18(6) 2025)."""
        return cls(bundled_catalogue(), MappingProxyType(read_knots()))

    def with_file(self, path: Path | str) -> ProfileTable:
        """A new table that also has the profiles in the JSON file `path` (format: user_file.py). Raises InputError."""
        catalogue, models = read_profile_file(Path(path), self.catalogue, self._models)
        return ProfileTable(catalogue, MappingProxyType(models))

    def with_models(self, document: Field) -> ProfileTable:
        """A new table that also has the models of `document`, which is what `models` of such a file has. Raises InputError."""
        return ProfileTable(self.catalogue, MappingProxyType(read_models(document, self.catalogue, self._models)))

    def with_model(self, name: str, profile: ModelProfile) -> ProfileTable:
        """A new table in which the model has this profile."""
        return ProfileTable(self.catalogue, MappingProxyType({**self._models, name: profile}))

    def model(self, name: str) -> ModelProfile:
        """The profile of a model. Raises UnknownNameError."""
        return self._model(name)

    @property
    def models(self) -> tuple[str, ...]:
        """The names of all models, sorted."""
        return tuple(sorted(self._models))

    def gpu_types_of(self, model: str) -> tuple[str, ...]:
        """The GPU types on which `model` was measured, in the catalogue's order."""
        steps = self._model(model).steps
        return tuple(gpu_type for gpu_type in self.catalogue.specs if gpu_type in steps)

    def measured_batches(self, model: str, gpu_type: str) -> tuple[int, int]:
        """The smallest and the largest measured batch size per GPU for `model` on `gpu_type` (aliases are allowed)."""
        batches = self._steps(model, self._spec(gpu_type)).forward_s.batches
        return batches[0], batches[-1]

    def last_measured_batch(self, model: str, gpu_type: str) -> int:
        """The largest measured batch size per GPU for `model` on `gpu_type` (aliases are allowed)."""
        return self.measured_batches(model, gpu_type)[1]

    def step_profile(self, model: str, gpu_type: str, batch_size: int, *, extrapolate: bool = False) -> StepProfile:
        """One step of `model` at `batch_size` samples per GPU on `gpu_type`.

        The transfer time is the size of the batch divided by the bandwidth of the host link. Memory was measured at fewer
        batch sizes than times; beyond them it is extrapolated, and the result is marked `extrapolated`. So are results that
        use the step times of another GPU type (GpuSpec.step_times_of). A MIG instance for which the table has no times takes
        those of the whole GPU, longer by the part of the GPU that it is.
        Raises UnknownNameError, InputError (no profile on this type, or an invalid batch size) or BeyondProfileError.
        """
        _check_batch(batch_size)
        spec, profile = self._spec(gpu_type), self._model(model)
        steps = self._steps(model, spec)
        slower = 1.0 if spec.gpu_type in profile.steps else 1000 / rate_milli(spec.gpu_type)
        measured = steps.forward_s.covers(batch_size)
        if not (measured or extrapolate):
            raise BeyondProfileError(
                f"{model} on {spec.gpu_type}", steps.forward_s.batches[0], steps.forward_s.batches[-1], batch_size
            )
        peak, persistent = profile.memory.peak_bytes, profile.memory.persistent_bytes
        return StepProfile(
            transfer_s=batch_size * profile.sample_bytes / spec.host_link_bytes_per_s,
            forward_s=steps.forward_s.at(batch_size) * slower,
            backward_s=steps.backward_s.at(batch_size) * slower,
            persistent_bytes=_bytes_at(persistent, batch_size),
            peak_bytes=_bytes_at(peak, batch_size),
            extrapolated=not (measured and peak.covers(batch_size) and spec.gpu_type in profile.steps),
            start_s=0.0 if steps.start_s is None else steps.start_s.at(batch_size),
        )

    def memory(self, model: str, batch_size: int, *, extrapolate: bool = False) -> tuple[int, int]:
        """(peak, persistent) bytes on the device at `batch_size`: the median over GPU types, which differ by less than 3%.

        Raises BeyondProfileError for a batch size that ran on no GPU type, unless `extrapolate` is set.
        """
        _check_batch(batch_size)
        profile = self._model(model)
        curves = (profile.memory.peak_bytes, *(steps.forward_s for steps in profile.steps.values()))
        first, last = min(curve.batches[0] for curve in curves), max(curve.batches[-1] for curve in curves)
        if not (first <= batch_size <= last or extrapolate):
            raise BeyondProfileError(f"{model}'s memory", first, last, batch_size)
        return _bytes_at(profile.memory.peak_bytes, batch_size), _bytes_at(profile.memory.persistent_bytes, batch_size)

    def gradient_bytes(self, model: str) -> int:
        """Bytes of all gradients of `model`, derived from the persistent memory at the smallest batch size.

        That memory is one input batch and three arrays of the parameters' size: weights, gradients and momentum (FP32,
        SGD). Example: with 400 MB persistent and 1 MB of input, the gradients have 133 MB. The result is 0 to 2% above the
        parameter counts in torchvision's documentation for 35 of the 36 models. For googlenet it is 34% above, because its
        auxiliary heads have weights but get no gradients.
        Raises UnknownNameError.
        """
        profile = self._model(model)
        persistent = profile.memory.persistent_bytes
        batch_size = persistent.batches[0]
        parameters = (_bytes_at(persistent, batch_size) - batch_size * profile.sample_bytes) // _COPIES_OF_PARAMETERS
        return max(0, parameters)

    def _model(self, model: str) -> ModelProfile:
        try:
            return self._models[model]
        except KeyError:
            raise UnknownNameError(_PLACE, "model", model, self._models) from None

    def _spec(self, gpu_type: str) -> GpuSpec:
        return self.catalogue.spec(gpu_type, _PLACE)

    def _steps(self, model: str, spec: GpuSpec) -> StepCurves:
        measured = self._model(model).steps
        whole = self.catalogue.specs[profile_of(spec.gpu_type)[0]]
        names = (spec.gpu_type, spec.step_times_of, whole.step_times_of)
        steps = next((measured[name] for name in names if name in measured), None)
        if steps is None:
            known = ", ".join(self.gpu_types_of(model))
            raise InputError(
                _PLACE,
                f"{model} has no profile on {spec.gpu_type}, only on {known}; measure it and add a profiles file",
            )
        return steps


def _bytes_at(curve: Curve, batch_size: int) -> int:
    return round(curve.at(batch_size))


def _check_batch(batch_size: int) -> None:
    if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
        raise InputError("batch size", f"must be a whole number of at least 1, not {batch_size!r}")
