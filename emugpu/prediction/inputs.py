"""What users write for predictions beside a trace: YAML documents, and prices of GPUs as `A100=3.67` or in a file.

A100: 3.67      # of a GPU for an hour, in one currency
H100: 6.98
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from emulator_runtime.domain.errors import InputError
from emulator_runtime.domain.json_document import Field
from emulator_runtime.profiles.catalogue import gpu_spec


def yaml_field(path: Path, what: str) -> Field:
    """The document in a file; `what` names it in errors. Raises InputError, also for keys that aren't texts."""
    from scheduler_sims.inputs.yaml_file import read_yaml  # here: an image that only runs programs has no PyYAML

    return Field(str(path), "", _with_text_keys(read_yaml(path, what), str(path)))


def _with_text_keys(value: object, place: str) -> object:
    """YAML's keys may be numbers, ours are names."""
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str):
                raise InputError(place, f"{key!r} must be a text; write it in quotes")
        return {key: _with_text_keys(one, place) for key, one in value.items()}
    return [_with_text_keys(one, place) for one in value] if isinstance(value, list) else value


def prices_in(field: Field) -> dict[str, float]:
    """Prices of a GPU for an hour by GPU type. Raises InputError and UnknownNameError that name the field."""
    prices: dict[str, float] = {}
    for name, one in field.items().items():
        gpu_type = gpu_spec(name, f"{one.place}: {one.path}").gpu_type
        if gpu_type in prices:
            raise field.error(f"has {gpu_type} twice: {name} is another name of it")
        prices[gpu_type] = one.number(above=0)
    return prices


def prices_of(options: Sequence[str]) -> dict[str, float]:
    """What several `--price` say, the later ones first: each is TYPE=NUMBER, or a file. Raises what
    `prices_in` raises."""
    prices: dict[str, float] = {}
    for option in options:
        name, equals, number = option.partition("=")
        if equals and not Path(option).exists():
            prices |= prices_in(Field("--price", "", {name: _number(option, number)}))
        else:
            prices |= prices_in(yaml_field(Path(option), "price list"))
    return prices


def _number(option: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise InputError("--price", f"must be TYPE=NUMBER or a file, not {option}") from None
