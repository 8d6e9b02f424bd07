"""Frames on a socket: a 4-byte big-endian length, then a JSON object of that many bytes.

Rejected: protobuf, because a training container should need only the standard library; newline-delimited JSON, because C
code can read a length-prefixed frame with two reads and no search.
"""

from __future__ import annotations

import json
from typing import Any

from emulator_runtime.domain.errors import ProtocolError

PROTOCOL_VERSION = 3
OLDEST_VERSION = 2
"""The manager serves clients of this version too; they get no time of devices that several of them share by other modes than
FIFO."""
MAX_FRAME_BYTES = 256 * 1024
_LENGTH_BYTES = 4

Message = dict[str, Any]
"""A decoded frame; the functions of `fields` read typed values from it."""


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=True, allow_nan=False, check_circular=False).encode
_decoder = json.JSONDecoder(parse_constant=_no_constant)


def encode(message: Message) -> bytes:
    """One frame. Raises ProtocolError if the message is larger than MAX_FRAME_BYTES."""
    body = _encode(message).encode("ascii")
    if len(body) > MAX_FRAME_BYTES:
        raise ProtocolError(f"a message of {len(body)} bytes; at most {MAX_FRAME_BYTES} are allowed")
    return len(body).to_bytes(_LENGTH_BYTES, "big") + body


def decode_body(body: bytes | bytearray) -> Message:
    """The message in a frame's body. Raises ProtocolError unless it is exactly one JSON object."""
    try:
        message = _decode(body.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"a frame is not JSON: {str(error)[:200]}") from error
    if not isinstance(message, dict):
        raise ProtocolError(f"a frame must hold a JSON object, not {type(message).__name__}")
    return message


def _decode(text: str) -> Any:
    """What the text holds. Frames rarely have blanks around the object, and looking for them costs as much as reading it."""
    if text[:1] == "{":
        message, end = _decoder.raw_decode(text)
        if end == len(text):
            return message
    return _decoder.decode(text)


class Decoder:
    """Splits a byte stream into messages, wherever the chunks begin and end."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._start = 0  # offset of the first frame that hasn't been returned

    def feed(self, data: bytes) -> list[Message]:
        """The messages that are complete now. Raises ProtocolError; the stream can't be used afterwards."""
        self.add(data)
        messages: list[Message] = []
        while (message := self.next()) is not None:
            messages.append(message)
        return messages

    def add(self, data: bytes) -> None:
        """Append bytes for `next`."""
        if self._start:
            del self._buffer[: self._start]
            self._start = 0
        self._buffer += data

    def next(self) -> Message | None:
        """The next complete message; None if more bytes are needed. Raises ProtocolError like `feed`."""
        buffer, body = self._buffer, self._start + _LENGTH_BYTES
        if len(buffer) < body:
            return None
        size = int.from_bytes(buffer[self._start : body], "big")
        if size > MAX_FRAME_BYTES:
            raise ProtocolError(f"a frame of {size} bytes; at most {MAX_FRAME_BYTES} are allowed")
        if len(buffer) < body + size:
            return None
        self._start = body + size
        return decode_body(buffer[body : self._start])

    @property
    def pending_bytes(self) -> int:
        return len(self._buffer) - self._start
