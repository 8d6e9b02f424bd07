"""The user's profiles: a JSON file with models, and with GPU types that the catalogue doesn't have.

    {
      "gpus": {                                   optional; GPU types that the catalogue doesn't have
        "Lab-GPU": {
          "memory_bytes": 25769803776,            nominal memory
          "host_link_bytes_per_s": 12e9,          copies from pinned host memory
          "peer_link_bytes_per_s": 0,             optional; one direction, 0: through the host
          "architecture": "Ampere",               optional, like the two below
          "compute_capability": "8.6",
          "source": "measured on node 7"
        }
      },
      "models": {
        "my-bert": {
          "sample_bytes": 4096,                   bytes of one input sample that are copied to the device
          "memory": {"knots": [{"batch": 1, "peak_bytes": 2000000000, "persistent_bytes": 1500000000}]},
          "gpus": {"V100": {"knots": [{"batch": 1, "forward_s": 0.011, "backward_s": 0.023}]}}
        }
      }
    }

Batch sizes are per GPU and increase strictly from knot to knot; times are seconds, memory is bytes. `backward_s` includes
loss and optimizer. Beside the times, each knot of a GPU type may have `start_s`: what a run of a program takes in addition to
its steps, which counts for jobs that run the program (docs/prediction.md). For a model that the table already has,
`sample_bytes` and `memory` are optional; its profiles on the given GPU types are replaced, those on other GPU types are kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from emulator_runtime.domain.gpu import GpuSpec
from emulator_runtime.domain.json_document import Field, read_json
from emulator_runtime.profiles.catalogue import Catalogue
from emulator_runtime.profiles.curves import Curve, MemoryCurves, ModelProfile, StepCurves

_GPU_REQUIRED = ("memory_bytes", "host_link_bytes_per_s")
_GPU_TEXTS = ("architecture", "compute_capability", "source")
_OF_THE_MODEL = ("sample_bytes", "memory")
_START = "start_s"


def read_profile_file(
    path: Path, catalogue: Catalogue, models: Mapping[str, ModelProfile]
) -> tuple[Catalogue, dict[str, ModelProfile]]:
    """`catalogue` and `models` with the contents of `path` added. Raises InputError naming the file and the JSON path."""
    top = read_json(path).members((), ("gpus", "models"))
    if "gpus" in top:
        catalogue = _with_gpus(top["gpus"], catalogue)
    return catalogue, read_models(top["models"], catalogue, models) if "models" in top else dict(models)


def read_models(document: Field, catalogue: Catalogue, models: Mapping[str, ModelProfile]) -> dict[str, ModelProfile]:
    """`models` with those of `document` added. Raises InputError with the place in it."""
    merged = dict(models)
    for name, entry in document.items().items():
        merged[name] = _model(entry, catalogue, merged.get(name))
    return merged


def model_document(profile: ModelProfile) -> dict[str, Any]:
    """The entry of a model, as `read_models` reads it."""
    memory, gpus = profile.memory, {}
    for gpu_type, steps in profile.steps.items():
        curves = {"forward_s": steps.forward_s, "backward_s": steps.backward_s, _START: steps.start_s}
        gpus[gpu_type] = {"knots": _knots_of({name: curve for name, curve in curves.items() if curve is not None})}
    bytes_ = {"peak_bytes": memory.peak_bytes, "persistent_bytes": memory.persistent_bytes}
    knots = [{name: round(value) for name, value in knot.items()} for knot in _knots_of(bytes_)]
    return {"sample_bytes": profile.sample_bytes, "memory": {"knots": knots}, "gpus": gpus}


def _knots_of(curves: Mapping[str, Curve]) -> list[dict[str, float]]:
    """Of curves with the same batch sizes."""
    batches = next(iter(curves.values())).batches
    return [
        {"batch": batch} | {name: curve.values[number] for name, curve in curves.items()}
        for number, batch in enumerate(batches)
    ]


def _with_gpus(entries: Field, catalogue: Catalogue) -> Catalogue:
    for name, entry in entries.items().items():
        known = catalogue.find(name)
        if known is not None:
            raise entry.error(f"means {known}, which is there already; choose another name")
        catalogue = catalogue.with_spec(_gpu(name, entry))
    return catalogue


def _gpu(name: str, entry: Field) -> GpuSpec:
    members = entry.members(_GPU_REQUIRED, ("peer_link_bytes_per_s", *_GPU_TEXTS))
    peer = members.get("peer_link_bytes_per_s")
    texts = {key: members[key].text() if key in members else "" for key in _GPU_TEXTS}
    return GpuSpec(
        gpu_type=name,
        memory_bytes=members["memory_bytes"].whole(least=1),
        host_link_bytes_per_s=members["host_link_bytes_per_s"].number(above=0),
        peer_link_bytes_per_s=peer.number(least=0) if peer else 0.0,
        architecture=texts["architecture"],
        compute_capability=texts["compute_capability"],
        source=texts["source"] or entry.place,
    )


def _model(entry: Field, catalogue: Catalogue, known: ModelProfile | None) -> ModelProfile:
    members = entry.members(("gpus",), _OF_THE_MODEL) if known else entry.members((*_OF_THE_MODEL, "gpus"))
    steps = _all_steps(members["gpus"], catalogue)
    sample_bytes = members["sample_bytes"].whole(least=0) if "sample_bytes" in members else None
    memory = _memory(members["memory"]) if "memory" in members else None
    if known is None:
        assert sample_bytes is not None and memory is not None  # `members` required both
        return ModelProfile(sample_bytes, memory, steps)
    return ModelProfile(
        known.sample_bytes if sample_bytes is None else sample_bytes, memory or known.memory, {**known.steps, **steps}
    )


def _all_steps(entries: Field, catalogue: Catalogue) -> dict[str, StepCurves]:
    steps: dict[str, StepCurves] = {}
    for name, entry in entries.items().items():
        gpu_type = catalogue.spec(name, f"{entry.place}: {entry.path}").gpu_type
        if gpu_type in steps:
            raise entry.error(f"means {gpu_type}, which another name here means too; keep one of them")
        steps[gpu_type] = _steps(entry)
    if not steps:
        raise entries.error("must name at least one GPU type")
    return steps


def _steps(entry: Field) -> StepCurves:
    knots = _knots(entry, ("forward_s", "backward_s"), (_START,))
    batches = tuple(batch for batch, _ in knots)
    forward = tuple(knot["forward_s"].number(above=0) for _, knot in knots)
    backward = tuple(knot["backward_s"].number(above=0) for _, knot in knots)
    start = tuple(knot[_START].number(least=0) for _, knot in knots if _START in knot)
    if start and len(start) < len(knots):
        raise entry.error(f"must have {_START} in each knot or in none")
    return StepCurves(Curve(batches, forward), Curve(batches, backward), Curve(batches, start) if start else None)


def _memory(entry: Field) -> MemoryCurves:
    knots = _knots(entry, ("peak_bytes", "persistent_bytes"))
    batches = tuple(batch for batch, _ in knots)
    peak = tuple(knot["peak_bytes"].whole(least=1) for _, knot in knots)
    persistent = tuple(knot["persistent_bytes"].whole(least=1) for _, knot in knots)
    for (_, knot), at_peak, at_rest in zip(knots, peak, persistent, strict=True):
        if at_rest > at_peak:
            raise knot["persistent_bytes"].error("must be <= peak_bytes")
    return MemoryCurves(Curve(batches, peak), Curve(batches, persistent))


def _knots(entry: Field, values: tuple[str, ...], optional: tuple[str, ...] = ()) -> list[tuple[int, dict[str, Field]]]:
    """The batch size and the members of each knot in `entry`."""
    field = entry.members(("knots",))["knots"]
    knots: list[tuple[int, dict[str, Field]]] = []
    for element in field.elements():
        members = element.members(("batch", *values), optional)
        batch = members["batch"].whole(least=1)
        if knots and batch <= knots[-1][0]:
            raise members["batch"].error(f"must be > {knots[-1][0]}, the batch size before it")
        knots.append((batch, members))
    if not knots:
        raise field.error("must have at least one element")
    return knots
