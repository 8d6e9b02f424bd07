"""Frames: whatever is sent arrives, however the bytes are cut; whatever isn't the contract is a ProtocolError."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulator_runtime.domain.errors import ProtocolError
from emulator_runtime.ipc.frames import MAX_FRAME_BYTES, Decoder, decode_body, encode

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=6,
)
messages = st.dictionaries(st.text(max_size=5), values, max_size=3)


def frame(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


@settings(max_examples=60)
@given(st.lists(messages, max_size=4), st.data())
def test_round_trip_however_the_stream_is_cut(sent, data):
    stream = b"".join(encode(message) for message in sent)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    decoder, received = Decoder(), []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        received += decoder.feed(stream[start:end])
    assert received == sent
    assert decoder.pending_bytes == 0


def test_a_message_comes_out_with_its_last_byte_and_not_before():
    decoder, stream = Decoder(), encode({"op": "x"})
    assert [decoder.feed(stream[n : n + 1]) for n in range(len(stream))][:-1] == [[]] * (len(stream) - 1)
    assert decoder.feed(stream[:3]) == []
    assert decoder.pending_bytes == 3
    assert decoder.feed(stream[3:]) == [{"op": "x"}]


def test_the_longest_frame_passes_and_one_byte_more_does_not():
    longest = "a" * (MAX_FRAME_BYTES - len('{"t":""}'))
    assert Decoder().feed(encode({"t": longest})) == [{"t": longest}]
    with pytest.raises(ProtocolError, match=f"{MAX_FRAME_BYTES + 1} bytes; at most {MAX_FRAME_BYTES}"):
        encode({"t": longest + "a"})


@pytest.mark.parametrize("size", [MAX_FRAME_BYTES + 1, 2**31, 2**32 - 1])
def test_a_length_above_the_limit_is_refused_before_its_bytes_come(size):
    with pytest.raises(ProtocolError, match=f"a frame of {size} bytes"):
        Decoder().feed(size.to_bytes(4, "big"))


NOT_JSON = {
    "empty": b"",
    "a word": b"hello",
    "NaN": b'{"a":NaN}',
    "infinity": b'{"a":-Infinity}',
    "two values": b"{} {}",
    "cut off": b'{"a":',
    "bad UTF-8": b'{"a":"\xff\xfe"}',
    "half a surrogate pair in UTF-8": b'{"a":"\xed\xa0\x80"}',
    "UTF-16": json.dumps({"a": 1}).encode("utf-16"),
    "nested too deeply": b'{"a":' + b"[" * 100_000,
    "a number of 5,000 digits": b'{"a":' + b"9" * 5_000 + b"}",
}


@pytest.mark.parametrize("body", NOT_JSON.values(), ids=NOT_JSON.keys())
def test_not_json(body):
    with pytest.raises(ProtocolError, match=r"a frame is not JSON: .+"):
        Decoder().feed(frame(body))


@pytest.mark.parametrize(("body", "kind"), [(b"[1]", "list"), (b"3", "int"), (b'"x"', "str"), (b"null", "NoneType")])
def test_not_an_object(body, kind):
    with pytest.raises(ProtocolError, match=f"must hold a JSON object, not {kind}"):
        decode_body(body)


@given(st.binary(max_size=200))
def test_random_bytes_are_messages_or_a_protocol_error(data):
    try:
        received = Decoder().feed(data)
    except ProtocolError:
        return
    assert all(isinstance(message, dict) for message in received)


@given(st.binary(max_size=60))
def test_random_bodies_are_messages_or_a_protocol_error(body):
    try:
        assert isinstance(decode_body(body), dict)
    except ProtocolError as error:
        assert len(str(error)) < 300
