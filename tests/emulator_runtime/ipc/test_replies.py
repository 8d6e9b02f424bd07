"""An error travels in a reply and is the same error on the other side."""

import json

import pytest

from emulator_runtime.domain.errors import (
    ClusterError,
    DeviceLostError,
    ManagerUnavailableError,
    OutOfMemoryError,
    ProtocolError,
    RefusedError,
)
from emulator_runtime.ipc.frames import decode_body, encode
from emulator_runtime.ipc.replies import error_reply, raise_for


@pytest.mark.parametrize(
    "cls", [OutOfMemoryError, DeviceLostError, ProtocolError, RefusedError, ManagerUnavailableError]
)
def test_round_trip(cls):
    reply = decode_body(encode(error_reply(cls("no: 3 GiB \N{GREEK SMALL LETTER MU}")))[4:])
    with pytest.raises(cls, match=r"^no: 3 GiB μ$") as caught:
        raise_for(reply)
    assert type(caught.value) is cls


def test_success_is_the_reply_itself():
    reply = {"ok": True, "devices": []}
    assert raise_for(reply) is reply


@pytest.mark.parametrize("ok", [1, "true", None, [True]])
def test_success_is_the_constant_true_and_nothing_like_it(ok):
    with pytest.raises(RefusedError, match="the reply has no error text"):
        raise_for({"ok": ok})


@pytest.mark.parametrize(
    "reply", [{}, {"ok": False, "code": 3}, {"ok": False, "code": ["x"]}, error_reply(ClusterError("x"))]
)
def test_an_unknown_code_is_a_refusal(reply):
    with pytest.raises(RefusedError):
        raise_for(reply)


@pytest.mark.parametrize(
    ("op", "about"), [("demand", "demand"), ("x" * 99, "x" * 16), (None, None), (["demand"], None)]
)
def test_an_error_names_the_op_of_the_message_that_is_wrong(op, about):
    assert error_reply(ProtocolError("no"), op).get("about") == about


def test_a_long_text_is_cut_so_that_the_reply_fits_a_frame():
    reply = error_reply(RefusedError("\N{FIRE}" * 300_000))
    assert len(reply["error"]) == 2000
    assert json.loads(encode(reply)[4:]) == reply
