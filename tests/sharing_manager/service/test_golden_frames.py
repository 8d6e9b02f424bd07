"""The manager answers as the protocol's golden frames say (tests/support/golden_frames.json); docs/protocol.md describes all
messages and fields."""

from __future__ import annotations

import json
import os
import re
import socket
from pathlib import Path

import pytest

from emulator_runtime.domain.errors import ProtocolError
from emulator_runtime.domain.gpu import device_uuid
from emulator_runtime.domain.stages import HostResource
from emulator_runtime.ipc.control import LOST, MODE, PIECE, RESIZE, STOP
from emulator_runtime.ipc.frames import Decoder, encode
from emulator_runtime.ipc.poller import Poller
from sharing_manager.service.job_service import JobService

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "protocol.md").read_text(encoding="utf-8")
CONVERSATIONS = json.loads((ROOT / "tests" / "support" / "golden_frames.json").read_text(encoding="utf-8"))[
    "conversations"
]
UUIDS = {f"GPU-{index}": device_uuid("n1", index) for index in range(3)}


def translated(frame, names):
    """The frame with the values of this run for the names that stand for them."""
    text = json.dumps(frame)
    for name, value in names.items():
        text = text.replace(json.dumps(name), json.dumps(value))
    return json.loads(text)


def behind(resource):
    """The devices behind a link."""
    return tuple(UUIDS[name] for name in resource["devices"])


@pytest.mark.parametrize("unknown", [{}, {"ends_unit": True}], ids=["", "a field that nobody knows"])
@pytest.mark.parametrize("conversation", CONVERSATIONS.values(), ids=CONVERSATIONS)
def test_the_manager_answers_as_the_protocol_says(make_node, tmp_path, conversation, unknown):
    resources = (HostResource(each["name"], devices=behind(each)) for each in conversation.get("resources", ()))
    node = make_node("manager.db", conversation["sharing"], resources)
    manager, poller = node.manager, Poller()
    jobs = JobService(manager)
    poller.listen(tmp_path / "sock", jobs.on_message, jobs.on_close, on_open=jobs.on_open)
    grant = manager.grant("a", list(UUIDS.values())[: conversation["devices"]], 0)
    names = UUIDS | {"TOKEN": node.token(grant), "PID": os.getpid()}
    decoder, said, expected = Decoder(), [], []
    with socket.socket(socket.AF_UNIX) as job:
        job.connect(str(tmp_path / "sock"))

        def turn():
            while poller.poll(0):
                pass
            jobs.decide(node.clock.now_ns())

        for each in conversation["turns"]:
            match each:
                case {"now_ns": now_ns}:
                    node.clock.advance_to_ns(now_ns)
                case {"job": frame}:
                    job.sendall(encode(translated(frame, names) | unknown))
                case {"stop": job_id}:
                    manager.stop(job_id)
                case {"manager": frame}:
                    expected.append(translated(frame, names))
            turn()
        job.setblocking(False)
        said += decoder.feed(job.recv(1 << 16))
    poller.close()
    assert said == expected


def test_the_page_describes_the_messages_that_there_are(node):
    with pytest.raises(ProtocolError) as refusal:
        JobService(node.manager).on_message(None, {"op": "none of them"})
    requests = re.findall(r"\w+", str(refusal.value).partition("one of")[2])
    assert {"attach", "query", "demand"} <= {*requests}
    warp = {"wait", "wake"}
    assert {*re.findall(r'{"op": "(\w+)"', PAGE)} == {*requests, LOST, MODE, PIECE, RESIZE, STOP, *warp}


def test_the_page_names_each_field():
    frames = (frame for each in CONVERSATIONS.values() for turn in each["turns"] for frame in turn.values())
    assert {*fields(list(frames))} - {*re.findall(r'["`](\w+)["`]', PAGE)} == set()


def fields(value):
    """The names of all fields in a frame, or in a list of them."""
    if isinstance(value, dict):
        yield from value
        value = list(value.values())
    for each in value if isinstance(value, list) else []:
        yield from fields(each)
