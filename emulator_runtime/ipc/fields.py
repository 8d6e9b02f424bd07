"""Reads typed values from a message when it arrives; errors name the field."""

from __future__ import annotations

from emulator_runtime.domain.errors import ProtocolError
from emulator_runtime.domain.samples import MAX_SAMPLES
from emulator_runtime.domain.units import MAX_SECONDS
from emulator_runtime.ipc.frames import Message

MAX_NS = 2**62
MAX_STEPS = MAX_SAMPLES
"""The longest progress, whatever its unit."""
_MAX_TEXT = 4096


def text(message: Message, name: str, default: str | None = None) -> str:
    """A text of at most 4,096 characters. Raises ProtocolError if it is missing (without default) or has another type."""
    value = message.get(name, default)
    if not isinstance(value, str) or not _is_text(value):
        raise ProtocolError(f"field {name!r} must be a text of at most {_MAX_TEXT} characters")
    return value


def whole(message: Message, name: str, default: int | None = None, *, least: int = 0, most: int = MAX_NS) -> int:
    """A whole number from `least` to `most`. Raises ProtocolError if it is missing (without default), mistyped or outside."""
    value = message.get(name, default)
    if type(value) is not int or not least <= value <= most:
        raise ProtocolError(f"field {name!r} must be a whole number from {least} to {most}")
    return value


def seconds(message: Message, name: str, default: float | None = None) -> float:
    """A time from 0 to MAX_SECONDS seconds. Raises ProtocolError if it is missing (without default), mistyped or outside."""
    value = message.get(name, default)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= MAX_SECONDS:
        raise ProtocolError(f"field {name!r} must be a number of seconds from 0 to {MAX_SECONDS:g}")
    return float(value)


def flag(message: Message, name: str, *, default: bool = False) -> bool:
    """True or false. Raises ProtocolError if it has another type."""
    value = message.get(name, default)
    if not isinstance(value, bool):
        raise ProtocolError(f"field {name!r} must be true or false")
    return value


def texts(message: Message, name: str, *, most: int = 1024) -> list[str]:
    """A list of texts. Raises ProtocolError if it is missing, mistyped or too long."""
    value = message.get(name)
    if not isinstance(value, list) or len(value) > most or not all(isinstance(v, str) and _is_text(v) for v in value):
        raise ProtocolError(f"field {name!r} must be a list of at most {most} texts")
    return value


def wholes(message: Message, name: str, *, least: int = 0, most: int = MAX_NS) -> list[int]:
    """A list of at most 1,024 whole numbers from `least` to `most`; empty if missing. Raises ProtocolError."""
    value = message.get(name, [])
    if (
        not isinstance(value, list)
        or len(value) > 1024
        or not all(type(v) is int and least <= v <= most for v in value)
    ):
        raise ProtocolError(f"field {name!r} must be a list of whole numbers from {least} to {most}")
    return value


def mapping(message: Message, name: str) -> Message:
    """A nested object. Raises ProtocolError if it is missing or mistyped."""
    value = message.get(name)
    if not isinstance(value, dict):
        raise ProtocolError(f"field {name!r} must be an object")
    return value


def mappings(message: Message, name: str, *, most: int = 1024) -> list[Message]:
    """A list of nested objects; empty if missing. Raises ProtocolError if it is mistyped or too long."""
    value = message.get(name, [])
    if not isinstance(value, list) or len(value) > most or not all(isinstance(v, dict) for v in value):
        raise ProtocolError(f"field {name!r} must be a list of at most {most} objects")
    return value


def _is_text(value: str) -> bool:
    """Whether a text is short enough and without surrogates, which JSON can encode but files and databases can't hold."""
    return len(value) <= _MAX_TEXT and (value.isascii() or not any("\ud800" <= char <= "\udfff" for char in value))
