"""The client says what the protocol's golden frames say (tests/support/golden_frames.json)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from emulator_runtime.domain.lease import Lease
from emulator_runtime.domain.stages import StageTimes
from emulator_runtime.domain.step import StepTimes
from emulator_runtime.ipc.channel import wait_readable
from emulator_runtime.ipc.client import ManagerClient, Patience
from emulator_runtime.ipc.frames import Decoder, encode

MS = 1_000_000
GOLDEN = json.loads((Path(__file__).parents[2] / "support" / "golden_frames.json").read_text(encoding="utf-8"))


def exclusive(client):
    client.attach(3)
    client.reserve(10, 20)
    assert client.lease(3, 50 * MS, 20 * MS, 150 * MS) == Lease(20 * MS, 70 * MS)
    client.queue(4, 50 * MS, 80 * MS, 100 * MS)
    assert client.lease(4, 50 * MS, 80 * MS, 100 * MS) == Lease(80 * MS, 130 * MS)
    wait_readable([client._channel], 5)  # the stop has arrived
    assert client.lease(5, 50 * MS, 130 * MS, 50 * MS) == Lease(130 * MS, 130 * MS, stop=True)
    client.release(5)


def further_process(client):
    client.attach()
    client.reserve(10, 20)
    assert client.lease(0, 50 * MS, 20 * MS) == Lease(20 * MS, 70 * MS)


def shared(client):
    client.attach(0)
    assert client.lease(0, 50, 2000, 150) == Lease(2000, 2050)
    client.queue(1, 50, 2050, 100)
    assert client.lease(1, 50, 2050, 100) == Lease(2050, 2100)
    client.queue(2, 50, 2100, 50)
    assert client.lease(2, 50, 2100, 50) == Lease(2100, 2100, stop=True)
    client.release(2)


def stages(client):
    times = StepTimes(2, 100, input_ns=5, stages=StageTimes(20, 10, 8))
    client.attach(0)
    client.prefetch(0, times, 2000)
    assert client.prefetched_ns() == 2035
    assert client.lease(0, 50, 2035, 100) == Lease(2035, 2085)
    client.exchange(0, times, 2085)
    assert client.exchanged_ns() == 2093
    client.finish(1)


def script(turns):
    """What a server answers to each frame of the job: all that the manager says before the job's next one."""
    answers = []
    for turn in turns:
        if "job" in turn:
            answers.append([])
        elif "manager" in turn:
            answers[-1].append(turn["manager"])
    return [b"".join(encode(message) for message in several) or None for several in answers]


@pytest.mark.parametrize("run", [exclusive, further_process, shared, stages])
def test_the_client_speaks_as_the_protocol_says(serve, tmp_path, host, run):
    turns = GOLDEN["conversations"][run.__name__]["turns"]
    server = serve(script(turns))
    session = {"session": "rank 1", "only": [1]} if run is further_process else {"job_id": "a"}
    client = ManagerClient(tmp_path / "sock", "TOKEN", patience=Patience(2.0, host.now, host.sleep), **session)
    run(client)
    client.close()
    server.close()
    (received,) = server.received
    received[0]["connection"] = "NAME"
    assert received == [turn["job"] for turn in turns if "job" in turn]


def test_the_encoding_of_a_frame():
    frame, data = GOLDEN["encoding"]["frame"], bytes.fromhex(GOLDEN["encoding"]["hex"])
    assert encode(frame) == data
    assert Decoder().feed(data) == [frame]
