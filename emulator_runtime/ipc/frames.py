"""Frames on a socket: a 4-byte big-endian length, then that many bytes of JSON, one object per frame.

Chosen over protobuf so that a training container needs nothing but the standard library, and over newline-delimited
JSON so that C code can read a frame with two reads and no scan.
"""

from __future__ import annotations

import json
from typing import Any

from emulator_runtime.domain.errors import ProtocolError

PROTOCOL_VERSION = 1
MAX_FRAME_BYTES = 256 * 1024
_LENGTH_BYTES = 4

Message = dict[str, Any]
"""A decoded frame, before `fields` turns it into typed values."""


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=True, allow_nan=False, check_circular=False).encode
_decode = json.JSONDecoder(parse_constant=_no_constant).decode


def encode(message: Message) -> bytes:
    """One frame. Raises ProtocolError for a message above MAX_FRAME_BYTES."""
    body = _encode(message).encode("ascii")
    if len(body) > MAX_FRAME_BYTES:
        raise ProtocolError(f"a message of {len(body)} bytes; at most {MAX_FRAME_BYTES} are allowed")
    return len(body).to_bytes(_LENGTH_BYTES, "big") + body


def decode_body(body: bytes | bytearray) -> Message:
    """The message in a frame's body. Raises ProtocolError for anything but one JSON object."""
    try:
        message = _decode(body.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"a frame is not JSON: {str(error)[:200]}") from error
    if not isinstance(message, dict):
        raise ProtocolError(f"a frame must hold a JSON object, not {type(message).__name__}")
    return message


class Decoder:
    """Turns a byte stream into messages, however the bytes are cut."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Message]:
        """The messages that are complete now. Raises ProtocolError; the stream is unusable after that."""
        buffer = self._buffer
        buffer += data
        messages: list[Message] = []
        start = 0
        while len(buffer) - start >= _LENGTH_BYTES:
            size = int.from_bytes(buffer[start : start + _LENGTH_BYTES], "big")
            if size > MAX_FRAME_BYTES:
                raise ProtocolError(f"a frame of {size} bytes; at most {MAX_FRAME_BYTES} are allowed")
            end = start + _LENGTH_BYTES + size
            if len(buffer) < end:
                break
            messages.append(decode_body(buffer[start + _LENGTH_BYTES : end]))
            start = end
        if start:
            del buffer[:start]
        return messages

    @property
    def pending_bytes(self) -> int:
        return len(self._buffer)
